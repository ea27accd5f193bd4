"""Rows without labels, in the columns a model was trained on."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fallow.core.build import nearest
from fallow.data.own_images import images_below, read_images
from fallow.data.own_table import EMPTY, Columns, read_cells


def read_rows(path: Path, columns: Sequence[str], shape: Sequence[int]) -> Tensor:
    """Features of a .csv, .parquet or .npz file, or of all images below a folder, as (n, *shape)
    float32.

    columns: the features of the trained model, ``name=level`` for a text column; other columns of
    the file (labels, names) are left aside.  Raises ValueError that names a missing column, a cell
    that is no finite number or a text the model does not know, or a shape that differs.
    """
    if not path.exists():
        raise ValueError(f"there is no file {str(path)!r}; give the path of one")
    if path.is_dir():
        x = torch.from_numpy(read_images(image_files(path), shape[0] if len(shape) == 3 else None))
    elif path.suffix.lower() == ".npz":
        arrays = read_arrays(path)
        if "x" not in arrays:
            raise ValueError(f"{path.name} has no array 'x'{nearest('x', list(arrays))}")
        x = torch.from_numpy(arrays["x"].astype(np.float32))
    else:
        if not columns:
            raise ValueError(
                f"the model was not trained on a table; give {path.stem}.npz with x, or a folder "
                "of images"
            )
        cells = read_cells(path)
        _check_levels(path, cells, columns)
        x = torch.from_numpy(np.stack([_column(path, cells, c) for c in columns], axis=1))
    if tuple(x.shape[1:]) != tuple(shape):
        raise ValueError(
            f"{path.name} has rows of shape {tuple(x.shape[1:])}, the model takes {tuple(shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{path.name} has NaN or infinite features; fill them in")
    return x


def row_names(path: Path, count: int) -> tuple[str, Sequence[object]]:
    """What the rows of `read_rows` are called, and by what: the files of images, the column ``id``
    of a table, else numbers from 0."""
    if path.is_dir():
        return "file", [file.relative_to(path).as_posix() for file in image_files(path)]
    if path.suffix.lower() != ".npz" and "id" in (cells := read_cells(path)):
        return "id", cells["id"]
    return "row", range(count)


def image_files(folder: Path) -> list[Path]:
    """All images below a folder, in the order of their names."""
    if files := images_below(folder, "**/*"):
        return files
    raise ValueError(f"{folder} holds no images")


def read_arrays(path: Path) -> dict[str, Any]:
    """All arrays of a .npz file, by name.  Raises ValueError when it is no such file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise ValueError(f"{path} could not be read as .npz without pickles: {error}") from error


def _check_levels(path: Path, cells: Columns, columns: Sequence[str]) -> None:
    """Raise ValueError for a text that the model was not trained with."""
    known: dict[str, list[str]] = {}
    for column in columns:
        name, is_level, level = column.rpartition("=")
        if column not in cells and is_level and name in cells:
            known.setdefault(name, []).append(level)
    for name, levels in known.items():
        for row, cell in enumerate(cells[name]):
            if cell not in levels:
                raise ValueError(
                    f"{path.name}: column {name!r}, row {row + 1}: {cell!r} is none of the texts "
                    f"that the model was trained with: {', '.join(map(repr, levels))}"
                )


def _column(path: Path, cells: Columns, column: str) -> npt.NDArray[np.float32]:
    name, is_level, level = column.rpartition("=")
    if column not in cells and is_level and name in cells:
        return np.array([cell == level for cell in cells[name]], dtype=np.float32)
    if column not in cells:
        lacking = name if is_level else column
        raise ValueError(f"{path.name} has no column {lacking!r}{nearest(lacking, list(cells))}")
    if missing := sum(cell.lower() in EMPTY for cell in cells[column]):
        raise ValueError(
            f"{path.name}: column {column!r} has {missing} missing values; fill them in"
        )
    try:
        return np.array([float(cell) for cell in cells[column]], dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{path.name}: column {column!r} holds a text: {error}") from error
