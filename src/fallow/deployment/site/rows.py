"""Rows of a site: validation against the schema, and readable form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.load_options import (
    DEFAULTS,
    UNKNOWN_MARKS,
    KnownMarks,
    LoadOptions,
    check_applies,
)
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import nearest, require_known
from fallow.core.wording import count_noun, join_some
from fallow.data.dataset import find_leaks, row_hashes
from fallow.data.loaders.answers import join_answers
from fallow.data.loaders.features import read_array_rows, text_of
from fallow.data.loaders.hashing import hash_texts
from fallow.data.loaders.images import name_pages
from fallow.data.loaders.labels import UNLABELED
from fallow.data.loaders.numbers import warn_of_sentinels
from fallow.data.loaders.open import find_kind
from fallow.data.loaders.slices import SliceLocation
from fallow.data.loaders.text_rules import (
    is_empty,
    names_groups,
    warn_of_similar_names,
    warn_of_unknown_names,
)
from fallow.data.loaders.units import warn_of_units
from fallow.data.predictions import (
    PREDICTIONS,
    PREFIX,
    check_predicted_classes,
    is_prediction,
    read_predictions,
)
from fallow.data.reading import ColumnRead
from fallow.deployment.schema import LARGEST, Column, Schema, without_unit
from fallow.deployment.site.pictures import (
    Originals,
    check_inside,
    read_inside,
    read_pictures,
)
from fallow.sites.cases import Cases
from fallow.storage.files import find_existing
from fallow.storage.table_suffixes import TABLES

if TYPE_CHECKING:
    from fallow.data.loaders.table_files import Table

Mask = npt.NDArray[np.bool_]
ReadableRow = tuple[tuple[str, str, str], ...] | Path
"""Row in readable form: (column, text, unit) for each column, with "" for empty cells, or an image
file."""
MOST_VIEWS = 4
"""Largest number of images of a row, shown side by side."""
BY_RANGE = "low = and high = of the column in study.toml, which decide it"
MOST_FAULTS = 20
"""Largest number of notes about images that cannot be displayed."""


@dataclass(frozen=True, eq=False)
class SiteRows:
    """Rows of one site in the order of its file.

    Parameters
    ----------
    x
        Features (n, *shape), float32.
    labels
        Class IDs, numbers, or None for unlabeled rows.
    ids
        Distinct names of the rows. Without a name column these are row numbers. For images these are
        file names, preceded by the folder if a file name is repeated.
    notes
        Messages about the rows.
    originals
        Image files of the rows.
    views
        Image files of each row, for rows with several images. ``describe`` names the first one.
    n_left_out
        Number of rows in the file that were dropped because a feature is missing.
    columns
        How each column of a table was read.
    groups
        Group of each row, such as its patient, or None.
    is_page
        Whether the image of each row is one page of its file; empty if none is.
    marks
        Marks of the numbers in the file of a table.
    predictions
        Class probabilities (n, k) that the site brings, or None.
    each
        Rows of the cases of a study that selects cases, or None. Labels, names and files are then
        those of cases, and ``x`` and ``predictions`` those of rows.
    of_case
        Positions of the rows of each case in ``each``.
    case_of
        Case of each row of ``x``.
    locations
        Location of each DICOM image in its volume; empty for other rows.
    """

    x: Tensor
    labels: tuple[float | None, ...]
    ids: tuple[str, ...]
    describe: Callable[[int], ReadableRow]
    notes: tuple[str, ...] = ()
    originals: Originals | None = None
    views: tuple[tuple[Path, ...], ...] | None = None
    n_left_out: int = 0
    columns: tuple[ColumnRead, ...] = ()
    groups: tuple[str, ...] | None = None
    is_page: tuple[bool, ...] = ()
    marks: KnownMarks = UNKNOWN_MARKS
    predictions: Tensor | None = None
    each: SiteRows | None = None
    of_case: tuple[tuple[int, ...], ...] = ()
    case_of: tuple[int, ...] = ()
    locations: tuple[SliceLocation | None, ...] = ()

    @property
    def cases(self) -> Cases | None:
        """Return the cases of the rows, or None if each row is one."""
        if self.each is None:
            return None
        return Cases(torch.tensor(self.case_of))

    def find_depth(self, row: int) -> int:
        """Return the number of slices of an example: of a case, or 1."""
        return len(self.of_case[row]) if self.each is not None else 1

    @property
    def group_numbers(self) -> Tensor | None:
        """Return the number of the group of each row, (n,) int64; None without groups."""
        if self.groups is None:
            return None
        _, numbers = np.unique(np.array(self.groups), return_inverse=True)
        return torch.from_numpy(numbers.astype(np.int64))

    def files(self, row: int) -> tuple[Path, ...]:
        """Return the image files of a row in display order."""
        if self.each is not None:
            files = chain.from_iterable(map(self.each.files, self.of_case[row]))
            return tuple(dict.fromkeys(files))
        if self.views is not None:
            return self.views[row]
        shown = self.describe(row)
        if isinstance(shown, Path):
            return (shown,)
        return ()

    def content(self, row: int, view: int = 0) -> bytes | None:
        """Return the content of a row's image file, or None if there is none.

        Raises ValueError if it is missing, outside its folder, or changed since the start.
        """
        files = self.files(row)
        if view >= len(files):
            return None
        file = files[view]
        if self.originals is not None:
            return self.originals.read_file(file)
        return read_inside(file, file.parent)

    @property
    def labeled(self) -> int:
        """Return the number of labeled rows."""
        return sum(label is not None for label in self.labels)


def read_rows(
    path: str | Path, schema: Schema, options: LoadOptions = DEFAULTS
) -> SiteRows:
    """Read the rows in a site's file or folder.

    ``options``: ``drop_rows``, which is agreed, and those of the site's own file (`OF_FILE`), such
    as ``group``, which is also the name of an array.

    A table must have the agreed columns in any order, and no others. Columns of dates, row names
    and free text are skipped, which ``columns`` reports.

    An array file (.npz) has ``x`` (n, *shape), ``y`` (n,), and optionally ``ids`` (n,) and
    ``files``: image paths relative to the file, (n,) or (n, k) for k images per row, "" for missing
    ones. Raises ValueError that names the file, the column and the row.
    """
    file = find_existing(path)
    kind = KINDS[schema.kind]
    if not kind.suits(file):
        raise ValueError(
            f"{file} is not data of this study, which is {kind.words}; give such a file"
        )
    try:
        with explain_errors(
            f"{file} cannot be read (", after="); make it readable", of=OSError
        ):
            part = replace(options, drop_rows=False, group=None)  # which every kind has
            check_applies(file, find_kind(file), part)
            _check_group(options.group, schema, file)
            rows = kind.read(file, schema, options)
    except ValueError as error:
        sentence = str(error)
        if file.name not in sentence:
            sentence = f"{file.name}: {sentence}"
        raise ValueError(sentence) from error
    rows = replace(rows, notes=(*rows.notes, *_note_similar_classes(rows, schema)))
    for name, times in Counter(rows.ids).most_common(1):
        if times > 1:
            raise ValueError(
                f"{file.name}: the name {name!r} occurs in {times} rows; make names unique"
            )
    if len(rows.x) == 0:
        raise ValueError(
            f"{file.name} has no row without missing features; fill in the missing values"
        )
    return rows


def _note_similar_classes(rows: SiteRows, schema: Schema) -> list[str]:
    """Return a note for agreed classes that differ only in their writing, with their counts."""
    counts = dict.fromkeys(schema.classes, 0)
    for label in rows.labels:
        if label is not None and schema.classes:
            counts[schema.words(label)] += 1
    findings = warn_of_similar_names("the agreed classes", counts, "")
    return [finding.sentence for finding in findings]


def _check_group(group: str | None, schema: Schema, file: Path) -> None:
    """Raise ValueError if rows cannot have this column of groups."""
    if group is None:
        return
    if schema.kind == "images":
        return  # the images are asked
    columns = (column.name for column in schema.columns)
    if group in (schema.label, schema.ids, *schema.labels, *columns):
        raise ValueError(
            f"column {group!r} is the group of a row, and part of the agreement; give another "
            "column as group"
        )


def _list_groups(names: Sequence[str], group: str) -> tuple[str, ...]:
    """Return the groups of the rows. Raises ValueError for a row without a group."""
    empty = list(names).count("")
    if empty:
        raise ValueError(f"{empty} rows have no group in {group!r}; fill them in")
    return tuple(names)


def read_tests(
    path: str | Path, schema: Schema, options: LoadOptions = DEFAULTS
) -> SiteRows:
    """Read test rows as `read_rows` does. Each must have a label."""
    rows = read_rows(path, schema, options)
    labels = zip(rows.ids, rows.labels, strict=True)
    bare = [name for name, label in labels if label is None]
    if bare:
        raise ValueError(
            f"{Path(path).name}: {len(bare)} test rows have no label, the first is {bare[0]!r}; "
            "label or remove them"
        )
    return rows


def check_apart(rows: SiteRows, tests: SiteRows, file: str | Path) -> None:
    """Raise ValueError if more test rows than by chance have the features of a row of the data.

    ``file`` has the test rows. Their accuracy would be that of examples which the model has seen. No
    group may be in both.
    """
    _check_groups_apart(rows, tests, Path(file).name)
    leaks = find_leaks(rows.x, tests.x)
    if not leaks or len(leaks) <= count_by_chance(rows.x, len(tests.ids)):
        return
    test, train = next(iter(leaks.items()))
    raise ValueError(
        f"{Path(file).name}: {len(leaks)} of {len(tests.ids)} test rows are also rows of the "
        f"data (test row {tests.ids[test]!r} is row {rows.ids[train]!r}); remove them from one "
        "of the two"
    )


def count_by_chance(x: Tensor, n: int) -> float:
    """Return how many of ``n`` other rows may equal a row of ``x`` (m, *shape) by chance.

    A row of a table with few distinct values often has a twin: the share of such rows in ``x`` is
    expected among others, plus three standard deviations.

    >>> count_by_chance(torch.tensor([[0.0], [1.0], [2.0]]), 100)
    0.0
    >>> count_by_chance(torch.tensor([[0.0], [1.0], [1.0], [2.0]]), 100)
    65.0
    """
    times = Counter(row_hashes(x))
    twins = sum(count for count in times.values() if count > 1) / max(len(x), 1)
    return n * twins + 3 * math.sqrt(n * twins * (1 - twins))


def _check_groups_apart(rows: SiteRows, tests: SiteRows, file: str) -> None:
    both = {*(rows.groups or ())} & {*(tests.groups or ())}
    if both:
        raise ValueError(
            f"{file}: {count_noun(len(both), 'group')} of the test rows also have rows in the "
            f"data, such as {min(both)!r}; move each group to one of the two"
        )


# -- tables ---------------------------------------------------------------------------------


def _read_table(file: Path, schema: Schema, options: LoadOptions) -> SiteRows:
    from fallow.data.loaders.encoding import find_empty

    table = _read_in_range(file, schema, options)
    group = options.group
    passed_over = _check_columns(table, schema, group)
    is_whole = np.ones(table.n_rows, dtype=np.bool_)  # lines without missing required cells
    empty: dict[str, Mask] = {}  # cells of each column
    for column in schema.columns:
        empty[column.name] = find_empty(table, column.name)
        if not column.may_be_empty and not column.text:
            is_whole &= ~empty[column.name]
    missing = {name: int(cells.sum()) for name, cells in empty.items()}
    notes = [finding.advice for finding in table.findings]
    n_missing = int((~is_whole).sum())
    if n_missing:
        notes.append(_note_missing(schema, missing, n_missing, options.drop_rows))

    parts: list[Tensor] = []  # each (n, features of a column)
    read: list[ColumnRead] = []
    for column in schema.columns:
        if not column.text:
            parts.append(_encode_column(column, table, is_whole, notes))
        read.append(
            ColumnRead(
                column.name,
                column.kind,
                unit=column.unit,
                values=column.values,
                missing=missing[column.name],
                offset=column.offset or 0.0,
            )
        )
    for _, name in schema.marks:
        parts.append(torch.from_numpy(empty[name]).float().unsqueeze(1))
    texts = {
        column.name: _show_cells(column, table, empty[column.name])
        for column in schema.columns
    }
    for column in schema.columns:
        if column.text:
            parts.append(torch.from_numpy(hash_texts(texts[column.name])))

    rows: list[int] = np.flatnonzero(is_whole).tolist()  # position of each row in the file
    labels = [""] * table.n_rows
    has_columns = bool(schema.labels) and {*schema.labels} <= {*table.columns}
    if schema.label in table.columns or has_columns:
        labels = _list_labels(table, schema)
        notes += _note_unlabeled(schema, labels)
        targets = None if schema.outcomes else table.numbers(schema.label)
        if targets is not None:
            findings = warn_of_sentinels("the targets", targets[~np.isnan(targets)])
            notes += [finding.advice for finding in findings]
    ids = _number_rows(range(table.n_rows))
    if schema.ids in table.columns:
        ids = table.texts(schema.ids)
    groups = None
    if group is not None:
        names = table.texts(group)
        groups = _list_groups([names[row] for row in rows], group)
        doubts = warn_of_unknown_names("groups", Counter(groups))
        notes += [finding.advice for finding in doubts]
    locations = [f"row {name}" for name in _number_rows(rows)]
    predictions = _read_predictions(table, schema, is_whole, notes)

    def describe(row: int) -> ReadableRow:
        return tuple((c.name, texts[c.name][rows[row]], c.unit) for c in schema.columns)

    return SiteRows(
        x=torch.cat(parts, dim=1)[torch.from_numpy(is_whole)],
        labels=_parse_labels(schema, [labels[row] for row in rows], locations),
        ids=tuple(ids[row] for row in rows),
        describe=describe,
        notes=tuple(notes),
        n_left_out=n_missing,
        columns=(*read, *passed_over),
        groups=groups,
        marks=table.marks.known,
        predictions=predictions,
    )


def _read_in_range(file: Path, schema: Schema, options: LoadOptions) -> Table:
    """Read a table; the agreed ranges decide whether a mark such as that of 3,215 is decimal."""
    from fallow.data.loaders.marks import OTHER
    from fallow.data.loaders.table_files import read_file

    table = read_file(file, options=options)
    if not table.marks.doubt:
        return table
    decimal = table.marks.decimal
    readings = [
        read_file(file, options=replace(options, decimal=mark))
        for mark in (decimal, OTHER[decimal])
    ]
    within, otherwise = (_count_in_range(reading, schema) for reading in readings)
    if within == otherwise:
        doubts = {finding.sentence for finding in table.marks.warn_of_doubt(table.name)}
        findings = [
            replace(one, fix=BY_RANGE) if one.sentence in doubts else one
            for one in table.findings
        ]
        return replace(table, findings=tuple(findings))
    return readings[0] if within > otherwise else readings[1]


def _count_in_range(table: Table, schema: Schema) -> int:
    """Count the numbers in the agreed ranges of columns that have one."""
    n_within = 0
    for column in schema.columns:
        low, high = column.low, column.high
        if low is None or high is None or column.name not in table.columns:
            continue
        numbers = table.numbers(column.name)
        if numbers is not None:
            n_within += int(((numbers >= low) & (numbers <= high)).sum())
    return n_within


def _read_predictions(
    table: Table, schema: Schema, is_whole: Mask, notes: list[str]
) -> Tensor | None:
    """Return the predictions of rows in ``is_whole``, (n, k), or None without such columns."""
    names = _list_predictions(table, schema)
    if not names:
        return None
    check_predicted_classes(names, schema.classes)
    columns = [_encode_column(Column(name), table, is_whole, notes) for name in names]
    return read_predictions(names, torch.cat(columns, dim=1)[torch.from_numpy(is_whole)])


def _list_predictions(table: Table, schema: Schema) -> list[str]:
    """Return the columns of predictions that the site brings, beside the agreed columns."""
    agreed = {column.name for column in schema.columns}
    return [name for name in table.columns if is_prediction(name) and name not in agreed]


def _show_cells(column: Column, table: Table, empty: Mask) -> list[str]:
    """Return the cells of a column as texts, "" for empty ones."""
    read = table.plain_texts if column.kind == "number" else table.texts
    cells = read(column.name)
    return [
        "" if lacks else cell for cell, lacks in zip(cells, empty.tolist(), strict=True)
    ]


def _list_labels(table: Table, schema: Schema) -> list[str]:
    """Return the label of each line as text, "" for an empty cell."""
    from fallow.data.loaders.cells import is_textual, plain_texts

    if schema.labels and schema.label not in table.columns:
        return join_answers({name: table.texts(name) for name in schema.labels})
    cells = table.texts(schema.label)
    if not schema.outcomes and is_textual(table.columns[schema.label]):
        bare = [without_unit(cell, schema.unit) for cell in cells]
        cells = plain_texts(bare, table.marks.of(schema.label))
    known = schema.filled
    return ["" if is_empty(cell) and cell not in known else cell for cell in cells]


def _number_rows(rows: Sequence[int]) -> list[str]:
    """Return row numbers from 1 as names."""
    return [str(row + 1) for row in rows]


def _check_columns(table: Table, schema: Schema, group: str | None) -> list[ColumnRead]:
    """Return the skipped columns: dates, row names and free text, which are never features.

    Raises ValueError for a missing agreed column and for any other additional column.
    """
    from fallow.data.loaders.columns import Setting, recognize_column

    agreed = [column.name for column in schema.columns]
    for name in agreed:
        require_known(name, table.columns, f"the agreed column {name!r} is missing")
    known = {*agreed, schema.label, schema.ids, *schema.labels}
    passed_over: list[ColumnRead] = []
    if group is not None:
        require_known(group, table.columns, f"the column {group!r} of groups is missing")
        known.add(group)
        passed_over.append(ColumnRead(group, "identifier", "group"))
    known |= set(_list_predictions(table, schema))
    for name, cells in table.columns.items():
        if name in known:
            continue
        setting = Setting(name, table.name, marks=table.marks.of(name), enough=2)
        read = recognize_column(cells, setting).read
        # if the agreed name column is missing, this may be the same under another name
        may_name_rows = (
            read.kind in ("identifier", "text") and schema.ids not in table.columns
        )
        if read.kind not in PASSED_OVER or may_name_rows:
            raise ValueError(
                f"column {name!r} is not part of the agreement; remove it (the label "
                f"is {schema.label!r}, row names are in {schema.ids!r})"
                f"{_suggest_name(name, known)}"
            )
        passed_over.append(read)
    return passed_over


def _suggest_name(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown column: another case, or that of groups."""
    alike = [other for other in known if other.lower() == name.strip().lower()]
    if alike:
        return f"; did you mean {alike[0]!r}?"
    if names_groups(name):
        return f"; if several rows are of one patient or object, give --group {name}"
    return ""


