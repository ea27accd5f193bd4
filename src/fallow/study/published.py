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

from fallow.core.suggestions import nearest, require_known


@dataclass(frozen=True)
class Source:
    """Source of a table, and its experimental protocol."""

    table: str
    kind: str  # "cells", "tallies" or "sizes"
    paper: str
    title: str
    protocol: str
    unit: str
    seeds: int | None  # repetitions behind a number
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


@dataclass(frozen=True)
class PublishedTables:
    """Tables of several folders, each with an ``index.csv``.

    All methods raise ValueError for an unknown table, or a table of another kind.
    """

    folders: tuple[Path, ...] = ()

    def names(self, kind: str | None = None) -> list[str]:
        """Return the names of the tables, optionally of one kind: cells, tallies or sizes."""
        rows = self._index()
        kinds = sorted({row["kind"] for row in rows})
        if kind is None:
            return [row["table"] for row in rows]
        require_known(kind, kinds, f"no published table has {kind!r}")
        return [row["table"] for row in rows if row["kind"] == kind]

    def _index(self) -> list[dict[str, str]]:
        """Return the rows of all ``index.csv`` files."""
        rows = []
        for folder in self.folders:
            rows += _rows(folder, "index")
        return rows

    def source(self, table: str) -> Source:
        """Return paper, title, protocol, unit and seeds of a table."""
        _, row = self._find(table)
        seeds = None
        if row["seeds"]:
            seeds = int(row["seeds"])
        return Source(
            table=table,
            kind=row["kind"],
            paper=row["paper"],
            title=row["title"],
            protocol=row["protocol"],
            unit=row["unit"],
            seeds=seeds,
            origin=row["origin"],
        )

    def cells(self, table: str) -> list[PublishedResult]:
        """Return the results of one table, row by row."""
        return [
            PublishedResult(
                table=table,
                method=row["method"],
                setting=row["setting"],
                mean=_number(row["mean"]),
                sd=_number(row["sd"]),
            )
            for row in self._rows_of(table, "cells")
        ]

    def tallies(self, table: str) -> list[PublishedCounts]:
        """Return wins, ties and losses of one table, without its totals."""
        return [
            PublishedCounts(
                table=table,
                method=row["method"],
                rival=row["rival"],
                dataset=row["dataset"],
                win=int(row["win"]),
                tie=int(row["tie"]),
                loss=int(row["loss"]),
            )
            for row in self._rows_of(table, "tallies")
        ]

    def sizes(self, table: str) -> list[Size]:
        """Return the dataset sizes of one table."""
        return [
            Size(
                table=table,
                dataset=row["dataset"],
                rows=int(row["rows"]),
                features=int(row["features"]),
            )
            for row in self._rows_of(table, "sizes")
        ]

    def _find(self, table: str) -> tuple[Path, dict[str, str]]:
        """Return the folder of a table and its row in the index."""
        known = []
        for folder in self.folders:
            for row in _rows(folder, "index"):
                if row["table"] == table:
                    return folder, row
                known.append(row["table"])
        raise ValueError(f"{table!r} is not a published table{nearest(table, known)}")

    def _rows_of(self, table: str, kind: str) -> list[dict[str, str]]:
        folder, entry = self._find(table)
        if entry["kind"] != kind:
            raise ValueError(
                f"{table!r} has {entry['kind']}, not {kind}; the tables with {kind} are: "
                f"{', '.join(self.names(kind))}"
            )
        return _rows(folder, table)


@cache
def _rows(folder: Path, file: str) -> list[dict[str, str]]:
    text = (folder / f"{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), strict=True))


def _number(printed: str) -> float | None:
    if not printed:
        return None
    return float(printed)
