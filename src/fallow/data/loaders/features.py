"""Unlabeled examples, in the columns of a trained model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.missing import BUCKETS, find_text_columns, name_buckets
from fallow.core.suggestions import require_known
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.columns import hash_texts
from fallow.data.loaders.images import list_files, read_images
from fallow.data.loaders.pixels import as_features, bring_to_shape
from fallow.data.loaders.table_files import (
    EMPTY,
    ColumnCells,
    Numbers,
    ReadTable,
    cells_of_frame,
    number_in,
    read_file,
)
from fallow.storage.files import find_existing

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


@final
@dataclass(frozen=True, eq=False)
class NewRows:
    """Examples to predict.

    x: (n, *shape) float32. whole: (n,) bool, False for an example with a missing feature.
    names: identifiers in ``named_by``: the files of images, the column of IDs of a table,
    or numbers from 0.
    """

    x: Tensor
    whole: Tensor
    named_by: str
    names: Sequence[object]


def read_rows(
    path: Path,
    columns: Sequence[str],
    shape: Sequence[int],
    marks: Sequence[Sequence[str]] | None = None,
    ids: str = "id",
) -> NewRows:
    """Read the examples of a table, a .npz file, or all images below a folder.

    columns: features of the trained model, ``name=level`` for a text column; other columns
    of the file (labels, names) are ignored. An empty cell or NaN is a missing feature.
    marks: indicator features of empty cells, with their columns, if the model was trained
    with empty cells and imputes them; None otherwise. ids: the column of IDs of a table; a
    .npz file has them in the array ``ids``. Raises ValueError for a missing column, a cell
    that is not a finite number or a known text, a different shape, and if every example has
    a missing feature.
    """
    find_existing(path)
    marked = {mark[0]: mark[1] for mark in marks or ()}
    named_by, names, x = _read(path, columns, shape, marked, ids)
    if tuple(x.shape[1:]) != tuple(shape):
        raise ValueError(
            f"{path.name} has rows of shape {tuple(x.shape[1:])}, and the model needs "
            f"{tuple(shape)}"
        )
    if bool(torch.isinf(x).any()):
        raise ValueError(f"{path.name} has infinite features; correct them")
    whole = ~torch.isnan(x).flatten(1).any(1)
    if marks is not None:  # the model imputes missing values
        whole[:] = True
    if not bool(whole.any()):
        raise ValueError(f"{path.name} has no row without missing features; fill some in")
    if names is None:
        names = range(len(x))
    return NewRows(x, whole, named_by, names)


def _read(
    path: Path,
    columns: Sequence[str],
    shape: Sequence[int],
    marked: Mapping[str, str],
    ids: str,
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Return the kind of names of examples, the names (None: numbers), and the examples."""
    if path.is_dir():
        return _read_images(path, shape)
    if path.suffix.lower() == ".npz":
        rows = read_array_rows(path, shape, "ids")
        if "ids" not in rows.texts:
            return "row", None, rows.x
        return ids, rows.texts["ids"], rows.x
    if not columns:
        raise ValueError(
            f"the model was not trained on a table; give {path.stem}.npz with x, or a "
            "folder of images"
        )
    return _read_table(path, columns, marked, ids)


