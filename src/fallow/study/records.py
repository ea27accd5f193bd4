"""What a study left, as records: runs, partitions, and the scores that follow from them.

`fallow.study.reading` makes these from a study directory; nothing here touches a file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fallow.experiment.metrics import aulc
from fallow.experiment.metrics_counts import class_spread, kl_to_global, total_variation
from fallow.experiment.record import Record
from fallow.study.known import Known
from fallow.study.strategy import Strategy

Measure = Literal["accuracy", "mse"]
"""What a study is scored by: a fraction in [0, 1], or an error."""

BOUND = "bound:"
"""Queries whose name starts so are upper bounds: drawn and listed, never tested against."""


ALL_LABELS = f"{BOUND}all-labels"


def is_bound(strategy: str) -> bool:
    """Whether a query is an upper bound, such as ``bound:all-labels``."""
    return strategy.startswith(BOUND)


@dataclass(frozen=True)
class ClassCounts:
    """Who held what at the start.  ``matrix``: N rows (sites) of C counts (classes)."""

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    @cached_property
    def sigma(self) -> list[float]:
        """Spread of each class's shares over sites, in percentage points."""
        return class_spread(self.matrix)

    @cached_property
    def kl(self) -> float:
        """Mean KL divergence of a site's classes from the pooled ones, in nats."""
        return kl_to_global(self.matrix)

    @cached_property
    def variation(self) -> float:
        """Mean total variation of a site's classes from the pooled ones, in [0, 1]."""
        return total_variation(self.matrix)

    @cached_property
    def absent(self) -> list[int]:
        """Number of classes that each site does not hold."""
        return [row.count(0) for row in self.matrix]


@dataclass(frozen=True)
class RunRecords:
    """One query under one seed: its records in order, its partition, its damaged lines."""

    strategy: str
    seed: int
    records: tuple[Record, ...]
    partition: ClassCounts | None
    damaged: int

    def last_of(self, cycle: int) -> Record | None:
        """The last record of a cycle: cumulative counts stand there in full."""
        return self._last.get(cycle)

    @cached_property
    def _last(self) -> dict[int, Record]:
        return {int(r["cycle"]): r for r in self.records}

    @cached_property
    def cycles(self) -> tuple[int, ...]:
        """Cycles that have any record, ascending."""
        return tuple(sorted(self._last))

    @cached_property
    def has_diverged(self) -> bool:
        """Whether a record says that training ended without a usable model."""
        return any(r.get("diverged") for r in self.records)

    def scores(self, measure: Measure) -> dict[int, list[float]]:
        """Cycle -> values of ``measure`` over its records that count (``final``) and are finite."""
        result: dict[int, list[float]] = {}
        for record in self.records:
            score = record.get(measure)
            if record.get("final") and score is not None and math.isfinite(score):
                result.setdefault(int(record["cycle"]), []).append(float(score))
        return result


@dataclass(frozen=True)
class StudyManifest:
    """What ``study.json`` says, before any result.  ``classes``: of real sites, which tell nobody
    their partition."""

    name: str
    recipe: Mapping[str, Any]
    reference: str | None
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]
    command: str
    published: Mapping[str, Any] | None
    versions: Mapping[str, str]
    classes: tuple[str, ...] = ()
    # what papers say of it
    known: Known = field(default=Known(), repr=False, compare=False)


