"""The numbers that the papers print, as data: what stands beside a measured number.

Each table is one CSV file in the folder ``published``; ``index.csv`` there says for each its
paper, title, protocol, unit, number of seeds, and whether it was read in the paper or in public
reading notes. A value that is not printed, or was not recovered, is None and never 0.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

from fallow.core.build import nearest


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
class Cell:
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


def tables(kind: str | None = None) -> list[str]:
    """Names of the published tables, all or those of one kind: cells, tallies or sizes.

    >>> tables("tallies")
    ['fale-table2']
    """
    kinds = [row["kind"] for row in _rows("index")]
    if kind is not None and kind not in kinds:
        raise ValueError(
            f"no published table holds {kind!r}{nearest(kind, sorted(set(kinds)))}"
        )
    return [row["table"] for row in _rows("index") if kind in (None, row["kind"])]


def source(table: str) -> Source:
    """Paper, title, protocol, unit and seeds of a table; ValueError when there is none so called.

    >>> source("ahfal-table1").seeds
    3
    """
    known = {row["table"]: row for row in _rows("index")}
    if table not in known:
        raise ValueError(f"{table!r} is not a published table{nearest(table, list(known))}")
    row = known[table]
    return Source(
        table,
        row["kind"],
        row["paper"],
        row["title"],
        row["protocol"],
        row["unit"],
        int(row["seeds"]) if row["seeds"] else None,
        row["origin"],
    )


def published(table: str) -> list[Cell]:
    """The printed results of one table, row by row.

    Raises ValueError when there is no such table, or when it holds tallies or sizes.

    >>> published("ahfal-table1")[-4]
    Cell(table='ahfal-table1', method='AHFAL', setting='alpha=0.1', mean=66.15, sd=0.94)
    """
    return [
        Cell(table, row["method"], row["setting"], _number(row["mean"]), _number(row["sd"]))
        for row in _rows_of(table, "cells")
    ]


def tallies(table: str = "fale-table2") -> list[Tally]:
    """Wins, ties and losses of one table, without its totals; errors as ``published``.

    >>> [
    ...     (t.win, t.tie, t.loss)
    ...     for t in tallies()
    ...     if (t.method, t.rival, t.dataset) == ("FALE", "BADGE", "stock")
    ... ]
    [(7, 1, 2)]
    """
    return [
        Tally(
            table,
            row["method"],
            row["rival"],
            row["dataset"],
            int(row["win"]),
            int(row["tie"]),
            int(row["loss"]),
        )
        for row in _rows_of(table, "tallies")
    ]


def sizes(table: str = "fale-table1") -> list[Size]:
    """Sizes of the data sets of one table; errors as ``published``.

    >>> sizes()[0]
    Size(table='fale-table1', dataset='ct', rows=53500, features=379)
    """
    return [
        Size(table, row["dataset"], int(row["rows"]), int(row["features"]))
        for row in _rows_of(table, "sizes")
    ]


def _rows_of(table: str, kind: str) -> list[dict[str, str]]:
    found = source(table).kind
    if found != kind:
        raise ValueError(
            f"{table!r} holds {found}, not {kind}; the tables with {kind} are:"
            f" {', '.join(tables(kind))}"
        )
    return _rows(table)


def _rows(file: str) -> list[dict[str, str]]:
    text = (files("fallow.report") / "published" / f"{file}.csv").read_text(
        encoding="utf-8"
    )
    return list(csv.DictReader(text.splitlines(), strict=True))


def _number(printed: str) -> float | None:
    return float(printed) if printed else None