def _read_images(
    folder: Path, shape: Sequence[int]
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Read all images below a folder in the shape (channels, height, width) of the model."""
    files = list_files(folder, "**/*")
    if not files:
        raise ValueError(f"{folder} contains no images; give a folder that contains some")
    channels: int | None = None
    size: tuple[int, int] | None = None
    if len(shape) == 3:
        channels = shape[0]
        size = (shape[1], shape[2])
    x = torch.from_numpy(read_images(files, channels, size).x)
    names = [file.relative_to(folder).as_posix() for file in files]
    return "file", names, x


class ArrayRows(NamedTuple):
    """Examples of a .npz file."""

    x: Tensor  # (n, *shape) float32
    texts: dict[str, list[str]]  # arrays with one value per example, "" for NaN
    note: str | None  # on the conversion of x
    arrays: dict[str, npt.NDArray[Any]]


def read_array_rows(path: Path, shape: Sequence[int], *names: str) -> ArrayRows:
    """Read the array ``x`` of a .npz file, and those of ``names`` that it has.

    shape: of an example as the model takes it. Raises ValueError for a file without x, and
    for arrays of another length.
    """
    arrays = read_arrays(path)
    require_known("x", arrays, f"{path.name} has no array 'x'")
    numbers, note = as_features(bring_to_shape(arrays["x"], shape), path.name)
    texts: dict[str, list[str]] = {}
    for name in names:
        if name not in arrays:
            continue
        texts[name] = [text_of(value) for value in arrays[name].tolist()]
        if len(texts[name]) != len(numbers):
            raise ValueError(
                f"{path.name}: {len(numbers)} rows in x and {len(texts[name])} in {name}; "
                "give one per row"
            )
    return ArrayRows(torch.from_numpy(numbers), texts, note, arrays)


def text_of(value: object) -> str:
    """Return a label or name as text, "" for NaN."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return str(value)


def _read_table(
    path: Path, columns: Sequence[str], marked: Mapping[str, str], ids: str
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Read the features of a table, (n, len(columns)), named by its column of IDs if there
    is one.
    """
    read = read_file(path, lambda name: name == ids or name not in columns)
    features = _encode_features(read, path.name, columns, marked)
    x = torch.from_numpy(features)
    if ids in read.columns:
        return ids, read.columns[ids].texts, x
    return "row", None, x


def read_features(
    df: IntoDataFrame,
    columns: Sequence[str],
    name: str = "frame",
    marks: Sequence[Sequence[str]] = (),
) -> Numbers:
    """Return the features on which a model was trained: (n, d); NaN for missing values.

    columns: names of features, ``column=level`` for one level of a text column.  Other columns are
    ignored.  marks: indicator features of empty cells, with their columns.  Raises ValueError for a
    missing column and for text that the model does not know.
    """
    read = cells_of_frame(df, name, lambda column: column not in columns)
    return _encode_features(read, name, columns, {mark[0]: mark[1] for mark in marks})


def _encode_features(
    read: ReadTable, name: str, columns: Sequence[str], marked: Mapping[str, str]
) -> Numbers:
    """Return the features (n, len(columns)) of a table, NaN for empty cells."""
    cells = read.columns
    written = find_text_columns(columns)
    hashed = {feature for column in written for feature in name_buckets(column)}
    levels_of: dict[str, dict[str, int]] = {}  # column -> level -> index of the feature
    features = np.empty((read.rows, len(columns)), dtype=np.float32)
    for index, feature in enumerate(columns):
        if feature in hashed:
            continue
        if feature in marked:
            cells_marked = _find_column(cells, marked[feature], name)
            features[:, index] = _find_empty(cells_marked)
        elif feature in cells or "=" not in feature:
            cells_of_feature = _find_column(cells, feature, name)
            features[:, index] = _encode_numbers(cells_of_feature, feature, name)
        else:
            column, level = _split_level(feature, cells)
            levels_of.setdefault(column, {})[level] = index
    for column, levels in levels_of.items():
        texts = _find_column(cells, column, name).texts or ()
        indices = list(levels.values())
        features[:, indices] = _encode_texts(texts, column, list(levels), name)
    for number, column in enumerate(written):  # whose features are the last
        texts = _find_column(cells, column, name).texts or ()
        plain = ["" if text.lower() in EMPTY else text for text in texts]
        first = len(columns) - (len(written) - number) * BUCKETS
        hash_texts(plain, features[:, first : first + BUCKETS])
    return features


def _split_level(feature: str, cells: Mapping[str, ColumnCells]) -> tuple[str, str]:
    """Return the column and the level of a feature ``column=level``.

    Both may contain "=", as in ``age=>=65``. The longest column of the table decides.
    """
    ends = [at for at, letter in enumerate(feature) if letter == "="]
    known = [at for at in ends if feature[:at] in cells]
    at = known[-1] if known else ends[0]
    return feature[:at], feature[at + 1 :]


def _find_column(cells: Mapping[str, ColumnCells], column: str, name: str) -> ColumnCells:
    require_known(column, cells, f"{name} has no column {column!r}")
    return cells[column]


def _find_empty(cells: ColumnCells) -> npt.NDArray[np.bool_]:
    """Return which cells are empty: (n,)."""
    if cells.numbers is not None:
        return np.isnan(cells.numbers)
    return np.array([text.lower() in EMPTY for text in cells.texts or ()], dtype=np.bool_)


def _encode_numbers(cells: ColumnCells, column: str, name: str) -> Numbers:
    """Return the numbers in a column (n,), NaN for an empty cell."""
    if cells.numbers is not None:
        return cells.numbers
    numbers = np.full(len(cells), np.nan)
    for row, text in enumerate(cells.texts or ()):
        number = number_in(text)
        if number is not None:
            numbers[row] = number
        elif text.lower() not in EMPTY:
            raise ValueError(
                f"{name}: column {column!r}, row {row + 1}: {text!r} is a text, and the model "
                "was trained on numbers"
            )
    with np.errstate(over="ignore"):  # beyond 3.4e38 is infinite
        return numbers.astype(np.float32)


def _encode_texts(
    texts: Sequence[str], column: str, levels: Sequence[str], name: str
) -> Numbers:
    def explain(row: int) -> str:
        return (
            f"{name}: column {column!r}, row {row + 1}: {texts[row]!r} is not one of the texts "
            f"that the model was trained with: {', '.join(map(repr, levels))}"
        )

    return encode_levels(texts, levels, explain)


def encode_levels(
    texts: Sequence[str], levels: Sequence[str], explain: Callable[[int], str]
) -> Numbers:
    """Return (n, levels) 1 for cells with a text, else 0; NaN for empty cells.

    Raises ValueError with the sentence of ``explain`` for the first row with another text.
    """
    code_of = {level: code for code, level in enumerate(levels)}
    block = np.zeros((len(texts), len(levels)), dtype=np.float32)
    for row, text in enumerate(texts):
        if text in code_of:
            block[row, code_of[text]] = 1
        elif text.lower() in EMPTY:
            block[row] = np.nan
        else:
            raise ValueError(explain(row))
    return block
