"""Read a study directory: what tables, figures and pages are made from.

    study.json                              name, recipe, reference, queries, seeds, command ...
    cells/<query>/seed-<k>/records.jsonl    one evaluation per line
    cells/<query>/seed-<k>/partition.json   sites x classes, written once

A study that still runs can be read at any time: missing cells are missing, and a half-written
line is skipped and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from fallow.lab import metrics

BOUND = "bound:"
"""Queries whose name starts so are upper bounds: drawn and listed, never tested against."""

Record = Mapping[str, Any]
"""One evaluation, as written; a key that is absent or null was not measured."""


def is_bound(query: str) -> bool:
    """Whether a query is an upper bound, such as ``bound:all-labels``."""
    return query.startswith(BOUND)


@dataclass(frozen=True)
class Partition:
    """Who held what at the start.  ``matrix``: N rows (sites) of C counts (classes)."""

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    @cached_property
    def sigma(self) -> list[float]:
        """Spread of each class's shares over sites, in percentage points."""
        return metrics.class_spread(self.matrix)

    @cached_property
    def kl(self) -> float:
        """Mean KL divergence of a site's classes from the pooled ones, in nats."""
        return metrics.kl_to_global(self.matrix)

    @cached_property
    def absent(self) -> list[int]:
        """Number of classes that each site does not hold."""
        return [row.count(0) for row in self.matrix]


@dataclass(frozen=True)
class Cell:
    """One query under one seed: its records in order, its partition, its damaged lines."""

    query: str
    seed: int
    records: tuple[Record, ...]
    partition: Partition | None
    damaged: int

    def last_of(self, cycle: int) -> Record | None:
        """The last record of a cycle: cumulative counts stand there in full."""
        rows = [r for r in self.records if r.get("cycle") == cycle]
        return rows[-1] if rows else None

    @cached_property
    def cycles(self) -> tuple[int, ...]:
        """Cycles that have any record, ascending."""
        return tuple(sorted({int(r["cycle"]) for r in self.records}))

    def scores(self, measure: str) -> dict[int, list[float]]:
        """Cycle -> values of ``measure`` over its records that count (``final``)."""
        found: dict[int, list[float]] = {}
        for r in self.records:
            if r.get("final") and r.get(measure) is not None:
                found.setdefault(int(r["cycle"]), []).append(float(r[measure]))
        return found


@dataclass(frozen=True)
class Study:
    """What ``study.json`` says, before any result."""

    name: str
    recipe: Mapping[str, Any]
    reference: str | None
    queries: tuple[str, ...]
    seeds: tuple[int, ...]
    command: str
    published: Mapping[str, Any] | None
    versions: Mapping[str, str]


