"""Records of a study: runs, partitions and scores.

`fallow.study.reading` reads them from a folder.  This module accesses no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise, product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from fallow.core.wording import join_words
from fallow.engine.score_metrics import find_metric
from fallow.experiment.metrics import aulc
from fallow.experiment.metrics_counts import class_spread, kl_to_global, total_variation
from fallow.settings.variants import ParsedStrategy
from fallow.study.known import PaperResults

if TYPE_CHECKING:
    from fallow.experiment.record import Record


@dataclass(frozen=True)
class Measure:
    """Score that curves, tables and tests of a study show.

    Attributes
    ----------
    name : str
        ``accuracy``, ``mse``, or a metric of the setting ``metrics``.
    title : str
        Name in a sentence.
    higher_is_better : bool
        Whether larger values are better.
    scale : float
        Display factor; accuracies are shown in percent.
    """

    name: str
    title: str
    higher_is_better: bool
    scale: float = 1.0

    @property
    def is_percent(self) -> bool:
        """Whether values are shown in percent."""
        return self.scale == 100

    @property
    def sign(self) -> str:
        """Unit after a value."""
        if self.is_percent:
            return " %"
        return ""

    @property
    def unit(self) -> str:
        """Unit of a difference."""
        return "points" if self.is_percent else self.title

    @property
    def heading(self) -> str:
        """Name and unit, for the title of a table or an axis."""
        return f"{self.title}, %" if self.is_percent else self.title


ACCURACY = Measure("accuracy", "accuracy", higher_is_better=True, scale=100.0)
SQUARED_ERROR = Measure("mse", "mean squared error", higher_is_better=False)
DISTANCE = Measure("distance", "distance to selected examples", higher_is_better=False)
"""Squared distance to the nearest selected example, in units of the variance."""


def measure_of(metric: str) -> Measure:
    """Return the measure of a metric of the setting ``metrics``.

    >>> measure_of("auroc").title, measure_of("brier").higher_is_better
    ('AUROC', False)
    """
    known = find_metric(metric)
    return Measure(metric, known.title, known.higher_is_better)


BOUND = "bound:"
"""Prefix of the names of upper bounds, which are drawn and listed, and never tested."""


ALL_LABELS = f"{BOUND}all-labels"


def is_bound(strategy: str) -> bool:
    """Return whether a strategy is an upper bound, such as ``bound:all-labels``."""
    return strategy.startswith(BOUND)


@dataclass(frozen=True)
class ClassCounts:
    """Partition of a run: matrix of counts with one row per site and one column per class."""

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    @cached_property
    def sigma(self) -> list[float]:
        """Standard deviation of the shares of each class over sites, in percentage points."""
        return class_spread(self.matrix)

    @cached_property
    def kl(self) -> float:
        """Mean KL divergence of the class distribution of a site from the pooled one, in nats."""
        return kl_to_global(self.matrix)

    @cached_property
    def variation(self) -> float:
        """Mean total variation of the class distribution of a site from the pooled one (0 to 1)."""
        return total_variation(self.matrix)

    @cached_property
    def absent(self) -> list[int]:
        """Number of classes that are absent at each site."""
        return [row.count(0) for row in self.matrix]


@dataclass(frozen=True)
class RunRecords:
    """Records of one run in order, its partition, and its number of damaged lines."""

    strategy: str
    seed: int
    records: tuple[Record, ...]
    partition: ClassCounts | None
    damaged: int

    def last_of(self, cycle: int) -> Record | None:
        """Return the last record of a cycle, which has the complete cumulative counts."""
        return self.last_records.get(cycle)

    @cached_property
    def last_records(self) -> dict[int, Record]:
        """Last record of each cycle."""
        return {int(r["cycle"]): r for r in self.records}

    @property
    def last(self) -> Record:
        """Last record; empty if there is none."""
        if not self.records:
            return cast("Record", {})
        return self.records[-1]

    @cached_property
    def cycles(self) -> tuple[int, ...]:
        """Cycles with at least one record, ascending."""
        return tuple(sorted(self.last_records))

    @cached_property
    def has_diverged(self) -> bool:
        """Whether training ended without a usable model."""
        return any(r.get("diverged") for r in self.records)

    def scores(self, measure: Measure) -> dict[int, list[float]]:
        """Return the finite values of ``measure`` in each cycle, of the records that count."""
        result: dict[int, list[float]] = {}
        for record in self.records:
            score = read_score(record, measure)
            if record.get("final") and score is not None and math.isfinite(score):
                result.setdefault(int(record["cycle"]), []).append(float(score))
        return result


def read_score(record: Record, measure: Measure) -> float | None:
    """Return the value of a measure in a record, or None."""
    if measure == ACCURACY:
        return record.get("accuracy")
    if measure == SQUARED_ERROR:
        return record.get("mse")
    if measure == DISTANCE:
        return record.get("distance")
    scores = record.get("metrics", {}).get(measure.name)
    return None if scores is None else scores["value"]


@dataclass(frozen=True)
class StudyManifest:
    """Content of ``study.json``.

    ``classes`` are the class names of a study with real sites, which do not disclose their partition,
    and ``labels`` the names of several labels per example.
    """

    name: str
    config: Mapping[str, Any]
    reference: str | None
    strategies: tuple[str, ...]
    seeds: tuple[int, ...]
    command: str
    published: Mapping[str, Any] | None
    versions: Mapping[str, str]
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    # names and results in papers
    known: PaperResults = field(default=PaperResults(), repr=False, compare=False)


@dataclass(frozen=True)
class StudyRecords:
    """Study with all its current records.

    ``metric``: of the setting ``metrics``, for curves, tables and tests; by default accuracy or
    squared error.
    """

    path: Path
    study: StudyManifest
    cells: tuple[RunRecords, ...]
    metric: str | None = None

    def __post_init__(self) -> None:
        if self.metric is None:
            return
        recorded = self.study.config.get("metrics") or ()
        if self.metric not in recorded:
            known = join_words([repr(name) for name in recorded]) or "none"
            raise ValueError(
                f"{self.study.name} has no metric {self.metric!r}; its metrics: {known}. The setting "
                "metrics adds one to a new study"
            )

    @property
    def strategies(self) -> tuple[str, ...]:
        """Query strategies in the order of the study, without upper bounds."""
        return tuple(q for q in self.study.strategies if not is_bound(q))

    @property
    def bounds(self) -> tuple[str, ...]:
        """Upper bounds, in the order of the study."""
        return tuple(q for q in self.study.strategies if is_bound(q))

    @cached_property
    def measure(self) -> Measure:
        """Score of curves, tables and tests: `metric`, or accuracy or squared error."""
        if self.metric is not None:
            return measure_of(self.metric)
        if self._has_any("distance"):
            return DISTANCE
        return SQUARED_ERROR if self.is_regression else ACCURACY

    @cached_property
    def is_regression(self) -> bool:
        """Whether records have a squared error and no accuracy."""
        return self._has_any("mse") and not self._has_any("accuracy")

    def _has_any(self, name: str) -> bool:
        """Return whether any record has this value."""
        records = chain.from_iterable(cell.records for cell in self.cells)
        return any(record.get(name) is not None for record in records)

    @property
    def higher_is_better(self) -> bool:
        """Whether higher scores are better; False for errors."""
        return self.measure.higher_is_better

    @property
    def loss(self) -> int:
        """Sign of a score in a quantity to minimize: 1 for errors, -1 otherwise."""
        if self.higher_is_better:
            return -1
        return 1

    @property
    def scale(self) -> float:
        """Display factor of scores; accuracies are shown in percent."""
        return self.measure.scale

    @cached_property
    def is_scaled(self) -> bool:
        """Whether errors are in units of the variance of the training targets.

        Predicting their mean then has error 1.
        """
        return self.measure == SQUARED_ERROR and self._has_any("target_variance")

    @property
    def missing(self) -> tuple[tuple[str, int], ...]:
        """Runs (strategy, seed) that have not finished.  A diverged run counts as finished."""
        done = {(cell.strategy, cell.seed) for cell in self.cells if cell.has_diverged}
        for strategy in self.study.strategies:
            done |= {(strategy, seed) for seed in self.final(strategy)}
        runs = product(self.study.strategies, self.study.seeds)
        return tuple(run for run in runs if run not in done)

    @property
    def damaged(self) -> int:
        """Number of unreadable lines that were skipped."""
        return sum(cell.damaged for cell in self.cells)

    def of(self, strategy: str) -> tuple[RunRecords, ...]:
        """Return the runs of a strategy, by seed."""
        return self._of.get(strategy, ())

    @cached_property
    def _of(self) -> dict[str, tuple[RunRecords, ...]]:
        result: dict[str, list[RunRecords]] = {}
        for cell in self.cells:
            result.setdefault(cell.strategy, []).append(cell)
        return {strategy: tuple(cells) for strategy, cells in result.items()}

    @cached_property
    def partitions(self) -> dict[int, ClassCounts]:
        """Partition of each seed, shared by all strategies; an upper bound may have another."""
        result = {}
        for cell in self.cells:
            if cell.partition and not is_bound(cell.strategy):
                result[cell.seed] = cell.partition
        return result

    def curve(self, strategy: str) -> Mapping[int, Mapping[int, float]]:
        """Return the score of each cycle and seed, as the mean over the records that count.

        A seed with fewer records in a cycle than other seeds is still running and is omitted.  A
        strategy may lack cycles that others have, including the first.
        """
        return self._curves.get(strategy, {})

    @cached_property
    def _curves(self) -> dict[str, dict[int, dict[int, float]]]:
        curves: dict[str, dict[int, dict[int, float]]] = {}
        for strategy in self.study.strategies:
            rounds: dict[int, dict[int, list[float]]] = {}  # cycle -> seed -> scores
            for cell in self.of(strategy):
                for cycle, values in cell.scores(self.measure).items():
                    rounds.setdefault(cycle, {})[cell.seed] = values
            curve = curves.setdefault(strategy, {})
            for cycle, by_seed in sorted(rounds.items()):
                n_rounds = max(map(len, by_seed.values()))
                whole = {seed: v for seed, v in by_seed.items() if len(v) == n_rounds}
                curve[cycle] = {seed: fmean(values) for seed, values in whole.items()}
        return curves

    def last_cycle(self, strategy: str) -> int | None:
        """Return the last cycle of all strategies, or of one upper bound."""
        if is_bound(strategy):
            return max(self.curve(strategy), default=None)
        return self._last_of_all

    @cached_property
    def _last_of_all(self) -> int | None:
        cycles = set[int]().union(*map(self.curve, self.strategies))
        return max(cycles, default=None)

    def final(self, strategy: str) -> Mapping[int, float]:
        """Return the score of the last cycle, by seed."""
        last = self.last_cycle(strategy)
        if last is None:
            return {}
        return self.curve(strategy).get(last, {})

    def full_fit(self, strategy: str) -> str | None:
        """Return the upper bound with all labels and the same training algorithm, or None."""
        trainer = ParsedStrategy.parse(strategy).trainer
        for bound in self.bounds:
            values = ParsedStrategy.parse(bound)
            if bound.partition("@")[0] == ALL_LABELS and values.trainer == trainer:
                return bound
        return None

    def excess(self, strategy: str) -> Mapping[int, Mapping[int, float]]:
        """Return the relative excess of the error over the fit with all labels, by cycle and seed.

        A value of 0.02 means 2 % more.  The result is empty for accuracies, or without such a fit.
        Errors of different seeds vary with the test set, and the excess varies with the labels
        only.
        """
        bound = self.full_fit(strategy)
        if bound is None or self.measure != SQUARED_ERROR:
            return {}
        full = self.final(bound)
        result: dict[int, dict[int, float]] = {}
        for cycle, scores in self.curve(strategy).items():
            for seed, score in scores.items():
                if full.get(seed, 0.0) > 0:
                    result.setdefault(cycle, {})[seed] = score / full[seed] - 1
        return result

    def labels(self, strategy: str) -> dict[int, float]:
        """Return the number of labels after each cycle, as the mean over seeds."""
        return self._bought.get(strategy, ({}, {}))[0]

    def fractions(self, strategy: str) -> dict[int, float]:
        """Return the labeled fraction of the training examples after each cycle, mean over seeds."""
        return self._bought.get(strategy, ({}, {}))[1]

    @cached_property
    def _bought(self) -> dict[str, tuple[dict[int, float], dict[int, float]]]:
        """Labels and fractions of each strategy by cycle."""
        bought: dict[str, tuple[dict[int, float], dict[int, float]]] = {}
        for strategy in self.study.strategies:
            by_cycle: dict[int, list[tuple[int, float]]] = {}
            for cell in self.of(strategy):
                for cycle, row in cell.last_records.items():
                    labels = row.get("labeled")
                    pool = row.get("pool")
                    if labels is not None and pool:
                        by_cycle.setdefault(cycle, []).append((labels, labels / pool))
            means: tuple[dict[int, float], dict[int, float]] = ({}, {})
            for cycle, pairs in sorted(by_cycle.items()):
                for of_strategy, numbers in zip(
                    means, zip(*pairs, strict=True), strict=True
                ):
                    of_strategy[cycle] = fmean(numbers)
            bought[strategy] = means
        return bought

    def areas(self, strategy: str) -> dict[int, float]:
        """Return the area under the learning curve of each complete seed.

        Strategies with different label budgets are compared over their common range, with linear
        interpolation.
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
        """Return the first and last labeled fraction of each strategy with a complete
        curve.
        """
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