PASSED_OVER = ("date", "identifier", "text", "counter")
"""Kinds of columns that are never features, and that a site may have."""


def _note_missing(
    schema: Schema, missing: Mapping[str, int], n_missing: int, drop_rows: bool
) -> str:
    """Describe missing cells if such rows are dropped. Raises ValueError otherwise.

    ``missing`` has the number of empty cells of each column.
    """
    if drop_rows:
        return f"dropped rows with missing features: {n_missing}"
    counts: list[str] = []
    for column in schema.columns:
        if missing[column.name] and not column.may_be_empty and not column.text:
            counts.append(f"{column.name!r} {missing[column.name]}")
    where = ", ".join(counts)
    raise ValueError(
        f"{n_missing} rows have missing features ({where}); fill them in or remove "
        "the rows, or agree that such a column may be empty (may_be_empty = true in "
        "its line of study.toml), so that the sites impute it together, or on "
        "drop_rows = true, so that every site drops such rows"
    )


def _encode_column(
    column: Column, table: Table, is_whole: Mask, notes: list[str]
) -> Tensor:
    """Return a column as numbers (n, 1) or binary features (n, values), NaN for empty cells.

    Only rows in ``is_whole`` are checked.  Numbers outside the agreed range are added to ``notes``.
    """
    from fallow.data.loaders.encoding import encode_levels, levels_of, read_numbers

    if column.values:

        def explain(row: int, text: str) -> str:
            return (
                f"column {column.name!r}, row {row + 1}: {text!r} is not one of the "
                f"agreed texts {', '.join(map(repr, column.values))}"
                f"{_suggest(text, column.values)}"
            )

        levels = levels_of(table, column.name)
        return torch.from_numpy(encode_levels(levels, column.values, explain))

    def explain_number(row: int, text: str) -> str:
        way_out = "give one"
        if column.unit:
            way_out += f" in {column.unit}"
        if "," in text:
            way_out += ", with a decimal point and no comma"
        return f"column {column.name!r}, row {row + 1}: {text!r} is not a finite number; {way_out}"

    numbers = read_numbers(table, column.name, explain_number, column.unit)
    is_beyond = is_whole & (np.abs(numbers) > LARGEST)
    if is_beyond.any():
        row = int(is_beyond.argmax())
        raise ValueError(explain_number(row, table.texts(column.name)[row]))
    known = numbers[is_whole & ~np.isnan(numbers)]
    if _count_beyond(column, known):
        beyond = _describe_beyond(column, known)
        notes.append(f"{beyond}; check that they are in the agreed unit")
    what = f"column {column.name!r}"
    for finding in (*warn_of_sentinels(what, known), *warn_of_units(what, known)):
        notes.append(finding.advice)
    shifted = np.where(is_whole, numbers, 0.0) - (column.offset or 0.0)
    return torch.from_numpy(shifted).float().unsqueeze(1)


