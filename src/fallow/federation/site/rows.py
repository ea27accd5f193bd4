"""A site's own rows, checked against the schema, and each as a person reads it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallow.core.build import nearest
from fallow.data.own.cells import TABLES
from fallow.data.own.features import read_arrays
from fallow.data.own.pixels import as_features
from fallow.data.own.table import EMPTY, Columns, read_all_cells
from fallow.federation.schema import Column, Schema, number_in
from fallow.federation.site.pictures import (
    Originals,
    check_inside,
    read_inside,
    read_pictures,
)

Shown = tuple[tuple[str, str, str], ...] | Path
"""A row as a person reads it: (column, text, unit) for each column of a table, or the file of an
image."""
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class SiteRows:
    """The rows of one site in the order of its file.

    x: (n, *shape) float32.  labels: class id, number, or None where unlabelled.  ids: names of the
    rows, no two alike; without a column of names their numbers in the file; of an image the name of
    its file, after that of its folder only where two are alike.  notes: what a person should know
    of them, in sentences.  originals: the files of images that ``shown`` names.
    """

    x: Tensor
    labels: tuple[float | None, ...]
    ids: tuple[str, ...]
    shown: Callable[[int], Shown]
    notes: tuple[str, ...] = ()
    originals: Originals | None = None

    def content(self, row: int) -> bytes | None:
        """The file of a row's image, None for a row without one; ValueError where it is gone,
        leads out of its folder, or is another one than when the site was started."""
        if self.originals is not None:
            return self.originals.read(row)
        file = self.shown(row)
        return read_inside(file, file.parent) if isinstance(file, Path) else None

    @property
    def labelled(self) -> int:
        return sum(label is not None for label in self.labels)


def read_rows(path: str | Path, schema: Schema, drop_rows: bool = False) -> SiteRows:
    """The rows in a site's file or folder; drop_rows: leave out those that lack a feature.

    A table may have its columns in any order, and no others than those that were agreed on.  An
    array file (.npz) holds x (n, *shape), y (n,), and perhaps ids (n,) and files (n,): texts, the
    images that people are shown for the rows, relative to it.  Raises ValueError that names the
    file, the column and the row.
    """
    file = Path(path)
    if not file.exists():
        raise ValueError(f"there is no file or folder {str(path)!r}; give the path of one")
    read, ends, wanted = KINDS[schema.kind]
    if file.is_dir() == bool(ends) or (ends and file.suffix.lower() not in ends):
        raise ValueError(
            f"{file} cannot be rows of this study, which are {wanted}; give such a one"
        )
    try:
        rows = read(file, schema, drop_rows)
    except OSError as error:
        raise ValueError(
            f"{file} cannot be read ({error.strerror}); make it readable"
        ) from error
    except ValueError as error:
        said = str(error)
        raise ValueError(said if file.name in said else f"{file.name}: {said}") from error
    name, times = Counter(rows.ids).most_common(1)[0] if rows.ids else ("", 0)
    if times > 1:
        raise ValueError(
            f"{file.name}: {times} rows are called {name!r}; give each its own name"
        )
    if len(rows.x) == 0:
        raise ValueError(f"{file.name} has no row without missing features; fill some in")
    return rows


def read_tests(path: str | Path, schema: Schema, drop_rows: bool = False) -> SiteRows:
    """Rows that models are tested on: as `read_rows`, each with its label."""
    rows = read_rows(path, schema, drop_rows)
    if bare := [
        row for row, label in zip(rows.ids, rows.labels, strict=True) if label is None
    ]:
        raise ValueError(
            f"{Path(path).name}: {len(bare)} test rows have no label, the first is {bare[0]!r}; "
            "label or remove them"
        )
    return rows


# -- tables ---------------------------------------------------------------------------------


def _table(file: Path, schema: Schema, drop_rows: bool) -> SiteRows:
    cells, notes = read_all_cells(file)
    _check_columns(cells, schema)
    n = len(next(iter(cells.values())))
    blank = [[cell.lower() in EMPTY for cell in cells[c.name]] for c in schema.columns]
    keep = [not any(row) for row in zip(*blank, strict=True)]
    if not all(keep):
        notes = (
            *notes,
            _missing(schema, blank, n - sum(keep), drop_rows),
        )
    rows = [row for row in range(n) if keep[row]]
    kept = {name: list(compress(column, keep)) for name, column in cells.items()}
    ids = kept[schema.ids] if schema.ids in kept else [str(row + 1) for row in rows]
    parts = [_features(column, kept[column.name], rows) for column in schema.columns]
    labels = _labels(schema, kept.get(schema.label, [""] * len(rows)), rows)

    def shown(row: int) -> Shown:
        return tuple((c.name, kept[c.name][row], c.unit) for c in schema.columns)

    notes += tuple(
        note for c in schema.columns if (note := _beyond(c, kept[c.name])) is not None
    )
    return SiteRows(torch.cat(parts, dim=1), labels, tuple(ids), shown, notes)


def _check_columns(cells: Columns, schema: Schema) -> None:
    agreed = [column.name for column in schema.columns]
    for name in agreed:
        if name not in cells:
            raise ValueError(
                f"the agreed column {name!r} is missing{nearest(name, list(cells))}"
            )
    for name in cells:
        if name not in (*agreed, schema.label, schema.ids):
            raise ValueError(
                f"column {name!r} was not agreed on; remove it (the label is {schema.label!r}, "
                f"names of rows stand in {schema.ids!r})"
            )


def _missing(schema: Schema, blank: list[list[bool]], rows: int, drop_rows: bool) -> str:
    """What is missing, as a note where such rows are left out; else ValueError."""
    if drop_rows:
        return f"rows with missing features left out: {rows}"
    where = ", ".join(
        f"{c.name!r} {sum(column)}"
        for c, column in zip(schema.columns, blank, strict=True)
        if any(column)
    )
    raise ValueError(
        f"{rows} rows have missing features ({where}); fill them in or remove the rows, or agree "
        "on drop_rows = true, with which every site leaves them out"
    )


def _features(column: Column, cells: list[str], rows: list[int]) -> Tensor:
    """(n, 1) numbers, or (n, values) of 0 and 1.  rows: where each cell stands in the file."""
    if column.values:
        for row, cell in zip(rows, cells, strict=True):
            if cell not in column.values:
                raise ValueError(
                    f"column {column.name!r}, row {row + 1}: {cell!r} is none of the agreed texts "
                    f"{', '.join(map(repr, column.values))}{_meant(cell, column.values)}"
                )
        index = torch.tensor(
            [column.values.index(cell) for cell in cells], dtype=torch.long
        )
        return torch.nn.functional.one_hot(index, len(column.values)).float()
    return torch.tensor(
        [_number(column, c, r) for c, r in zip(cells, rows, strict=True)],
        dtype=torch.float64,
    ).float()[:, None]


def _meant(cell: str, values: Sequence[str]) -> str:
    hint = nearest(cell, list(values))
    return hint if hint.startswith("; did") else ""


def _number(column: Column, cell: str, row: int) -> float:
    number = number_in(cell)
    if number is None or not abs(number) <= LARGEST:
        unit = f" in {column.unit}" if column.unit else ""
        comma = ", with a point and no comma" if "," in cell else ""
        raise ValueError(
            f"column {column.name!r}, row {row + 1}: {cell!r} is not a finite number; give "
            f"one{unit}{comma}"
        )
    return number


def _beyond(column: Column, cells: list[str]) -> str | None:
    """A sentence on numbers outside the agreed limits: most often another unit."""
    low = -math.inf if column.low is None else column.low
    high = math.inf if column.high is None else column.high
    if column.values or (low, high) == (-math.inf, math.inf):
        return None
    many = sum(not low <= float(cell) <= high for cell in cells)
    unit = f" {column.unit}" if column.unit else ""
    return (
        (
            f"column {column.name!r}: {many} of {len(cells)} numbers lie outside {low:g} to "
            f"{high:g}{unit}; check that they are in the agreed unit"
        )
        if many
        else None
    )


def _labels(
    schema: Schema, cells: Sequence[str], rows: Sequence[int]
) -> tuple[float | None, ...]:
    found: list[float | None] = []
    for row, cell in zip(rows, cells, strict=True):
        try:
            found.append(schema.value(cell) if cell else None)
        except ValueError as error:
            raise ValueError(f"row {row + 1}: {error}") from error
    return tuple(found)


# -- images and arrays ----------------------------------------------------------------------


def _images(folder: Path, schema: Schema, drop_rows: bool) -> SiteRows:
    found = read_pictures(folder, schema.shape[0])
    _check_shape(found.x, schema)
    for file, text in zip(found.files, found.labels, strict=True):
        if text and text not in schema.classes:
            raise ValueError(
                f"folder {file.parent} is none of the agreed classes "
                f"{', '.join(map(repr, schema.classes))}{_meant(text, schema.classes)}"
            )
    labels = tuple(schema.value(text) if text else None for text in found.labels)
    times = Counter(file.name for file in found.files)
    ids = tuple(
        f.name if times[f.name] == 1 else f.relative_to(folder).as_posix()
        for f in found.files
    )
    return SiteRows(
        found.x,
        labels,
        ids,
        shown=lambda row: found.files[row],
        originals=found.originals,
    )


def _arrays(file: Path, schema: Schema, drop_rows: bool) -> SiteRows:
    arrays = read_arrays(file)
    if "x" not in arrays:
        raise ValueError(f"there is no array 'x'{nearest('x', list(arrays))}")
    numbers, said = as_features(arrays["x"], file.name)
    x = torch.from_numpy(numbers)
    _check_shape(x, schema)
    texts = {
        name: [_text(value) for value in arrays[name].tolist()]
        for name in ("y", "ids", "files")
        if name in arrays
    }
    for name, column in texts.items():
        if len(column) != len(x):
            raise ValueError(
                f"{len(x)} rows in x and {len(column)} in {name}; give one a row"
            )
    whole = x.flatten(1).isfinite().all(1)
    notes = () if said is None else (said,)
    if missing := int((~whole).sum()):
        if not drop_rows:
            raise ValueError(
                f"{missing} rows have NaN or infinite features, the first is row "
                f"{int((~whole).int().argmax()) + 1}; correct them, or agree on drop_rows = true"
            )
        notes = (*notes, f"rows with NaN or infinite features left out: {missing}")
    rows = whole.nonzero().flatten().tolist()
    kept = {name: [column[row] for row in rows] for name, column in texts.items()}
    ids = tuple(kept.get("ids", [str(row + 1) for row in rows]))
    labels = _labels(schema, kept.get("y", [""] * len(rows)), rows)
    for name in kept.get("files", []):
        check_inside(file.parent / name, file.parent)

    def shown(row: int) -> Shown:
        if "files" in kept:
            return file.parent / str(kept["files"][row])
        numbers: list[float] = x[rows[row]].flatten().tolist()
        return tuple((f"x{i}", f"{number:g}", "") for i, number in enumerate(numbers))

    originals = None
    if "files" in kept:
        files = [file.parent / name for name in kept["files"]]
        originals = Originals.of(file.parent, files)
    return SiteRows(x[whole], labels, ids, shown, notes, originals)


def _check_shape(x: Tensor, schema: Schema) -> None:
    if tuple(x.shape[1:]) != schema.shape:
        raise ValueError(
            f"rows are {tuple(x.shape[1:])} and the agreed shape is {schema.shape}"
        )


def _text(value: Any) -> str:
    """A label or a name as text: "" where it is NaN."""
    return "" if isinstance(value, float) and math.isnan(value) else str(value)


KINDS: dict[str, tuple[Callable[[Path, Schema, bool], SiteRows], tuple[str, ...], str]] = {
    "table": (_table, TABLES, "a table, .csv or .parquet"),
    "images": (_images, (), "a folder of images in class/* and unlabelled/*"),
    "arrays": (_arrays, (".npz",), "arrays in a file .npz"),
}
"""How rows of each kind are read, how the names of their files end, and what they are."""
