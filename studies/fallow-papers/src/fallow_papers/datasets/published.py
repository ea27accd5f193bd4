"""Regression tables from the files of their sources, by the rules of a benchmark."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np
import numpy.typing as npt

from fallow.catalog import DataFiles
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import require_known
from fallow.data.catalog.files import table_with_test_rows
from fallow.data.dataset import Dataset
from fallow.data.reading import list_notes
from fallow_papers.datasets.formats import PublishedTable, one_hot, open_published
from fallow_papers.datasets.sources import SOURCES, TableSource

EMPTY = frozenset(("", "?", "na", "nan", "null", "none"))
"""Cells without a value, in lower case."""


def read_published(files: DataFiles) -> Dataset:
    """Read a published table.

    Constant columns are left out, and rows with a missing value, unless the source keeps them.
    Texts become numbers, or one-hot columns with an empty level "missing". ``notes`` lists the
    changes. Sites are called like their value, numbers with the kind of site.
    """
    entry = files.entry
    source = SOURCES[entry.name]
    with open_published(files, source) as cells:
        table = _read_table(files.edition.files[0].name, cells, source)
    x, names, notes = _features(table, source)
    z = {"X": x, "feature_names": np.array(names)}
    sites = sorted(set(table.sites), key=_order_site)
    if sites:
        number_of = {site: number for number, site in enumerate(sites)}
        z["client"] = np.array([number_of[site] for site in table.sites])
    site_names = [f"{entry.sites} {site}" if site.isdigit() else site for site in sites]
    y = np.frombuffer(table.y).astype(np.float32)
    result = table_with_test_rows(
        entry.name, z, y, classes=(), site_names=tuple(site_names)
    )
    shape = (len(y), result.x.shape[1])
    expected = (entry.rows, *entry.shape)
    if shape != expected:
        notes.append(
            f"{shape[0]} rows and {shape[1]} columns, but the published table has "
            f"{expected[0]} and {expected[1]}"
        )
    if source.note:
        notes.append(source.note)
    findings = (*list_notes(notes), *result.findings)
    return dataclasses.replace(result, findings=findings)


def _order_site(site: str) -> tuple[bool, int, str]:
    """Sort numbers by value, before texts."""
    if site.isdigit():
        return False, int(site), site
    return True, 0, site


@final
@dataclass
class _Table:
    """Rows without missing values, while they are collected."""

    numeric: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]  # declared by the file
    numbers: array[float] = field(default_factory=lambda: array("d"))  # row after row
    y: array[float] = field(default_factory=lambda: array("d"))
    texts: dict[str, list[str]] = field(default_factory=dict)
    sites: list[str] = field(default_factory=list)
    left_out: int = 0


def _read_table(file: str, cells: PublishedTable, source: TableSource) -> _Table:
    header = cells.header
    levels = {**cells.levels, **dict(source.levels)}
    converted = dict(source.convert)
    site = [source.site] if source.site else []
    for column in (source.target, *source.drop, *source.texts, *levels, *converted, *site):
        require_known(column, header, f"{file} has no column {column!r}")

    aside = {source.target, *source.drop, *site}
    graded = {column for column, _ in source.levels} - set(source.texts)
    textual: list[str] = []
    numeric: list[str] = []
    for column in header:
        if column in aside:
            continue
        if (column in levels and column not in graded) or column in source.texts:
            textual.append(column)
        else:
            numeric.append(column)

    at = {column: position for position, column in enumerate(header)}
    at_numbers = [at[column] for column in (*numeric, source.target)]
    converters: dict[int, Callable[[str], str]] = {}
    for column, convert in converted.items():
        converters[at[column]] = convert
    for column in graded:
        converters[at[column]] = partial(_number_level, levels[column], column)
    table = _Table(tuple(numeric), levels, texts={column: [] for column in textual})
    for number, raw in enumerate(cells.rows, start=1):
        where = f"{file}: row {number}"
        if len(raw) != len(header):
            raise ValueError(
                f"{where} has {len(raw)} cells instead of {len(header)}; download it again"
            )
        with explain_errors(f"{where}: "):
            for position, convert in converters.items():
                raw[position] = convert(raw[position])
        values = _parse_numbers([raw[i] for i in at_numbers], where)
        texts = [raw[at[column]].strip() for column in textual]
        is_missing = any(map(math.isnan, values)) or any(
            text.lower() in EMPTY for text in texts
        )
        if is_missing and not source.keeps_all:
            table.left_out += 1
            continue
        table.numbers.extend(values[:-1])
        table.y.append(values[-1])
        for column, text in zip(textual, texts, strict=True):
            table.texts[column].append(text)
        table.sites += [raw[at[column]].strip() for column in site]
    if not table.y:
        raise ValueError(f"{file} has no row without missing values; download it again")
    return table


def _number_level(levels: Sequence[str], column: str, text: str) -> str:
    """Return the number of a level as text."""
    require_known(text.strip(), levels, f"{text!r} is not a level of {column}")
    return str(levels.index(text.strip()))


def _parse_numbers(cells: Sequence[str], where: str) -> list[float]:
    """Return the cells as numbers, NaN for a missing one."""
    try:
        return list(map(float, cells))
    except ValueError:
        pass
    with explain_errors(f"{where} contains a text: "):
        return [
            math.nan if cell.strip().lower() in EMPTY else float(cell) for cell in cells
        ]


def _features(
    table: _Table, source: TableSource
) -> tuple[npt.NDArray[np.float32], tuple[str, ...], list[str]]:
    """Return features, their names and notes: numbers first, then texts as one-hot columns."""
    x = np.frombuffer(table.numbers).reshape(len(table.y), -1).astype(np.float32)
    is_constant = (x.min(0) == x.max(0)) & (not source.keeps_all)
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
    return np.hstack(blocks), tuple(names), notes