def _suggest(text: str, known: Sequence[str]) -> str:
    """Return a suggestion such as "; did you mean 'ill'?" for a similar text, or nothing."""
    hint = nearest(text, list(known))
    if hint.startswith("; did"):
        return hint
    return ""


def check_units(rows: SiteRows, schema: Schema, confirmed: Collection[str]) -> None:
    """Raise ValueError for a column whose numbers are mostly outside the agreed range.

    They probably have another unit, and would change the sums of all sites.  ``confirmed``: columns
    whose numbers the site has compared with the agreed unit.
    """
    x = (rows.each or rows).x
    features = schema.features
    for column in schema.columns:
        if column.kind != "number" or column.name in confirmed:
            continue
        numbers = x[:, features.index(column.name)].double().numpy()
        numbers = numbers[~np.isnan(numbers)] + (column.offset or 0.0)
        if 2 * _count_beyond(column, numbers) > len(numbers):
            raise ValueError(
                f"{_describe_beyond(column, numbers)}; convert them to the agreed unit, or, if they "
                f"are in it, add {column.name!r} to the setting confirmed in site.toml"
            )


def _describe_beyond(column: Column, numbers: npt.NDArray[np.float64]) -> str:
    """Describe numbers outside the agreed range, which often indicate another unit."""
    low, high = _find_range(column)
    limits = f"{low:g} to {high:g} {column.unit}".rstrip()
    n_beyond = _count_beyond(column, numbers)
    return (
        f"column {column.name!r}: {n_beyond} of {len(numbers)} numbers are outside {limits}"
    )


