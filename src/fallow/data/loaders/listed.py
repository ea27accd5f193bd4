"""Table in a folder of images that lists them with their classes or targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from fallow.core.wording import count_noun, join_some
from fallow.data.loaders.folders import IMAGE_FILES, list_files
from fallow.data.loaders.text_rules import number_in
from fallow.data.reading import Finding, note, warning

if TYPE_CHECKING:
    from fallow.data.loaders.table_files import Table

FILE = "file"
FILE_COLUMNS = (FILE, "filename", "file_name", "image", "image_id", "path")
LABEL_COLUMNS = ("target", "label", "class")
"""Columns, in lower case, of a table that lists images."""
IN_LIST = "write numbers with a decimal point"


@final
@dataclass(frozen=True)
class Listed:
    """Images in a table.

    Attributes
    ----------
    table : Path
        The table.
    files : list of Path
        File of each image.
    names : tuple of str
        Names of the files in the table.
    labels : tuple of str
        Class of each image, "" for unlabeled; empty for targets.
    targets : array of shape (n,), optional
        Regression targets, NaN for unlabeled images.
    sites : tuple of str, optional
        Site of each image.
    groups : tuple of str, optional
        Group of each image, in the column that the user named.
    findings : tuple of Finding
        Choices and possible errors.
    """

    table: Path
    files: list[Path]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    targets: npt.NDArray[np.float64] | None
    sites: tuple[str, ...] | None
    groups: tuple[str, ...] | None
    findings: tuple[Finding, ...]


def read_list(folder: Path, group: str | None = None) -> Listed | None:
    """Read the table in the folder that lists its images, or return None without one.

    group: column with the group of an image.  Raises ValueError for a file that is not there or
    that is listed twice.
    """
    from fallow.data.loaders.table_files import read_file

    tables = list_files(folder, "*.csv")
    if not tables:
        return None
    by_stem = {file.stem: file for file in list_files(folder, "*") if _is_image(file)}
    listed = [
        (file, table)
        for file, table in ((file, read_file(file)) for file in tables)
        if _lists_images(table, folder, by_stem)
    ]
    if len(listed) > 1:
        raise ValueError(
            f"{folder} has {len(listed)} tables with files and targets, {listed[0][0].name} "
            f"and {listed[1][0].name}; keep one"
        )
    if not listed:
        return None
    file, table = listed[0]
    return _read_columns(folder, file, table, by_stem, group)


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_FILES


def _find_column(columns: Iterable[str], known: Sequence[str]) -> str | None:
    """Return the first column with one of the names, in any case, or None."""
    return next((name for name in columns if name.lower() in known), None)


def _lists_images(table: Table, folder: Path, by_stem: Mapping[str, Path]) -> bool:
    """Return whether a table has the columns of a list, and files of the folder in it."""
    column = _find_column(table.columns, FILE_COLUMNS)
    if column is None or _find_column(table.columns, LABEL_COLUMNS) is None:
        return False
    return column == FILE or _find_file(folder, table.texts(column)[0], by_stem).is_file()


def _find_file(folder: Path, name: str, by_stem: Mapping[str, Path]) -> Path:
    """Return the file of a name, which may lack its suffix."""
    return by_stem.get(name, folder / name)


def _read_columns(
    folder: Path, file: Path, table: Table, by_stem: Mapping[str, Path], group: str | None
) -> Listed:
    file_column = _find_column(table.columns, FILE_COLUMNS)
    label = _find_column(table.columns, LABEL_COLUMNS)
    assert file_column is not None and label is not None  # noqa: S101 - the table has both
    names = tuple(table.texts(file_column))
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{file} lists {twice[0]!r} more than once; leave one line")
    files = [_find_file(folder, name, by_stem) for name in names]
    for name, image in zip(names, files, strict=True):
        is_inside = image.resolve().is_relative_to(folder.resolve())
        if not name or not is_inside or not image.is_file():
            raise ValueError(
                f"{file} lists {name!r}, and {folder} has no such file; give paths below the folder"
            )
    targets = table.numbers(label) if label == "target" else None
    labels: tuple[str, ...] = ()
    if targets is None:
        labels = tuple(table.texts(label))
        _check_labels(labels, label, file)
    words = "labels" if targets is None else "regression targets"
    findings = [note(f"{words} were read from {file.name}")]
    findings += [replace(one, fix=IN_LIST) for one in table.marks.warn_of_doubt(file.name)]
    known = {file_column, label, "site", group}
    others = [column for column in table.columns if column not in known]
    if others:
        findings.append(
            note(f"{file.name}: the columns {join_some(others)} were not read", "group=")
        )
    n_unlisted = len({*by_stem.values()} - {*files})
    if n_unlisted:
        images = count_noun(n_unlisted, "image")
        findings.append(
            warning(f"{images} left out, because {file.name} does not list them")
        )
    return Listed(
        table=file,
        files=files,
        names=names,
        labels=labels,
        targets=targets,
        sites=tuple(table.texts("site")) if "site" in table.columns else None,
        groups=tuple(table.texts(group)) if group in table.columns else None,
        findings=tuple(findings),
    )


def _check_labels(labels: Sequence[str], column: str, table: Path) -> None:
    """Raise ValueError if targets are numbers and texts."""
    are_numbers = {number_in(label) is not None for label in labels if label}
    if column == "target" and len(are_numbers) > 1:
        raise ValueError(
            f"{table}: in the column {column!r}, some labels are numbers and others texts; give "
            "numbers for regression, or names of classes in a column label"
        )
