"""Unlabeled examples, in the columns of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.missing import find_text_columns, name_buckets
from fallow.core.suggestions import nearest
from fallow.data.loaders.archive import read_arrays
from fallow.data.loaders.columns import hash_texts
from fallow.data.loaders.images import list_files, read_images
from fallow.data.loaders.pixels import as_features, bring_to_shape
from fallow.data.loaders.table import EMPTY, Columns, read_cells


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
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r}; give the path of one")
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
        return _read_npz(path, shape, ids)
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
    files = list_images(folder)
    channels: int | None = None
    size: tuple[int, int] | None = None
    if len(shape) == 3:
        channels = shape[0]
        size = (shape[1], shape[2])
    x = torch.from_numpy(read_images(files, channels, size))
    names = [file.relative_to(folder).as_posix() for file in files]
    return "file", names, x


def _read_npz(
    path: Path, shape: Sequence[int], ids: str
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Read the array ``x`` of a .npz file, named by its array ``ids`` if there is one."""
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise ValueError(f"{path.name} has no array 'x'{nearest('x', list(arrays))}")
    numbers, _ = as_features(bring_to_shape(arrays["x"], shape), path.name)
    x = torch.from_numpy(numbers)
    if "ids" not in arrays:
        return "row", None, x
    names = [str(name) for name in arrays["ids"].tolist()]
    if len(names) != len(x):
        raise ValueError(
            f"{path.name} has {len(x)} rows in x and {len(names)} in ids; give one ID per row"
        )
    return ids, names, x


def _read_table(
    path: Path, columns: Sequence[str], marked: Mapping[str, str], ids: str
) -> tuple[str, Sequence[object] | None, Tensor]:
    """Read the features of a table, (n, len(columns)), named by its column of IDs if there
    is one.
    """
    cells = read_cells(path)
    _check_levels(path, cells, columns)
    written = find_text_columns(columns)
    hashed = {feature for column in written for feature in name_buckets(column)}
    features = []  # (n,) each
    for name in columns:
        if name in hashed:
            continue
        if name in marked:
            features.append(_mark_empty(path, cells, marked[name]))
        else:
            features.append(_encode_column(path, cells, name))
    for column in written:  # whose features are the last
        if column not in cells:
            raise ValueError(
                f"{path.name} has no column {column!r}{nearest(column, list(cells))}"
            )
        texts = ["" if text.lower() in EMPTY else text for text in cells[column]]
        features += list(hash_texts(texts).T)
    x = torch.from_numpy(np.stack(features, axis=1))
    if ids in cells:
        return ids, cells[ids], x
    return "row", None, x


def list_images(folder: Path) -> list[Path]:
    """List all images below a folder, sorted by name."""
    if files := list_files(folder, "**/*"):
        return files
    raise ValueError(f"{folder} contains no images; give a folder that contains some")


def _check_levels(path: Path, cells: Columns, columns: Sequence[str]) -> None:
    """Raise ValueError for a text that did not occur in training."""
    known: dict[str, list[str]] = {}
    for column in columns:
        name, is_level, level = column.rpartition("=")
        if column not in cells and is_level and name in cells:
            known.setdefault(name, []).append(level)
    for name, levels in known.items():
        for row, cell in enumerate(cells[name]):
            if cell not in levels and cell.lower() not in EMPTY:
                raise ValueError(
                    f"{path.name}: column {name!r}, row {row + 1}: {cell!r} is none of the texts "
                    f"that the model was trained with: {', '.join(map(repr, levels))}"
                )


def _mark_empty(path: Path, cells: Columns, column: str) -> npt.NDArray[np.float32]:
    """Return (n,) 1 for an empty cell of the column, else 0."""
    if column not in cells:
        raise ValueError(
            f"{path.name} has no column {column!r}{nearest(column, list(cells))}"
        )
    is_empty = [cell.lower() in EMPTY for cell in cells[column]]
    return np.array(is_empty, dtype=np.float32)


def _encode_column(path: Path, cells: Columns, feature: str) -> npt.NDArray[np.float32]:
    """Return (n,) numbers, or 0 and 1 for a text; NaN for an empty cell."""
    if feature in cells:
        return _encode_numbers(path, feature, cells[feature])
    column, is_level, level = feature.rpartition("=")
    if is_level and column in cells:
        return _encode_level(cells[column], level)
    lacking = feature
    if is_level:
        lacking = column
    raise ValueError(
        f"{path.name} has no column {lacking!r}{nearest(lacking, list(cells))}"
    )


def _encode_numbers(
    path: Path, column: str, cells: Sequence[str]
) -> npt.NDArray[np.float32]:
    """Return (n,) the numbers in the cells of a column, NaN for an empty cell."""
    numbers = []
    for cell in cells:
        if cell.lower() in EMPTY:
            numbers.append(np.nan)
            continue
        try:
            numbers.append(float(cell))
        except ValueError as error:
            raise ValueError(
                f"{path.name}: column {column!r} contains a text: {error}"
            ) from error
    return np.array(numbers, dtype=np.float32)


def _encode_level(cells: Sequence[str], level: str) -> npt.NDArray[np.float32]:
    """Return (n,) 1 for cells with this text, 0 for another text, NaN for an empty cell."""
    is_level = np.array([cell == level for cell in cells], dtype=np.float32)
    is_empty = np.array([cell.lower() in EMPTY for cell in cells], dtype=np.bool_)
    is_level[is_empty] = np.nan
    return is_level
