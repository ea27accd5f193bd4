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
FILE_COLUMNS = (
    *(FILE, "filename", "file_name", "path"),
    *("image", "image_id", "image_name", "isic_id"),
)
TARGET = "target"
LABEL_COLUMNS = (TARGET, "label", "class", "dx", "diagnosis")
"""Columns, in lower case, of a table that lists images."""
FEWEST_CLASSES = 2
Files = Mapping[str, Path | None]
"""Images by their names without suffix, None for a name of several."""
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

    def take(self, lines: Sequence[int]) -> Listed:
        """Return the images in these lines of the table, in this order."""
        targets = self.targets
        if targets is not None:
            targets = targets[list(lines)]
        return replace(
            self,
            files=[self.files[line] for line in lines],
            names=_take(self.names, lines) or (),
            labels=_take(self.labels, lines) or (),
            targets=targets,
            sites=_take(self.sites, lines),
            groups=_take(self.groups, lines),
        )


def _take(texts: tuple[str, ...] | None, lines: Sequence[int]) -> tuple[str, ...] | None:
    """Return the texts of some lines, or the argument if there are none."""
    if not texts:
        return texts
    return tuple(texts[line] for line in lines)


def read_list(
    folder: Path, group: str | None = None, label: str | None = None
) -> Listed | None:
    """Read the table in the folder that lists its images, or return None without one.

    A table without labels may have a column of 0 and 1 for each class, as those of ISIC.

    group: column with the group of an image.  label: column with its class; None: one of
    `LABEL_COLUMNS`.  Raises ValueError for a file that is not there or that is listed twice.
    """
    from fallow.data.loaders.table_files import read_file

    tables = list_files(folder, "*.csv")
    if not tables:
        return None
    by_stem: dict[str, Path | None] = {}  # None for a name of several files
    for file in (*list_files(folder, "*"), *list_files(folder, "*/*")):
        if _is_image(file):
            by_stem[file.stem] = None if file.stem in by_stem else file
    labels = LABEL_COLUMNS if label is None else (label.lower(),)
    read = [(file, _join_classes(read_file(file), labels)) for file in tables]
    listed = [pair for pair in read if _lists_images(pair[1], folder, by_stem, labels)]
    if len(listed) > 1:
        raise ValueError(
            f"{folder} has {len(listed)} tables with files and targets, {listed[0][0].name} "
            f"and {listed[1][0].name}; keep one"
        )
    if not listed:
        return None
    file, table = listed[0]
    return _read_columns(folder, file, table, by_stem, labels, group)


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_FILES


def _find_column(columns: Iterable[str], known: Sequence[str]) -> str | None:
    """Return the column with the first of the names, in any case, or None."""
    named = {name.lower(): name for name in reversed([*columns])}
    return next((named[name] for name in known if name in named), None)


def _lists_images(
    table: Table, folder: Path, by_stem: Files, labels: Sequence[str]
) -> bool:
    """Return whether a table has the columns of a list, and files of the folder in it."""
    column = _find_column(table.columns, FILE_COLUMNS)
    if column is None or _find_column(table.columns, labels) is None:
        return False
    if column == FILE:
        return True
    return _find_file(folder, table.texts(column)[0], by_stem, table.name).is_file()


def _join_classes(table: Table, labels: Sequence[str]) -> Table:
    """Return a table with a column of labels, instead of one of 0 and 1 for each class."""
    column = _find_column(table.columns, FILE_COLUMNS)
    if column is None or _find_column(table.columns, labels) is not None:
        return table
    classes = [name for name in table.columns if name != column]
    numbers = [table.numbers(name) for name in classes]
    if len(classes) < FEWEST_CLASSES or any(values is None for values in numbers):
        return table
    shares = np.array(numbers)  # (classes, n)
    if not np.isin(shares, (0.0, 1.0)).all() or not (shares.sum(0) == 1).all():
        return table
    import pyarrow as pa

    names = np.array(classes)[shares.argmax(0)]
    joined = pa.chunked_array([pa.array(names.tolist(), pa.string())])
    return replace(table, columns={column: table.columns[column], labels[-1]: joined})


def _find_file(folder: Path, name: str, by_stem: Files, table: str) -> Path:
    """Return the file of a name, which may lack its suffix and its folder."""
    if name not in by_stem:
        beside = folder / name
        elsewhere = by_stem.get(Path(name).stem)
        if elsewhere is None or elsewhere.name != name or beside.is_file():
            return beside
        return elsewhere
    file = by_stem[name]
    if file is None:
        raise ValueError(
            f"{table} lists {name!r}, and several images have that name; give their paths"
        )
    return file


def _read_columns(
    folder: Path,
    file: Path,
    table: Table,
    by_stem: Files,
    labels_in: Sequence[str],
    group: str | None,
) -> Listed:
    from fallow.data.loaders.table import suggest_groups

    file_column = _find_column(table.columns, FILE_COLUMNS)
    label = _find_column(table.columns, labels_in)
    assert file_column is not None and label is not None  # noqa: S101 - the table has both
    names = tuple(table.texts(file_column))
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{file} lists {twice[0]!r} more than once; leave one line")
    files = [_find_file(folder, name, by_stem, table.name) for name in names]
    for name, image in zip(names, files, strict=True):
        is_inside = image.resolve().is_relative_to(folder.resolve())
        if not name or not is_inside or not image.is_file():
            raise ValueError(
                f"{file} lists {name!r}, and {folder} has no such file; give paths below the folder"
            )
    targets = None
    if label == TARGET and labels_in == LABEL_COLUMNS:
        targets = table.numbers(label)
    labels: tuple[str, ...] = ()
    if targets is None:
        labels = tuple(table.plain_texts(label))
        _check_labels(labels, label, file)
    elif np.isin(targets[~np.isnan(targets)], (0.0, 1.0)).all():  # as in ISIC 2020
        labels = tuple("" if np.isnan(number) else f"{number:g}" for number in targets)
        targets = None
    words = "labels" if targets is None else "regression targets"
    findings = [note(f"{words} were read from {file.name}")]
    findings += [replace(one, fix=IN_LIST) for one in table.marks.warn_of_doubt(file.name)]
    known = {file_column, label, "site", group}
    others = [column for column in table.columns if column not in known]
    if group is None:
        findings += suggest_groups({name: table.columns[name] for name in others})
    if others:
        findings.append(
            note(f"{file.name}: the columns {join_some(others)} were not read", "group=")
        )
    n_unlisted = len({*filter(None, by_stem.values())} - {*files})
    if n_unlisted:
        images = count_noun(n_unlisted, "image")
        findings.append(
            warning(f"{images} left out, because {file.name} does not list them")
        )
    sites = None
    if "site" in table.columns:
        sites = tuple(table.texts("site"))
    groups = None
    if group in table.columns:
        groups = tuple(table.texts(group))
    return Listed(
        table=file,
        files=files,
        names=names,
        labels=labels,
        targets=targets,
        sites=sites,
        groups=groups,
        findings=tuple(findings),
    )


def _check_labels(labels: Sequence[str], column: str, table: Path) -> None:
    """Raise ValueError if targets are numbers and texts."""
    are_numbers = {number_in(label) is not None for label in labels if label}
    if column == TARGET and len(are_numbers) > 1:
        raise ValueError(
            f"{table}: in the column {column!r}, some labels are numbers and others texts; give "
            "numbers for regression, or names of classes in a column label"
        )