def _count_beyond(column: Column, numbers: npt.NDArray[np.float64]) -> int:
    low, high = _find_range(column)
    return int(((numbers < low) | (numbers > high)).sum())


def _find_range(column: Column) -> tuple[float, float]:
    """Return the agreed range of a column of numbers, infinite where it has no limit."""
    low = -math.inf if column.low is None else column.low
    high = math.inf if column.high is None else column.high
    return low, high


def _may_be_unlabeled(schema: Schema) -> bool:
    """Return whether the label -1 is none, as in a simulation."""
    return bool(schema.classes) and UNLABELED not in schema.classes


def _note_unlabeled(schema: Schema, labels: Sequence[str]) -> list[str]:
    n_unlabeled = labels.count(UNLABELED)
    if not n_unlabeled or not _may_be_unlabeled(schema):
        return []
    return [f"label {UNLABELED} counted as unlabeled: {n_unlabeled}"]


def _parse_labels(
    schema: Schema, cells: Sequence[str], locations: Sequence[str]
) -> tuple[float | None, ...]:
    """Return class IDs or numbers (n,), None for unlabeled rows. ``locations`` name the cells."""
    has_unlabeled = _may_be_unlabeled(schema)
    labels: list[float | None] = []
    for location, cell in zip(locations, cells, strict=True):
        if not cell or (has_unlabeled and cell == UNLABELED):
            labels.append(None)
            continue
        with explain_errors(f"{location}: "):
            labels.append(schema.value(cell))
    return tuple(labels)


