"""Regression tables from the files of their sources, by the rules of a benchmark."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.core.suggestions import require_known
from fallow.data.catalog.files import Reader, read_arrays, table_with_test_rows, to_names
from fallow.data.dataset import Dataset
from fallow.data.loaders.text_rules import EMPTY
from fallow.data.reading import list_notes, note
from fallow_papers.datasets.formats import PublishedTable, one_hot, open_published
from fallow_papers.datasets.sources import SOURCES, TableSource


def published_reader(name: str, rows: int, columns: int, group: str = "") -> Reader:
    """Return a reader of a published table with the rows and columns of the paper.

    Rows with a missing value are left out, then constant columns. Texts become one-hot
    columns with an empty level "missing". ``notes`` lists the changes. Sites are called
    ``<group> <value>``.
    """
    source = SOURCES[name]

    def read(folder: Path | None) -> Dataset:
        path = _path(name, folder, source)
        with open_published(path, source) as cells:
            table = _read_table(path.name, cells, source)
        x, names, notes = _features(table)
        if x.shape != (rows, columns):
            notes = (
                *notes,
                f"{len(x)} rows and {x.shape[1]} columns, but the paper has {rows} and "
                f"{columns}",
            )
        z = {"X": x, "feature_names": np.array(names)}
        # sorted by length, so that numbers among texts are in numeric order
        sites = sorted(set(table.groups), key=lambda site: (len(site), site))
        if sites:
            number_of = {site: number for number, site in enumerate(sites)}
            z["client"] = np.array([number_of[site] for site in table.groups])
        y = np.frombuffer(table.y).astype(np.float32)
        site_names = tuple(f"{group} {site}" for site in sites)
        result = table_with_test_rows(name, z, y, classes=(), site_names=site_names)
        findings = (*list_notes(notes), *result.findings)
        return dataclasses.replace(result, findings=findings)

    return read


@final
@dataclass
class _Table:
    """Rows without missing values, while they are collected."""

    numeric: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]  # declared by the file
    numbers: array[float] = field(default_factory=lambda: array("d"))  # row after row
    y: array[float] = field(default_factory=lambda: array("d"))
    texts: dict[str, list[str]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    left_out: int = 0


def _path(name: str, folder: Path | None, source: TableSource) -> Path:
    """Return the published file, or the table unpacked from it."""
    where = "no data folder is set"
    if folder is not None:
        where = f"it is not in {folder}"
        for file in (source.file, source.member):
            if file and (folder / file).is_file():
                return folder / file
    raise ValueError(
        f"the file {source.file} is needed and {where}; run 'fallow datasets --fetch "
        f"{name}' with --data-dir or FALLOW_DATA, or download it from {source.page} and "
        "put it in that folder under this name"
    )


def _read_table(file: str, cells: PublishedTable, source: TableSource) -> _Table:
    header = cells.header
    grouping = []
    if source.group:
        grouping.append(source.group)
    for column in (source.target, *source.drop, *source.texts, *grouping):
        require_known(column, header, f"{file} has no column {column!r}")

    aside = {source.target, *source.drop, *grouping}
    textual: list[str] = []
    numeric: list[str] = []
    for column in header:
        if column in aside:
            continue
        if column in cells.levels or column in source.texts:
            textual.append(column)
        else:
            numeric.append(column)

    at = {column: position for position, column in enumerate(header)}
    at_numbers = [at[column] for column in (*numeric, source.target)]
    table = _Table(tuple(numeric), cells.levels, texts={column: [] for column in textual})
    for number, raw in enumerate(cells.rows, start=1):
        if len(raw) != len(header):
            raise ValueError(
                f"{file}: row {number} has {len(raw)} cells instead of {len(header)}; "
                "download it again"
            )
        values = _parse_numbers([raw[i] for i in at_numbers], f"{file}: row {number}")
        texts = [raw[at[column]].strip() for column in textual]
        if values is None or any(text.lower() in EMPTY for text in texts):
            table.left_out += 1
            continue
        table.numbers.extend(values[:-1])
        table.y.append(values[-1])
        for column, text in zip(textual, texts, strict=True):
            table.texts[column].append(text)
        table.groups += [raw[at[column]].strip() for column in grouping]
    if not table.y:
        raise ValueError(f"{file} has no row without missing values; download it again")
    return table


def _parse_numbers(cells: Sequence[str], where: str) -> list[float] | None:
    """Return the cells as numbers, or None if one is missing."""
    try:
        values = list(map(float, cells))
    except ValueError as error:
        if any(cell.strip().lower() in EMPTY for cell in cells):
            return None
        raise ValueError(f"{where} contains a text ({error})") from error
    if any(math.isnan(value) for value in values):
        return None
    return values


def _features(
    table: _Table,
) -> tuple[npt.NDArray[np.float32], tuple[str, ...], tuple[str, ...]]:
    """Return features, their names and notes: numbers first, then texts as one-hot columns."""
    x = np.frombuffer(table.numbers).reshape(len(table.y), -1).astype(np.float32)
    is_constant = x.min(0) == x.max(0)
    blocks = [x[:, ~is_constant]]
    names: list[str] = []
    constant: list[str] = []
    for column, is_left_out in zip(table.numeric, is_constant, strict=True):
        if is_left_out:
            constant.append(column)
        else:
            names.append(column)
    for column, values in table.texts.items():
        occurring, codes = np.unique(values, return_inverse=True)
        if len(occurring) == 1:
            constant.append(column)
            continue
        levels = list(table.levels.get(column, ()))  # as declared by the file
        levels += [str(text) for text in occurring if text not in levels]
        number_of = {level: number for number, level in enumerate(levels)}
        of_occurring = np.array([number_of[str(level)] for level in occurring])
        block, columns = one_hot(column, of_occurring[codes], levels)
        blocks.append(block)
        names += columns
    notes = []
    if table.left_out:
        notes.append(f"rows with a missing value left out: {table.left_out}")
    if constant:
        notes.append(f"constant columns left out: {', '.join(constant)}")
    return np.hstack(blocks), tuple(names), tuple(notes)


def table_reader(name: str, file: str, group: str = "") -> Reader:
    """Return a reader of a regression table (X, y); sites are called ``<group> <id>`` or as
    in the file.
    """

    def read(folder: Path | None) -> Dataset:
        z = read_arrays(folder, file)
        names: tuple[str, ...] = ()
        if "client_names" in z:
            names = to_names(z["client_names"])
        elif "client" in z:
            sites = int(z["client"].max()) + 1
            names = tuple(f"{group} {site}" for site in range(sites))
        if "y" in z:
            target = z["y"]
        else:  # SARCOS: the first of 7 torques
            target = z["Y"][:, 0]
        return table_with_test_rows(
            name, z, target.astype(np.float32), classes=(), site_names=names
        )

    return read


GRADED = ("cut", "color", "clarity")  # 5, 7 and 8 levels


def read_diamonds_onehot(folder: Path | None) -> Dataset:
    """Read Diamonds in 29 columns: 6 numbers, then the levels of each grade and an empty
    "missing".

    The 29 columns have rank 24, also with an intercept.  3 columns are 0, and the levels of
    each of the 3 grades sum to 1.
    """
    z = read_arrays(folder, "tab_diamonds.npz")
    header = list(to_names(z["feature_names"]))
    numbers = [column for column in header if column not in GRADED]
    at_numbers = [header.index(column) for column in numbers]
    blocks = [z["X"][:, at_numbers]]  # (n, 6), then one per grade
    names = list(numbers)
    for column in GRADED:
        codes = z["X"][:, header.index(column)].astype(np.int64)
        block, columns = one_hot(column, codes, to_names(z[f"{column}_levels"]))
        blocks.append(block)
        names += columns
    table = {"X": np.hstack(blocks), "feature_names": np.array(names)}
    diamonds_onehot = table_with_test_rows(
        "diamonds_onehot", table, z["y"], classes=(), site_names=()
    )
    sentence = (
        f"{', '.join(GRADED)} became {len(names) - len(numbers)} one-hot columns, of "
        "which the 3 for missing values are all 0; the 29 columns have rank 24, also "
        "with an intercept"
    )
    return diamonds_onehot.with_findings(note(sentence))
