"""Recognition of the columns of a table: numbers, categories, texts, or omitted columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.core.missing import BUCKETS, name_buckets, name_marks
from fallow.core.wording import join_some
from fallow.data.loaders.cells import (
    Levels,
    Numbers,
    are_large_integers,
    count_distinct,
    find_levels,
    format_value,
    has_text_among,
    has_text_like,
    is_category,
    is_numeric,
    numbers_of,
    plain_texts,
    read_float32,
    read_written,
    texts_of,
)
from fallow.data.loaders.extra_rows import SUBTOTAL
from fallow.data.loaders.folders import names_split
from fallow.data.loaders.hashing import hash_texts
from fallow.data.loaders.marks import Marks
from fallow.data.loaders.numbers import (
    SMALLEST,
    choose_offset,
    count_too_small,
    counts_rows,
    find_step,
    warn_of_sentinels,
)
from fallow.data.loaders.text_rules import (
    ENOUGH,
    EXACT,
    FEW_VALUES,
    are_dates,
    are_days,
    are_serial_days,
    describe_dates,
    describe_merged,
    explain_many_texts,
    find_number_inside,
    has_leading_zero,
    is_perhaps_empty,
    merge_names,
    names_groups,
    names_rows,
    names_saved_index,
    number_in,
    split_unit,
    warn_of_dates,
    warn_of_garbled_names,
    warn_of_similar_names,
)
from fallow.data.loaders.units import warn_of_unit_column
from fallow.data.reading import ColumnRead, Example, Finding, Kind, note, warning

Codes = npt.NDArray[np.int32]
LARGEST = float(np.finfo(np.float32).max)
MOST_DIGITS = 1e20
"""Larger numbers are measurements and not identifiers."""
LEADING_ZEROS = "codes with leading zeros"
EXPONENTS = "codes with an E"
LONG_NUMBERS = "whole numbers with more digits than a number keeps"
E_CODE = re.compile(r"\d{1,3}E\d{1,3}", re.ASCII)
SHOWN = 3
"""Number of examples of cells."""
LAST_ROWS = 10
"""Rows below a table that may be a legend or totals."""
COUNTRY = re.compile(r"[A-Z]{2}")
SHORTENED = r"^\d([.,]\d{1,5})?E\+(09|1\d)$"
"""Whole numbers of ten digits and more as spreadsheets show them."""
FEWEST_SHORTENED = 1e9
"""Smallest number of this form."""
ELEMENTS = frozenset({"K", "Cl", "Ca", "Mg", "P", "Fe", "Zn", "Cu"})
"""Chemical elements beside which Na is sodium."""
SPLIT_COLUMN = re.compile(
    r"(data[\W_]?)?(split|set|fold|part(ition)?|subset|usage)", re.IGNORECASE
)
"""Names of columns that divide rows into training and test rows."""
SEARCHED = 100
"""First cells, in which they are looked for."""


@final
@dataclass(frozen=True, eq=False)
class Column:
    """A column with its declaration.

    Attributes
    ----------
    read : ColumnRead
        The declaration.
    cells : array of shape (n,)
        Numbers in float64 (in float32 if the file has them so) with NaN for empty cells; int32
        numbers of the levels of a category, -1 for empty cells; or the texts of a text column.
        Empty if the column is left out; a counter keeps its numbers, see `keep_at_least_one`.
    findings : tuple of Finding
        Guesses about the column.
    largest : float
        Largest magnitude of the numbers, or infinity if it is not known.
    """

    read: ColumnRead
    cells: npt.NDArray[Any]
    findings: tuple[Finding, ...] = ()
    largest: float = math.inf

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def features(self) -> tuple[str, ...]:
        """Features of the column: itself, ``name=level`` for each level, or those of a text."""
        if self.read.kind == "text":
            return name_buckets(self.read.name)
        if self.read.kind == "category":
            return tuple(f"{self.read.name}={level}" for level in self.read.values)
        return (self.read.name,)

    @property
    def is_missing(self) -> npt.NDArray[np.bool_]:
        """Return which cells are empty: (n,).  An empty text is a text."""
        is_missing: npt.NDArray[np.bool_] = np.zeros(len(self.cells), dtype=np.bool_)
        if self.read.kind == "category":
            is_missing = self.cells < 0
        elif self.read.kind == "number" and self.read.missing:
            is_missing = np.isnan(self.cells)
        return is_missing

    @property
    def is_infinite(self) -> npt.NDArray[np.bool_]:
        """Return which numbers are infinite in float32: (n,)."""
        is_infinite: npt.NDArray[np.bool_] = np.zeros(len(self.cells), dtype=np.bool_)
        if self.read.kind == "number" and self.largest > LARGEST:
            is_infinite = np.abs(self.cells) > LARGEST
        return is_infinite


@final
@dataclass(frozen=True)
class Setting:
    """How a column is read.

    name: of the column. file: where it is. must: it was requested, so it is used or an error. A
    requested column of free text is a text column. keeps_constant: a column with equal cells is
    used. enough: minimum number of rows in which different texts are identifiers.
    merge: texts that differ only in their writing are one level.  unit: that of all cells by their
    number format, as in Excel.
    """

    name: str
    file: str
    must: bool = False
    marks: Marks = Marks()
    keeps_constant: bool = False
    enough: int = ENOUGH
    merge: bool = False
    unit: str = ""

    def declare(self, kind: Kind, **details: Any) -> ColumnRead:  # fields of ColumnRead
        return ColumnRead(self.name, kind, **details)

    def leave_out(
        self,
        kind: Kind,
        reason: str,
        missing: int = 0,
        *,
        cells: npt.NDArray[Any] | None = None,
        findings: Sequence[Finding] = (),
    ) -> Column:
        """Leave the column out, or raise ValueError if it was requested."""
        if self.must:
            raise ValueError(
                f"{self.file}: column {self.name!r} cannot be a feature: {reason}; omit it, or "
                "declare it as the identifier with --id (id=)"
            )
        read = self.declare(
            kind,
            role="left out",
            missing=missing,
            reason=reason,
            fix=f"columns=[..., {self.name!r}]",
        )
        if cells is None:
            cells = np.zeros(0)
        return Column(read, cells, tuple(findings))


def keep_at_least_one(columns: Sequence[Column]) -> list[Column]:
    """Return the columns; if none of them is used, counters become numbers, such as a time."""
    if any(column.read.is_feature for column in columns):
        return list(columns)
    kept = []
    for column in columns:
        if column.read.kind == "counter" and len(column):
            examples = [
                Example(example.cell, _write_number(number))
                for example, number in zip(column.read.examples, column.cells, strict=False)
            ]
            read = replace(
                column.read,
                kind="number",
                role="feature",
                reason="",
                fix="",
                examples=tuple(examples),
            )
            column = replace(column, read=read)
        kept.append(column)
    return kept


def recognize_column(cells: pa.ChunkedArray, setting: Setting) -> Column:
    """Recognize a column.

    Raises ValueError for text among numbers, with its row and a fix, and for a requested column
    that cannot be used.
    """
    column = _recognize(cells, setting)
    examples = _show_examples(cells, column)
    return replace(column, read=replace(column.read, examples=examples))


def _recognize(cells: pa.ChunkedArray, setting: Setting) -> Column:
    if pa.types.is_nested(cells.type):
        return setting.leave_out("nested", "its cells have several values each")
    if pa.types.is_temporal(cells.type):
        first = next((str(cell) for cell in _first_values(cells) if cell is not None), "")
        return setting.leave_out("date", describe_dates([first]), cells.null_count)
    if pa.types.is_float32(cells.type):
        return _recognize_numbers(cells, read_float32(cells), setting)
    numbers = numbers_of(cells, setting.marks)
    if numbers is not None:
        return _recognize_numbers(cells, numbers, setting)
    levels = find_levels(cells)
    missing = int((levels.codes < 0).sum())
    if not levels.names:
        return setting.leave_out("empty", "it is empty", missing)
    if are_dates(levels.names):
        return setting.leave_out("date", describe_dates(levels.names), missing)
    if not is_category(cells):
        result = _recognize_written_numbers(cells, levels, setting)
        if result is not None:
            return result
    return _recognize_texts(cells, levels, setting)


# -- numbers --------------------------------------------------------------------------------


def _recognize_written_numbers(
    cells: pa.ChunkedArray, levels: Levels, setting: Setting
) -> Column | None:
    """Recognize Booleans, numbers with a unit, and numbers with spaces; None for other texts.

    Raises ValueError for text among numbers.
    """
    written = read_written(levels, setting.marks)
    if written is None:
        _check_mixed(levels, setting)
        return None
    column = _recognize_numbers(cells, written.numbers, setting)
    name = setting.name
    if not column.read.is_feature or column.read.kind != "number":
        return column
    if written.is_truth:
        finding = note(f"column {name!r} has true and false, which are 1 and 0")
        return replace(column, findings=(*column.findings, finding))
    if written.unit:
        unit = written.unit
        read = replace(column.read, unit=unit, reason=f"all cells have the unit {unit!r}")
        finding = note(f"column {name!r}: all cells are numbers in {unit!r}")
        return replace(column, read=read, findings=(*column.findings, finding))
    return column


def _recognize_numbers(
    cells: pa.ChunkedArray, numbers: Numbers, setting: Setting
) -> Column:
    missing = 0
    values = numbers
    if len(numbers) and np.isnan(numbers.min()):  # the minimum is NaN if a cell is
        is_missing = np.isnan(numbers)
        missing = int(is_missing.sum())
        values = numbers[~is_missing]
    if not len(values):
        return setting.leave_out("empty", "it is empty", missing)
    if not is_numeric(cells) and _has_codes(cells, values):
        return _recognize_texts(cells, find_levels(cells), setting, LEADING_ZEROS)
    if not is_numeric(cells) and _has_exponents(cells, values):
        return _recognize_texts(cells, find_levels(cells), setting, EXPONENTS)
    low = float(values.min())
    high = float(values.max())
    is_constant = low == high and math.isfinite(low) and not missing
    is_long = max(abs(low), abs(high)) >= EXACT and not pa.types.is_floating(cells.type)
    if is_constant and is_long and count_distinct(cells) > 1:
        texts = cells.cast(pa.string())
        return _recognize_texts(texts, find_levels(texts), setting, LONG_NUMBERS)
    if is_constant and not setting.must and not setting.keeps_constant:
        return setting.leave_out("constant", f"every row has {low:g}")
    if not setting.must:
        technical = _find_technical(cells, values, missing, setting)
        if technical is not None:
            kind, why = technical
            return setting.leave_out(kind, why, missing, cells=numbers)
    largest = max(abs(low), abs(high))
    findings = [*_check_numbers(cells, values, largest, setting)]
    offset = choose_offset(values, low, high)
    if offset:
        findings.append(
            note(
                f"column {setting.name!r}: {offset:,.15g} was subtracted from each number, because "
                "float32 does not have enough digits for numbers of this size"
            )
        )
    reason = ""
    if setting.unit:
        reason = f"the number format of its cells has the unit {setting.unit!r}"
    read = setting.declare(
        "number", missing=missing, offset=offset, unit=setting.unit, reason=reason
    )
    return Column(read, numbers, tuple(findings), largest)


def _has_codes(cells: pa.ChunkedArray, values: Numbers) -> bool:
    """Return whether some cell is a code such as ``007``, and not a number."""
    if not _are_whole(values) or not has_text_among(cells, "0", at_start=True):
        return False
    return any(has_leading_zero(level) for level in find_levels(cells).names)


def _has_exponents(cells: pa.ChunkedArray, values: Numbers) -> bool:
    """Return whether all cells are codes such as ``1E50`` of ICD-11; programs write ``1E+50``."""
    if not _are_whole(values) or not has_text_among(cells, "E"):
        return False
    return all(map(E_CODE.fullmatch, find_levels(cells).names))


def _are_whole(values: Numbers) -> bool:
    first = values[:SEARCHED]  # which tell most columns
    return bool((first == np.floor(first)).all() and (values == np.floor(values)).all())


def _find_technical(
    cells: pa.ChunkedArray, values: Numbers, missing: int, setting: Setting
) -> tuple[Kind, str] | None:
    """Return the kind of a column that numbers the rows, and why it does; None for others."""
    name = setting.name
    n = len(values)
    if missing or n < 2 or not _are_whole(values):
        return None
    if counts_rows(values):
        low = float(values.min())
        high = float(values.max())
        step = find_step(values) or 1.0
        order = "" if values[0] == low and values[-1] == high else " in another order"
        return "counter", f"it is a counter ({low:g}, {low + step:g}, ... {high:g}){order}"
    is_index = names_saved_index(name) and n >= FEW_VALUES
    may_name_rows = names_rows(name) or names_groups(name)
    if not is_index and (not may_name_rows or n < ENOUGH):
        return None
    if len(np.unique(values)) < n and count_distinct(cells) < n:
        return None
    return "identifier", f"it is an identifier ({n:,} different numbers in {n:,} rows)"


def _check_numbers(
    cells: pa.ChunkedArray, values: Numbers, largest: float, setting: Setting
) -> Iterator[Finding]:
    """Yield what may be wrong with numbers, of which ``largest`` is the largest magnitude."""
    yield from warn_of_sentinels(f"column {setting.name!r}", values)
    is_long = are_large_integers(cells) or EXACT < largest < MOST_DIGITS
    if is_long and _are_whole(values):
        yield warning(
            f"column {setting.name!r} has whole numbers beyond 2^53, whose last digits are "
            "lost",
            f"drop=[{setting.name!r}], or id={setting.name!r} for an identifier",
        )
    n_small = count_too_small(values)
    if n_small:
        yield warning(
            f"column {setting.name!r}: {n_small:,} numbers are smaller than {SMALLEST:.1g}, such "
            f"as p-values, and lose their digits or become 0 in float32",
            "write their logarithms, or other units",
        )
    is_date = are_days(values) and _are_whole(values)
    if is_date or are_serial_days(setting.name, values):
        yield warning(
            f"column {setting.name!r} has numbers such as {values[0]:.0f}, which may be dates",
            f"drop=[{setting.name!r}]",
        )
    is_code = _are_whole(values) and has_text_like(cells, r"\dE\d")
    # only large numbers have this form, and a search of all cells is slow
    if largest >= FEWEST_SHORTENED and has_text_like(cells, SHORTENED):
        yield warning(
            f"column {setting.name!r} has numbers such as 1.23457E+11, whose last digits a "
            "spreadsheet may have cut off",
            f"drop=[{setting.name!r}] if these are identifiers",
        )
    if is_code and not has_text_among(cells, "."):
        yield warning(
            f"column {setting.name!r} has numbers such as 1E5, which may be codes",
            f"drop=[{setting.name!r}]",
        )


def _check_mixed(levels: Levels, setting: Setting) -> None:
    """Raise ValueError for text among numbers, unless the values are few enough for
    categories.
    """
    as_number = [number_in(text) for text in plain_texts(levels.names, setting.marks)]
    codes = levels.codes
    counts = np.bincount(codes[codes >= 0], minlength=len(as_number))  # rows per level
    is_text = np.array([number is None for number in as_number])
    as_texts = int(counts[is_text].sum())
    as_numbers = int(counts.sum()) - as_texts
    if as_numbers <= as_texts:
        return
    often = max(2, 0.01 * len(codes))
    if len(as_number) <= FEW_VALUES and counts[is_text].min() >= often:
        return
    row = next(r for r, code in enumerate(codes.tolist()) if code >= 0 and is_text[code])
    more = ""
    if as_texts > 1:
        more = f", the first of {as_texts} such cells"
    text = levels.names[codes[row]]
    name = setting.name
    bad = np.flatnonzero((codes >= 0) & is_text[codes])
    way_out = (
        "correct it, leave the cell empty if the value is unknown, or omit the column with "
        f"--drop {name!r} (drop=)"
    )
    if bad.tolist() == [0]:
        way_out = "remove row 1 if it is a second header or has units"
    elif as_texts > 1 and bad[0] >= len(codes) - LAST_ROWS:
        way_out = "remove the last rows if they are a legend or totals"
    raise ValueError(
        f"{setting.file}: column {name!r}, row {row + 1}: {text!r} is not a number{more}, "
        f"and the other {as_numbers:,} are; {way_out}"
    )


# -- texts ----------------------------------------------------------------------------------


def _recognize_texts(
    cells: pa.ChunkedArray, levels: Levels, setting: Setting, codes: str = ""
) -> Column:
    """Recognize a column of texts; codes: kind of texts that look like numbers."""
    findings: list[Finding] = []
    if setting.merge:
        levels, findings = _merge_levels(levels, setting)
    names = levels.names
    missing = int((levels.codes < 0).sum())
    n_values = len(levels.codes) - missing
    is_constant = len(names) == 1 and not missing
    if is_constant and not setting.must and not setting.keeps_constant:
        return setting.leave_out("constant", f"every row has {names[0]!r}")
    reason = explain_many_texts(len(names), n_values, setting.enough)
    findings += _check_texts(levels, setting)
    if codes:
        example = next(filter(has_leading_zero, names), names[0])
        findings.append(
            note(
                f"column {setting.name!r} has {codes}, such as {example!r}, which are names and "
                "not numbers"
            )
        )
    if reason is not None and setting.must:
        texts = np.array(texts_of(cells), dtype=object)
        texts[levels.codes < 0] = ""
        return Column(setting.declare("text"), texts)
    if reason is not None:
        kind: Kind = "identifier" if reason.startswith("it is an identifier") else "text"
        return setting.leave_out(kind, reason, missing, findings=findings)
    read = setting.declare("category", values=tuple(names), missing=missing)
    return Column(read, levels.codes, tuple(findings))


def _merge_levels(levels: Levels, setting: Setting) -> tuple[Levels, list[Finding]]:
    """Return levels without those that differ from another one only in their writing."""
    counts = np.bincount(levels.codes[levels.codes >= 0], minlength=len(levels.names))
    merged = merge_names(dict(zip(levels.names, counts.tolist(), strict=True)))
    names = [name for name in levels.names if name not in merged]
    code_of = {name: code for code, name in enumerate(names)}
    recode = [code_of[merged.get(name, name)] for name in levels.names]
    codes = np.array([*recode, -1], dtype=np.int32)[levels.codes]
    findings = describe_merged(f"column {setting.name!r}", merged)
    return Levels(names, codes, levels.words), findings


def _check_texts(levels: Levels, setting: Setting) -> Iterator[Finding]:
    """Yield what may be wrong with the levels of a category."""
    name = setting.name
    written = find_number_inside(levels.names[:1000])
    if written is not None:
        yield Finding(
            "warning",
            f"column {name!r} has texts around numbers, such as {written!r}, and the "
            "numbers are not used",
            "write one number in each cell, as in 1.5 and -2, or drop the column",
            is_doubtful=True,
        )
    if len(levels.names) > 1000:
        return
    yield from warn_of_dates(f"column {name!r}", levels.names)
    counts = np.bincount(levels.codes[levels.codes >= 0], minlength=len(levels.names))
    by_name = dict(zip(levels.names, counts.tolist(), strict=True))
    yield from warn_of_similar_names(f"column {name!r}: the texts", by_name, "merge=True")
    yield from warn_of_garbled_names(f"column {name!r}: texts", levels.names)
    yield from _warn_of_subtotals(by_name, name)
    yield from warn_of_unit_column(name, by_name)
    if SPLIT_COLUMN.fullmatch(name.strip()) and all(map(names_split, levels.names)):
        sentence = (
            f"column {name!r} divides training and test rows ({join_some(levels.names)}), and is a "
            "feature"
        )
        yield warning(sentence, f"drop=[{name!r}]")
    yield from _find_words_among_numbers(by_name, setting, is_told=written is not None)
    for word, times in levels.words.items():
        if word.isalpha() and _may_be_value(word, levels.names):
            yield warning(
                f"column {name!r}: {word!r} in {times:,} cells counts as empty",
                "write another word if it is a value",
            )
    parts = [split_unit(level) for level in levels.names]
    units = Counter(part[1] for part in parts if part is not None)
    if len(units) > 1 and None not in parts:
        listed = [f"{unit!r} ({times} texts)" for unit, times in units.most_common()]
        yield warning(
            f"column {name!r} has numbers with different units: {join_some(listed)}",
            "convert them to one unit",
        )


def _may_be_value(word: str, others: Sequence[str]) -> bool:
    """Return whether a word for an empty cell may be a value beside other texts.

    >>> _may_be_value("Na", ["Cl", "K"]), _may_be_value("NA", ["CH", "DE"])
    (True, True)
    """
    if word == "Na":
        return any(other in ELEMENTS for other in others)
    if word == "NA":  # Namibia
        return len(others) > 1 and all(map(COUNTRY.fullmatch, others))
    return word.lower() in ("none", "null")


def _warn_of_subtotals(counts: Mapping[str, int], column: str) -> list[Finding]:
    """Return a warning of rows between the others that summarize them.

    counts: number of rows of each level.
    """
    for level, times in counts.items():
        if times > 1 and SUBTOTAL.fullmatch(level):
            sentence = (
                f"column {column!r}: {level!r} in {times:,} rows may summarize other rows"
            )
            return [warning(sentence, "remove these rows")]
    return []


def _find_words_among_numbers(
    counts: Mapping[str, int], setting: Setting, *, is_told: bool
) -> list[Finding]:
    """Return a warning of levels that may be missing values, or of numbers among texts.

    counts: number of rows of each level.  is_told: the numbers are in another finding.
    """
    column = f"column {setting.name!r}"
    names = list(counts)
    plain = plain_texts(names, setting.marks)
    words = [
        name for name, text in zip(names, plain, strict=True) if number_in(text) is None
    ]
    marks = [word for word in words if is_perhaps_empty(word)]
    if marks:
        listed = join_some([f"{mark!r} ({counts[mark]:,})" for mark in marks])
        sentence = f"{column}: the texts {listed} may mean a missing value, and are levels"
        return [warning(sentence, "leave these cells empty")]
    n_words = sum(counts[word] for word in words)
    is_mostly_number = 2 * n_words < sum(counts.values())
    have_digits = all(any(letter.isdecimal() for letter in word) for word in words)
    has_both = 0 < len(words) < len(names)
    if is_told or not has_both or not (is_mostly_number or have_digits):
        return []
    sentence = (
        f"{column} has texts among numbers, such as {words[0]!r} in {counts[words[0]]:,} cells, so "
        f"that its {len(names)} values are levels and not numbers"
    )
    fix = "leave cells without a value empty, or write one number in each cell"
    return [Finding("warning", sentence, fix, is_doubtful=have_digits)]


# -- examples -------------------------------------------------------------------------------


def _first_values(cells: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = cells.slice(0, SEARCHED).to_pylist()
    except (ValueError, OverflowError):  # dates beyond the calendar
        return []
    return values


def _show_examples(cells: pa.ChunkedArray, column: Column) -> tuple[Example, ...]:
    """Return the first different cells, and what they became."""
    if pa.types.is_nested(cells.type):
        return ()
    is_missing = column.is_missing
    examples: list[Example] = []
    seen: set[str] = set()
    for row, value in enumerate(_first_values(cells)):
        if len(examples) == SHOWN:
            break
        cell = "" if value is None else format_value(value)
        if cell in seen:
            continue
        seen.add(cell)
        read_as = "left out"
        if column.read.is_feature:
            read_as = "missing" if is_missing[row] else _show_value(column, row)
        examples.append(Example(cell[:60], read_as))
    return tuple(examples)


def _show_value(column: Column, row: int) -> str:
    """Return what a cell of a feature became, as the matrix of features has it."""
    read = column.read
    if read.kind == "category":
        return f"{read.name}={read.values[column.cells[row]]}"
    if read.kind == "text":
        return f"{BUCKETS:,} hashed features"
    return _write_number(float(column.cells[row]) - read.offset)


def _write_number(number: float) -> str:
    """Return a number with the digits that float32 keeps.

    >>> _write_number(0.1), _write_number(1e-50), _write_number(1234567.0)
    ('0.1', '0', '1234567')
    """
    with np.errstate(over="ignore", under="ignore"):
        kept = np.float32(number)
    if np.isfinite(kept) and kept == np.floor(kept) and abs(kept) < MOST_DIGITS:
        return f"{kept:.0f}"
    return str(kept)


# -- features -------------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class EncodedColumns:
    """Columns as input of a model.

    x: (n, d) float32, NaN for empty cells. offsets: (d,) what was subtracted from each feature.
    levels: range (first, last + 1) of the features of each category. marks: indicator features
    of empty cells, with the index of their column.
    """

    x: npt.NDArray[np.float32]
    names: tuple[str, ...]
    offsets: tuple[float, ...]
    levels: tuple[tuple[int, int], ...]
    marks: tuple[tuple[str, str], ...]


TOGETHER = 16  # features that share cache lines of 64 bytes
BLOCK_ROWS = 1 << 14


def _write_features(
    column: Column, rows: slice, feature: int, x: npt.NDArray[np.float32]
) -> None:
    """Write some rows of a column into the matrix, from its first feature on."""
    cells = column.cells[rows]
    if column.read.kind == "category":
        width = len(column.features)
        for code in range(width):
            x[rows, feature + code] = cells == code
        x[rows, feature : feature + width][cells < 0] = np.nan
        return
    if column.read.offset:
        cells = cells.astype(np.float64) - column.read.offset
    x[rows, feature] = cells


def encode_columns(
    columns: list[Column], check_bytes: Callable[[int], None]
) -> EncodedColumns:
    """Return the features of the used columns; the list is emptied in the process, to save
    memory.

    After each column with empty cells there is a feature ``name_missing``, 1 for an empty
    cell. The features of texts are the last ones. check_bytes: raises an error if this number of
    bytes does not fit into memory.
    """
    written = [column for column in columns if column.read.kind == "text"]
    columns[:] = [column for column in columns if column.read.kind != "text"]
    n = len((columns or written)[0])
    names = [feature for column in columns for feature in column.features]
    marked = [column.read.name for column in columns if column.read.missing]
    marks = name_marks(names, marked)
    names += [feature for feature, _ in marks]
    n_plain = len(names)
    names += [feature for column in written for feature in column.features]
    check_bytes(4 * n * len(names))
    x = np.empty((n, len(names)), dtype=np.float32)
    offsets = np.zeros(len(names))
    levels: list[tuple[int, int]] = []
    at = 0  # first feature of the next column
    mark_at = n_plain - len(marked)  # and index of its indicator
    columns.reverse()  # the last is popped
    while columns:
        group: list[tuple[int, Column]] = []  # with the first feature of each
        first = at
        while columns and at < first + TOGETHER:
            column = columns.pop()
            width = len(column.features)
            if column.read.kind == "category":
                levels.append((at, at + width))
            else:
                offsets[at] = column.read.offset
            if column.read.missing:
                x[:, mark_at] = column.is_missing
                mark_at += 1
            group.append((at, column))
            at += width
        with np.errstate(over="ignore"):
            for start in range(0, n, BLOCK_ROWS):
                for feature, column in group:
                    _write_features(column, slice(start, start + BLOCK_ROWS), feature, x)
    for number, column in enumerate(written):
        first = n_plain + number * BUCKETS
        hash_texts(column.cells.tolist(), x[:, first : first + BUCKETS])
    shifted = tuple(offsets.tolist()) if offsets.any() else ()
    return EncodedColumns(x, tuple(names), shifted, tuple(levels), marks)