# -- images and arrays ----------------------------------------------------------------------


def _read_images(folder: Path, schema: Schema, options: LoadOptions) -> SiteRows:
    pictures = read_pictures(
        folder, schema.shape[0], schema.black_and_white, options, schema.label
    )
    if pictures.physical_range is not None and not schema.physical_range:
        low, high = pictures.physical_range
        raise ValueError(
            "the DICOM images have physical units, and the agreement has no range for them; "
            f"set physical_range in [schema] of study.toml, such as [{low:g}, {high:g}]"
        )
    if schema.physical_unit and pictures.unit != schema.physical_unit:
        raise ValueError(
            f"the images are {pictures.unit or 'without a unit'}, and the agreement has "
            f"{schema.physical_unit}; give images of that kind"
        )
    files = [folder / name for name in pictures.names]  # of each image
    x = torch.from_numpy(pictures.x)
    _check_shape(x, schema)
    labels = pictures.labels
    places = [f"folder {file.parent}" for file in files]
    if pictures.table:
        places = [f"{pictures.table}, {name}" for name in pictures.names]
        known = schema.filled
        labels = tuple("" if is_empty(one) and one not in known else one for one in labels)
    return SiteRows(
        x=x,
        labels=_parse_labels(schema, labels, places),
        ids=_name_images(files, folder),
        describe=lambda row: files[row],
        notes=tuple(finding.advice for finding in pictures.findings),
        originals=Originals.of(folder, list(dict.fromkeys(files))),
        groups=pictures.groups,
        is_page=pictures.is_page,
        locations=pictures.locations,
    )