@dataclass(frozen=True)
class StudyRecords:
    """A study and every record it has so far."""

    path: Path
    study: StudyManifest
    cells: tuple[RunRecords, ...]

    @property
    def strategies(self) -> tuple[str, ...]:
        """The queries that choose rows: all but the upper bounds, in the order of the study."""
        return tuple(q for q in self.study.strategies if not is_bound(q))

    @property
    def bounds(self) -> tuple[str, ...]:
        """The upper bounds, in the order of the study."""
        return tuple(q for q in self.study.strategies if is_bound(q))

    @cached_property
    def measure(self) -> Measure:
        """What is scored: ``accuracy``, or ``mse`` when no record has an accuracy."""
        has_error = self._has_any("mse")
        if has_error and not self._has_any("accuracy"):
            return "mse"
        return "accuracy"

    def _has_any(self, name: Literal["accuracy", "mse", "target_variance"]) -> bool:
        """Whether any record of the study has a value there."""
        records = chain.from_iterable(cell.records for cell in self.cells)
        return any(record.get(name) is not None for record in records)

    @property
    def higher_is_better(self) -> bool:
        """False for errors."""
        return self.measure == "accuracy"

    @property
    def scale(self) -> float:
        """By what scores are multiplied where they are shown: accuracies are in per cent."""
        if self.measure == "accuracy":
            return 100.0
        return 1.0

    @cached_property
    def is_scaled(self) -> bool:
        """Whether errors are in units of the variance of the training targets: predicting their
        mean has error 1."""
        return self._has_any("target_variance")

    @property
    def missing(self) -> tuple[tuple[str, int], ...]:
        """Runs (query, seed) without a score in the last cycle: not started or not finished.  One
        that diverged is finished."""
        done = {strategy: set(self.final(strategy)) for strategy in self.study.strategies}
        for cell in self.cells:
            if cell.has_diverged:
                done[cell.strategy].add(cell.seed)
        missing = []
        for strategy in self.study.strategies:
            for seed in self.study.seeds:
                if seed not in done[strategy]:
                    missing.append((strategy, seed))
        return tuple(missing)

    @property
    def damaged(self) -> int:
        """Lines that could not be read and were skipped."""
        return sum(cell.damaged for cell in self.cells)

    def of(self, strategy: str) -> tuple[RunRecords, ...]:
        """The cells of a query, by seed."""
        return self._of.get(strategy, ())

    @cached_property
    def _of(self) -> dict[str, tuple[RunRecords, ...]]:
        result: dict[str, list[RunRecords]] = {}
        for cell in self.cells:
            result.setdefault(cell.strategy, []).append(cell)
        return {strategy: tuple(cells) for strategy, cells in result.items()}

    @cached_property
    def partitions(self) -> dict[int, ClassCounts]:
        """Seed -> its partition, which all strategies share; an upper bound may have another."""
        result = {}
        for cell in self.cells:
            if cell.partition and not is_bound(cell.strategy):
                result[cell.seed] = cell.partition
        return result

    @cached_property
    def _rounds(self) -> dict[tuple[str, int], int]:
        """How many records make up the score of a cycle: as many as the fullest cell of a query
        has (one that is solved at the server needs one round where others need ten)."""
        most: Counter[tuple[str, int]] = Counter()
        for cell in self.cells:
            for cycle, values in cell.scores(self.measure).items():
                key = cell.strategy, cycle
                most[key] = max(most[key], len(values))
        return dict(most)

    def curve(self, strategy: str) -> Mapping[int, Mapping[int, float]]:
        """Cycle -> seed -> score: the mean over the cycle's records that count.

        A seed whose cycle has fewer such records than another seed's is still running, and its
        mean would be over other rounds: it is left out.  A query may lack cycles that others have,
        also the first.
        """
        return self._curves.get(strategy, {})

    @cached_property
    def _curves(self) -> dict[str, dict[int, dict[int, float]]]:
        return {strategy: self._curve(strategy) for strategy in self.study.strategies}

    def _curve(self, strategy: str) -> dict[int, dict[int, float]]:
        result: dict[int, dict[int, float]] = {}
        for cell in self.of(strategy):
            for cycle, values in cell.scores(self.measure).items():
                if len(values) == self._rounds[strategy, cycle]:
                    result.setdefault(cycle, {})[cell.seed] = fmean(values)
        return dict(sorted(result.items()))

    def last_cycle(self, strategy: str) -> int | None:
        """The last cycle: of all strategies together, or of this upper bound alone."""
        if is_bound(strategy):
            return max(self.curve(strategy), default=None)
        return self._last_of_all

    @cached_property
    def _last_of_all(self) -> int | None:
        cycles: set[int] = set()
        for strategy in self.strategies:
            cycles |= set(self.curve(strategy))
        return max(cycles, default=None)

    def final(self, strategy: str) -> Mapping[int, float]:
        """Seed -> score of the last cycle."""
        last = self.last_cycle(strategy)
        if last is None:
            return {}
        return self.curve(strategy).get(last, {})

    def full_fit(self, strategy: str) -> str | None:
        """The upper bound with all labels whose models are trained as those of the query; None where
        the study has none."""
        trainer = Strategy.parse(strategy).trainer
        for bound in self.bounds:
            values = Strategy.parse(bound)
            if bound.partition("@")[0] == ALL_LABELS and values.trainer == trainer:
                return bound
        return None

    def excess(self, strategy: str) -> Mapping[int, Mapping[int, float]]:
        """Cycle -> seed -> by which part the error is above that of the fit with all labels, of the
        same seed: 0.02 is 2 % more.  Empty for accuracies, and where there is no such fit.

        Errors of seeds differ by their test rows; what is in excess differs by the labels alone.
        """
        bound = self.full_fit(strategy)
        if bound is None or self.higher_is_better:
            return {}
        full = self.final(bound)
        result: dict[int, dict[int, float]] = {}
        for cycle, scores in self.curve(strategy).items():
            for seed, score in scores.items():
                if full.get(seed, 0.0) > 0:
                    result.setdefault(cycle, {})[seed] = score / full[seed] - 1
        return result

    def labels(self, strategy: str) -> dict[int, float]:
        """Cycle -> labels bought so far, first labels among them; mean over seeds."""
        return {
            cycle: labels for cycle, (labels, _) in self._bought.get(strategy, {}).items()
        }

    def fractions(self, strategy: str) -> dict[int, float]:
        """Cycle -> labeled share of all training rows, mean over seeds."""
        return {
            cycle: share for cycle, (_, share) in self._bought.get(strategy, {}).items()
        }

    @cached_property
    def _bought(self) -> dict[str, dict[int, tuple[float, float]]]:
        return {strategy: self._labeled(strategy) for strategy in self.study.strategies}

    def _labeled(self, strategy: str) -> dict[int, tuple[float, float]]:
        result: dict[int, list[tuple[float, float]]] = {}
        for cell in self.of(strategy):
            for cycle in cell.cycles:
                row = cell.last_of(cycle)
                if row is None:
                    continue
                bought = row.get("labeled")
                pool = row.get("pool")
                if bought is not None and pool:
                    result.setdefault(cycle, []).append((bought, bought / pool))
        means: dict[int, tuple[float, float]] = {}
        for cycle, rows in sorted(result.items()):  # one (labels, share) for each seed
            labels, shares = zip(*rows, strict=True)
            means[cycle] = (fmean(labels), fmean(shares))
        return means

    def areas(self, strategy: str) -> dict[int, float]:
        """Seed -> area under the learning curve, for the seeds that have every cycle.

        Strategies that buy other numbers of labels are compared over the labels that the curves of
        all of them cover, joined linearly.
        """
        within = self._spans.get(strategy)
        if within is None:
            return {}
        if not is_bound(strategy):
            spans = [span for name, span in self._spans.items() if not is_bound(name)]
            lows, highs = zip(*spans, strict=True)
            within = (max(lows), min(highs))
        low, high = within
        if low >= high:
            return {}
        curve = self.curve(strategy)
        share_of = self.fractions(strategy)
        shares = [share_of[cycle] for cycle in curve]
        seeds_of_cycles = [set(scores) for scores in curve.values()]
        areas: dict[int, float] = {}
        for seed in sorted(set.intersection(*seeds_of_cycles)):
            scores = [curve[cycle][seed] for cycle in curve]
            areas[seed] = aulc(shares, scores, within)
        return areas

    @cached_property
    def _spans(self) -> dict[str, tuple[float, float]]:
        """The first and the last labeled share of each query whose curve is whole."""
        values = {}
        for strategy in self.study.strategies:
            curve = self.curve(strategy)
            share_of = self.fractions(strategy)
            has_shares = set(curve) <= set(share_of)
            is_done = len(curve) > 1 and has_shares and self.last_cycle(strategy) in curve
            if not is_done:
                continue
            shares = [share_of[cycle] for cycle in curve]
            if all(before < after for before, after in pairwise(shares)):
                values[strategy] = (shares[0], shares[-1])
        return values
