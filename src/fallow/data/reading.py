"""Summary of the import of a user's own data: examples by site, columns, omitted parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from fallow.core.load_options import UNKNOWN_MARKS, FileOptions, KnownMarks
from fallow.core.missing import BUCKETS
from fallow.core.wording import join_some

ALL = ""
"""Name under which examples are counted if the data name no sites."""


@final
@dataclass(frozen=True)
class OmittedExamples:
    """Omitted examples: the reason, and their number at each site."""

    reason: str
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.rows.values())


Severity = Literal["warning", "note"]
Role = Literal["feature", "label", "site", "group", "id", "left out"]
Kind = Literal[
    "number",
    "category",
    "text",
    "date",
    "nested",
    "identifier",
    "counter",
    "constant",
    "empty",
]


@final
@dataclass(frozen=True)
class Finding:
    """Guess or finding about the data.

    Attributes
    ----------
    severity : {"warning", "note"}
        A warning is probably not what the user meant; a note is a choice that was made.
    sentence : str
        Sentence about the finding or choice, with the number of rows.
    fix : str
        Setting that changes it, such as ``"drop=['index']"``; "" if there is none.
    is_doubtful : bool
        Whether it often is no mistake, so that it is shown with the data but is no Python warning.
    """

    severity: Severity
    sentence: str
    fix: str = ""
    is_doubtful: bool = False

    @property
    def advice(self) -> str:
        """Sentence of a warning with the setting that changes it."""
        if self.severity == "warning" and "=" in self.fix:
            return f"{self.sentence}; set {self.fix}"
        return self.sentence


def note(sentence: str, fix: str = "") -> Finding:
    """Return a finding that states a choice."""
    return Finding("note", sentence, fix)


def warning(sentence: str, fix: str = "") -> Finding:
    """Return a finding that is probably not what the user meant."""
    return Finding("warning", sentence, fix)


def list_notes(sentences: Iterable[str]) -> tuple[Finding, ...]:
    """Return a note for each sentence."""
    return tuple(note(sentence) for sentence in sentences)


@final
@dataclass(frozen=True)
class Example:
    """Cell of a column, and its value after the import."""

    cell: str
    value: str


@final
@dataclass(frozen=True)
class ColumnRead:
    """Declaration of one column of a table, from which checks, notes and the data sheet derive.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : str
        Type of its cells.
    role : str
        Use of the column.
    unit : str
        Unit in the cells of a number, such as "mg"; "" if there is none.
    values : tuple of str
        Levels of a category.
    missing : int
        Number of empty cells.
    missing_at : mapping
        Number of empty cells by site.
    reason : str
        Why the column has its role or kind; "" if it is obvious.
    fix : str
        Setting that changes it; "" if there is none.
    offset : float
        Number that was subtracted from each cell, so that float32 keeps its digits.
    examples : tuple of Example
        Up to three different cells, and what they became.
    """

    name: str
    kind: Kind
    role: Role = "feature"
    unit: str = ""
    values: tuple[str, ...] = ()
    missing: int = 0
    missing_at: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    fix: str = ""
    offset: float = 0.0
    examples: tuple[Example, ...] = ()

    @property
    def is_feature(self) -> bool:
        return self.role == "feature"


@final
@dataclass(frozen=True)
class Reading:
    """Import of a user's own files or arrays, before any random draw.

    rows: number of examples read at each site.  left_out: omitted examples.  marks: those
    of the numbers in a table.  unit: that of the physical values of DICOM images.  files: options
    by which files of new examples are read alike.
    """

    source: str
    rows: Mapping[str, int]
    left_out: tuple[OmittedExamples, ...] = ()
    columns: tuple[ColumnRead, ...] = ()
    marks: KnownMarks = UNKNOWN_MARKS
    unit: str = ""
    files: FileOptions = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def kept(self) -> dict[str, int]:
        """Number of examples of each site that a study uses."""
        counter: Counter[str] = Counter()
        for item in self.left_out:
            counter.update(item.rows)
        return {site: rows - counter[site] for site, rows in self.rows.items()}

    def without(self, reason: str, rows: Mapping[str, int]) -> Reading:
        """Return the summary after further examples are omitted."""
        if not any(rows.values()):
            return self
        left_out = (*self.left_out, OmittedExamples(reason, dict(rows)))
        return replace(self, left_out=left_out)


def count_at(
    sites: Sequence[str] | npt.NDArray[Any] | None, rows: npt.NDArray[np.bool_]
) -> dict[str, int]:
    """Count the marked examples of each site; all together without sites."""
    if sites is None:
        return {ALL: int(rows.sum())}
    names, codes = np.unique(np.asarray(sites), return_inverse=True)
    counts = np.bincount(codes[rows], minlength=len(names)).tolist()
    return {str(name): int(n) for name, n in zip(names, counts, strict=True)}


ReportBytes = Callable[[int, int], None]
"""Function that receives the number of bytes read, and of all bytes."""


def ignore_bytes(done: int, total: int) -> None:
    """Ignore the progress."""


def explain_column(column: ColumnRead) -> str:
    """Explain why a column is not a feature, and how a column of texts becomes one."""
    if DIFFERENT_TEXTS in column.reason:
        return f"{column.reason}; name it with --columns (columns=) to use it as text"
    return column.reason


DIFFERENT_TEXTS = "different texts in"
"""Part of the reason of a column that could be a text column."""


MOST_EQUAL = 5
"""Largest number of columns with equal rows that are listed one by one."""


def describe_columns(columns: Sequence[ColumnRead]) -> Iterator[Finding]:
    """Yield notes about the columns."""
    equal = [column.name for column in columns if column.kind == "constant"]
    if len(equal) > MOST_EQUAL:
        sentence = f"{len(equal)} columns were left out, because all rows are equal: "
        yield note(sentence + join_some(equal), f"columns=[..., {equal[0]!r}]")
    for column in columns:
        name = column.name
        if column.kind == "constant" and len(equal) > MOST_EQUAL:
            continue
        if not column.is_feature:
            yield note(
                f"column {name!r} was left out: {explain_column(column)}", column.fix
            )
        elif column.kind == "category":
            yield note(
                f"column {name!r} contains texts and became {len(column.values)} "
                "one-hot columns",
                f"drop=[{name!r}]",
            )
        elif column.kind == "text":
            yield note(
                f"column {name!r} is free text and became {BUCKETS:,} hashed features of "
                "words and characters",
                f"drop=[{name!r}]",
            )
    holes = {c.name: c.missing for c in columns if c.missing and c.is_feature}
    if holes:
        counted = join_some([f"{name} {count:,}" for name, count in holes.items()])
        yield note(f"empty cells: {sum(holes.values()):,} ({counted})", "drop_rows=True")