def _name_images(files: Sequence[Path], folder: Path) -> tuple[str, ...]:
    """Return file names, preceded by the folder if a file name is repeated.

    A file of several pages occurs for each, and the names have their numbers.
    """
    different = list(dict.fromkeys(files))
    times = Counter(file.name for file in different)
    names: list[str] = []
    for file in files:
        if times[file.name] == 1:
            names.append(file.name)
        else:
            names.append(file.relative_to(folder).as_posix())
    index_of = {file: index for index, file in enumerate(different)}
    return name_pages(names, [index_of[file] for file in files])


def _read_arrays(file: Path, schema: Schema, options: LoadOptions) -> SiteRows:
    group = options.group
    names = ("y", "ids") if group is None else ("y", "ids", group)
    in_file = read_array_rows(file, schema.example_spec, *names)
    x = in_file.x  # (n, *shape)
    _check_shape(x, schema)
    is_whole = x.flatten(1).isfinite().all(1)  # (n,)
    n_missing = int((~is_whole).sum())
    notes: list[str] = []
    if "columns" in in_file.arrays:
        columns = [text_of(name) for name in in_file.arrays["columns"].ravel().tolist()]
        notes.append(
            "features count by position, because the agreement names none of arrays; those of this "
            f"file are {join_some(columns)}"
        )
    if in_file.finding is not None:
        notes.append(in_file.finding.advice)
    if n_missing:
        if not options.drop_rows:
            first = int((~is_whole).int().argmax()) + 1
            raise ValueError(
                f"{n_missing} rows have NaN or infinite features, the first is row {first}; "
                "correct them, or agree on drop_rows = true"
            )
        notes.append(f"dropped rows with NaN or infinite features: {n_missing}")
    # position of each row in the file
    rows: list[int] = is_whole.nonzero().flatten().tolist()
    kept: dict[str, list[str]] = {}
    for name, column in in_file.texts.items():
        kept[name] = [column[row] for row in rows]
    ids = kept.get("ids") or _number_rows(rows)
    groups = None
    if group is not None:
        require_known(group, kept, f"the array {group!r} of groups is missing")
        groups = _list_groups(kept[group], group)
    unlabeled = [""] * len(rows)
    locations = [f"row {name}" for name in _number_rows(rows)]
    labels = _parse_labels(schema, kept.get("y", unlabeled), locations)
    notes += _note_unlabeled(schema, kept.get("y", unlabeled))
    x = x[is_whole]
    predictions = None
    if PREDICTIONS in in_file.arrays:
        shares = _read_shares(in_file.arrays[PREDICTIONS], len(is_whole))
        columns = [f"{PREFIX}{number}" for number in range(shares.shape[1])]
        predictions = read_predictions(columns, shares[is_whole])

    def describe_numbers(row: int) -> ReadableRow:
        numbers: list[float] = x[row].flatten().tolist()
        return tuple((f"x{i}", f"{number:g}", "") for i, number in enumerate(numbers))

    if "files" not in in_file.arrays:
        return SiteRows(
            x=x,
            labels=labels,
            ids=tuple(ids),
            describe=describe_numbers,
            notes=tuple(notes),
            n_left_out=n_missing,
            groups=groups,
            predictions=predictions,
        )
    shown = _find_views(in_file.arrays["files"], file.parent, len(is_whole))
    views = tuple(shown[row] for row in rows)
    files = list(dict.fromkeys(chain.from_iterable(views)))
    for image in files:
        check_inside(image, file.parent)
    originals = Originals.of(file.parent, files)
    notes += originals.faults[:MOST_FAULTS]
    n_more = len(originals.faults) - MOST_FAULTS
    if n_more > 0:
        notes.append(f"{count_noun(n_more, 'more image')} cannot be displayed")
    return SiteRows(
        x=x,
        labels=labels,
        ids=tuple(ids),
        describe=lambda row: views[row][0],
        notes=tuple(notes),
        originals=originals,
        views=views,
        n_left_out=n_missing,
        groups=groups,
        predictions=predictions,
    )