@dataclass(frozen=True)
class StudyRecords:
    """A study and every record it has so far."""

    path: Path
    study: Study
    cells: tuple[Cell, ...]

    @property
    def strategies(self) -> tuple[str, ...]:
        """The queries that choose rows: all but the upper bounds, in the order of the study."""
        return tuple(q for q in self.study.queries if not is_bound(q))

    @property
    def bounds(self) -> tuple[str, ...]:
        """The upper bounds, in the order of the study."""
        return tuple(q for q in self.study.queries if is_bound(q))

    @cached_property
    def measure(self) -> str:
        """What is scored: ``accuracy``, or ``mse`` when no record has an accuracy."""
        rows = [r for cell in self.cells for r in cell.records]
        has_accuracy = any(r.get("accuracy") is not None for r in rows)
        return (
            "mse"
            if not has_accuracy and any(r.get("mse") is not None for r in rows)
            else "accuracy"
        )

    @property
    def higher_is_better(self) -> bool:
        """False for errors."""
        return self.measure == "accuracy"

    @property
    def missing(self) -> tuple[tuple[str, int], ...]:
        """Runs (query, seed) without a score in the last cycle: not started or not finished."""
        done = {q: self.final(q) for q in self.study.queries}
        return tuple(
            (q, k) for q in self.study.queries for k in self.study.seeds if k not in done[q]
        )

    @property
    def damaged(self) -> int:
        """Lines that could not be read and were skipped."""
        return sum(cell.damaged for cell in self.cells)

    def of(self, query: str) -> tuple[Cell, ...]:
        """The cells of a query, by seed."""
        return tuple(cell for cell in self.cells if cell.query == query)

    @cached_property
    def partitions(self) -> dict[int, Partition]:
        """Seed -> its partition, which all strategies share; an upper bound may have another."""
        return {
            cell.seed: cell.partition
            for cell in self.cells
            if cell.partition and not is_bound(cell.query)
        }

    @cached_property
    def _rounds(self) -> dict[tuple[bool, int], int]:
        """How many records make up the score of a cycle: as many as the fullest cell has."""
        most: Counter[tuple[bool, int]] = Counter()
        for cell in self.cells:
            for cycle, values in cell.scores(self.measure).items():
                key = is_bound(cell.query), cycle
                most[key] = max(most[key], len(values))
        return dict(most)

    def curve(self, query: str) -> dict[int, dict[int, float]]:
        """Cycle -> seed -> score: the mean over the cycle's records that count.

        A seed whose cycle has fewer such records than another cell's is still running, and its
        mean would be over other rounds: it is left out.
        """
        found: dict[int, dict[int, float]] = {}
        for cell in self.of(query):
            for cycle, values in cell.scores(self.measure).items():
                if len(values) == self._rounds[is_bound(query), cycle]:
                    found.setdefault(cycle, {})[cell.seed] = fmean(values)
        return dict(sorted(found.items()))

    def last_cycle(self, query: str) -> int | None:
        """The last cycle: of all strategies together, or of this upper bound alone."""
        group = (query,) if is_bound(query) else self.strategies
        return max((cycle for q in group for cycle in self.curve(q)), default=None)

    def final(self, query: str) -> dict[int, float]:
        """Seed -> score of the last cycle."""
        last = self.last_cycle(query)
        return {} if last is None else self.curve(query).get(last, {})

    def fractions(self, query: str) -> dict[int, float]:
        """Cycle -> labelled share of all training rows, mean over seeds."""
        found: dict[int, list[float]] = {}
        for cell in self.of(query):
            for cycle in cell.cycles:
                row = cell.last_of(cycle)
                if row and row.get("labelled") is not None and row.get("pool"):
                    found.setdefault(cycle, []).append(row["labelled"] / row["pool"])
        return {cycle: fmean(shares) for cycle, shares in sorted(found.items())}

    def areas(self, query: str) -> dict[int, float]:
        """Seed -> area under the learning curve, for the seeds that have every cycle."""
        curve, x = self.curve(query), self.fractions(query)
        if len(curve) < 2 or not set(curve) <= set(x):
            return {}
        whole = set.intersection(*(set(scores) for scores in curve.values()))
        if len({x[c] for c in curve}) < len(curve) or self.last_cycle(query) not in curve:
            return {}
        return {
            k: metrics.aulc([x[c] for c in curve], [curve[c][k] for c in curve])
            for k in sorted(whole)
        }


def _records(path: Path) -> tuple[tuple[Record, ...], int]:
    """The readable records of a file, and how many lines were not."""
    if not path.exists():
        return (), 0
    rows, damaged = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            damaged += bool(line.strip())
            continue
        if isinstance(row, dict) and isinstance(row.get("cycle"), int):
            rows.append(row)
        else:
            damaged += 1
    return tuple(rows), damaged


def _partition(path: Path) -> Partition | None:
    if not path.exists():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Partition(
            sites=tuple(map(str, raw["sites"])),
            classes=tuple(map(str, raw["classes"])),
            matrix=tuple(tuple(map(int, row)) for row in raw["matrix"]),
        )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError):
        return None  # half-written: the cell is still running


def _study(path: Path) -> Study:
    file = path / "study.json"
    if not file.is_file():
        raise ValueError(
            f"{path} is no study: it has no study.json; give the directory that "
            "'fallow compare --out' wrote"
        )
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return Study(
            name=str(raw["name"]),
            recipe=raw.get("recipe") or {},
            reference=raw.get("reference"),
            queries=tuple(raw["queries"]),
            seeds=tuple(raw["seeds"]),
            command=raw.get("command") or "",
            published=raw.get("published"),
            versions=raw.get("versions") or {},
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{file} is damaged ({error}); restore it, or run the study again in another folder"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} is not a study's description (wrong or missing: {error}); "
            "give the directory that 'fallow compare --out' wrote"
        ) from error


def read_study(path: Path | str) -> StudyRecords:
    """Everything a study directory holds so far.

    Raises ValueError when the folder is no study.  Missing cells and damaged lines are no error:
    see ``StudyRecords.missing`` and ``StudyRecords.damaged``.
    """
    root = Path(path)
    study = _study(root)
    cells = []
    for query in study.queries:
        for seed in study.seeds:
            folder = root / "cells" / query.replace("/", "_") / f"seed-{seed}"
            records, damaged = _records(folder / "records.jsonl")
            if records or damaged:
                cells.append(
                    Cell(query, int(seed), records, _partition(folder / "partition.json"), damaged)
                )
    return StudyRecords(root, study, tuple(cells))
