"""Published results of papers, to show next to measured ones.

Each table is a CSV file in the folder of a paper.  ``index.csv`` in the folder states paper, title,
protocol, unit, number of seeds, and whether the values come from the paper or from public reading
notes.  A value that is not printed is None, never 0.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from fallow.core.suggestions import nearest, require_known


@dataclass(frozen=True)
class PublishedSource:
    """Source of a table, and its experimental protocol."""

    table: str
    kind: str  # "cells", "tallies" or "sizes"
    paper: str
    title: str
    protocol: str
    unit: str
    seeds: int | None  # number of repetitions
    origin: str  # "paper" or "reading notes"


@dataclass(frozen=True)
class PublishedResult:
    """Published result, in the unit of its table."""

    table: str
    method: str
    setting: str  # e.g. "dataset=SVHN alpha=0.1"
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class PublishedCounts:
    """Number of checkpoints at which ``method`` wins, ties and loses against ``rival`` on a dataset."""

    table: str
    method: str
    rival: str
    dataset: str
    win: int
    tie: int
    loss: int


@dataclass(frozen=True)
class Size:
    """Number of examples and features of a dataset."""

    table: str
    dataset: str
    rows: int
    features: int


Row = TypeVar("Row", PublishedSource, PublishedResult, PublishedCounts, Size)


@dataclass(frozen=True)
class PublishedTables:
    """Tables of several folders, each with an ``index.csv``.

    All methods raise ValueError for an unknown table, or a table of another kind.
    """

    folders: tuple[Path, ...] = ()

    def names(self, kind: str | None = None) -> list[str]:
        """Return the names of the tables, optionally of one kind: cells, tallies or sizes."""
        kinds = {source.table: source.kind for source, _ in self._sources()}
        if kind is None:
            return list(kinds)
        known = sorted(set(kinds.values()))
        require_known(kind, known, f"no published table has {kind!r}")
        return [table for table in kinds if kinds[table] == kind]

    def source(self, table: str) -> PublishedSource:
        """Return paper, title, protocol, unit and seeds of a table."""
        return self._find(table)[0]

    def cells(self, table: str) -> list[PublishedResult]:
        """Return the results of one table, row by row."""
        return self._read(table, "cells", PublishedResult)

    def tallies(self, table: str) -> list[PublishedCounts]:
        """Return wins, ties and losses of one table, without its totals."""
        return self._read(table, "tallies", PublishedCounts)

    def sizes(self, table: str) -> list[Size]:
        """Return the dataset sizes of one table."""
        return self._read(table, "sizes", Size)

    def _sources(self) -> list[tuple[PublishedSource, Path]]:
        """Return the rows of all ``index.csv`` files, with their folders."""
        sources = []
        for folder in self.folders:
            sources += [
                (source, folder) for source in _rows(folder, "index", PublishedSource)
            ]
        return sources

    def _find(self, table: str) -> tuple[PublishedSource, Path]:
        known = {source.table: (source, folder) for source, folder in self._sources()}
        if table not in known:
            raise ValueError(
                f"{table!r} is not a published table{nearest(table, list(known))}"
            )
        return known[table]

    def _read(self, table: str, kind: str, of: type[Row]) -> list[Row]:
        source, folder = self._find(table)
        if source.kind != kind:
            raise ValueError(
                f"{table!r} has {source.kind}, not {kind}; the tables with {kind} are: "
                f"{', '.join(self.names(kind))}"
            )
        return _rows(folder, table, of)


def _rows(folder: Path, table: str, of: type[Row]) -> list[Row]:
    """Return the rows of a file."""
    rows = [{"table": table, **row} for row in _read_cells(folder / f"{table}.csv")]
    return TypeAdapter(list[of]).validate_python(rows)  # type: ignore[valid-type]


@cache
def _read_cells(file: Path) -> list[dict[str, str | None]]:
    """Return the cells of each row by column; an empty cell is None."""
    rows = []
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines(), strict=True):
        rows.append({name: cell or None for name, cell in row.items()})
    return rows
