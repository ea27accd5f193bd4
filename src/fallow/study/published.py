"""The numbers that the papers print, as data: what stands beside a measured number.

Each table is one CSV file in the folder of a paper; ``index.csv`` there says for each its paper,
title, protocol, unit, number of seeds, and whether it was read in the paper or in public reading
notes.  A value that is not printed, or was not recovered, is None and never 0.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fallow.core.terms import nearest


@dataclass(frozen=True)
class Source:
    """Where a table comes from, and how its numbers were made."""

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
    """One printed result, in the unit of its table."""

    table: str
    method: str
    setting: str  # e.g. "dataset=SVHN alpha=0.1"
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Tally:
    """Checkpoints at which ``method`` wins, ties and loses against ``rival`` on one data set."""

    table: str
    method: str
    rival: str
    dataset: str
    win: int
    tie: int
    loss: int


@dataclass(frozen=True)
class Size:
    """Rows and feature columns of a data set."""

    table: str
    dataset: str
    rows: int
    features: int


@dataclass(frozen=True)
class PublishedTables:
    """The tables of several folders, each with its ``index.csv``.

    All methods raise ValueError where there is no such table, and those that read one also where
    it holds something else.
    """

    folders: tuple[Path, ...] = ()

    def names(self, kind: str | None = None) -> list[str]:
        """Names of the published tables, all or those of one kind: cells, tallies or sizes."""
        rows = self._index()
        kinds = sorted({row["kind"] for row in rows})
        if kind is None:
            return [row["table"] for row in rows]
        if kind not in kinds:
            raise ValueError(f"no published table holds {kind!r}{nearest(kind, kinds)}")
        return [row["table"] for row in rows if row["kind"] == kind]

    def _index(self) -> list[dict[str, str]]:
        """The lines of all folders' ``index.csv``."""
        rows = []
        for folder in self.folders:
            rows += _rows(folder, "index")
        return rows

    def source(self, table: str) -> Source:
        """Paper, title, protocol, unit and seeds of a table."""
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
        """The printed results of one table, row by row."""
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

    def tallies(self, table: str) -> list[Tally]:
        """Wins, ties and losses of one table, without its totals."""
        return [
            Tally(
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
        """Sizes of the data sets of one table."""
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
        """The folder of a table and its line in the index."""
        known = []
        for folder in self.folders:
            for row in _rows(folder, "index"):
                if row["table"] == table:
                    return folder, row
                known.append(row["table"])
        raise ValueError(f"{table!r} is not a published table{nearest(table, known)}")

    def _rows_of(self, table: str, kind: str) -> list[dict[str, str]]:
        folder, about = self._find(table)
        if about["kind"] != kind:
            raise ValueError(
                f"{table!r} holds {about['kind']}, not {kind}; the tables with {kind} are:"
                f" {', '.join(self.names(kind))}"
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