def _read_shares(values: npt.NDArray[np.generic], n: int) -> Tensor:
    """Return the array of predictions of ``n`` examples, (n, k)."""
    if values.ndim != 2 or len(values) != n or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{PREDICTIONS} has shape {values.shape} and type {values.dtype}; give the "
            f"probabilities of each class for each of the {n} examples, ({n}, classes)"
        )
    return torch.from_numpy(values.astype(np.float64))


def _find_views(
    names: npt.NDArray[np.generic], folder: Path, n: int
) -> list[tuple[Path, ...]]:
    """Return the images of each row from their paths, (n,) or (n, k)."""
    if len(names) != n:
        raise ValueError(f"{n} rows in x and {len(names)} in files; give one per row")
    if names.ndim > 2 or (names.ndim == 2 and not 1 <= names.shape[1] <= MOST_VIEWS):
        raise ValueError(
            f"files has shape {names.shape}; give one name per row, (n,), or up to "
            f"{MOST_VIEWS} images, displayed side by side, (n, 2)"
        )
    views: list[tuple[Path, ...]] = []
    for row, named in enumerate(names.reshape(n, -1).tolist(), start=1):
        texts = [text_of(name) for name in named]
        images = [folder / text for text in texts if text]
        if not images:
            raise ValueError(f"row {row} has no image in files; name one")
        views.append(tuple(images))
    return views


def _check_shape(x: Tensor, schema: Schema) -> None:
    if tuple(x.shape[1:]) != schema.shape:
        raise ValueError(
            f"rows have the shape {tuple(x.shape[1:])} but the agreed shape is "
            f"{schema.shape}"
        )


@dataclass(frozen=True)
class _Kind:
    """Kind of data: how rows are read, file extensions (none for a folder), and a description."""

    read: Callable[[Path, Schema, LoadOptions], SiteRows]
    suffixes: tuple[str, ...]
    words: str

    def suits(self, file: Path) -> bool:
        """Return whether the name of a file or folder matches this kind."""
        if not self.suffixes:
            return file.is_dir()
        return not file.is_dir() and file.suffix.lower() in self.suffixes


KINDS = {
    "table": _Kind(_read_table, TABLES, "a table, .csv or .parquet"),
    "images": _Kind(
        _read_images, (), "a folder of images in class/* and unlabeled/*, or in a table"
    ),
    "arrays": _Kind(_read_arrays, (".npz",), "arrays in a file .npz"),
}
"""Kinds of data by the name in the schema."""
