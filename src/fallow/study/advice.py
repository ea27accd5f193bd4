"""Recommendation of a query strategy, based on a benchmark of strategies on many tasks.

Each task is weighted by its similarity to the study.  Similarity compares the number of classes and
sites, the heterogeneity of the sites and the class imbalance.  The expected gain of a strategy is its
weighted mean gain over the reference at the same number of labels per class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, with_config

from fallow.storage.validation import STRICT
from fallow.study.records import StudyRecords

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95
FIRST = 2.0
"""Number of labels per class from which a study without labels is advised."""
AHEAD = 4.0
"""Range of the recommendation, as a factor of the number of labels."""
SHOWN = 4  # tasks that are named in a sentence
POINTS = 5  # of a curve, at which strategies are compared
ALIKE = {"classes": 2.0, "sites": 2.0, "apart": 0.3, "uneven": 0.3}
"""Scale of the differences between two federated datasets; classes and sites in factors of
two.
"""
LEAST_WEIGHT = 1e-4  # with which a task counts
COLUMNS = ("task", "strategy", "seed", "labels", "accuracy")


@with_config(STRICT)
@dataclass(frozen=True)
class SimulationFacts:
    """Properties of a federated dataset that aggregates reveal; None if unknown."""

    classes: Annotated[int, Field(ge=2, description="number of classes")]
    sites: Annotated[int, Field(ge=1, description="number of sites")]
    apart: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="heterogeneity of the class distributions of the sites, from 0 (equal) to "
            "1 (disjoint): bias-corrected Cramér's V (Bergsma, 2013)",
        ),
    ] = None
    uneven: Annotated[
        float | None, Field(ge=0, le=1, description="class imbalance, from 0 to 1")
    ] = None

    def distance(self, other: SimulationFacts) -> float:
        """Return the squared distance of two federated datasets, in units of `ALIKE`.

        >>> SimulationFacts(10, 10, 0.5, 0.0).distance(SimulationFacts(10, 20, 0.5, 0.0))
        0.25
        """
        result = (math.log2(self.classes / other.classes) / ALIKE["classes"]) ** 2
        result += (math.log2(self.sites / other.sites) / ALIKE["sites"]) ** 2
        for name in ("apart", "uneven"):
            mine = getattr(self, name)
            theirs = getattr(other, name)
            if mine is not None and theirs is not None:
                result += ((mine - theirs) / ALIKE[name]) ** 2
        return float(result)


def facts_of_counts(counts: Sequence[Sequence[float]]) -> SimulationFacts:
    """Compute the properties from the label counts of shape (sites, classes).

    >>> facts_of_counts([[20, 0], [0, 20]])
    SimulationFacts(classes=2, sites=2, apart=1.0, uneven=0.0)
    """
    table = np.asarray(counts, dtype=float)
    sites, classes = table.shape
    uneven = None  # coefficient of variation of class counts, corrected for bias
    if classes > 1 and table.sum() > 1:
        mean = table.sum() / classes
        square = ((table.sum(0) / mean - 1) ** 2).mean() - (classes - 1) / table.sum()
        uneven = round(min(1.0, math.sqrt(max(0.0, square))), 6)
    return SimulationFacts(classes, sites, _apart(table), uneven)


def _apart(table: NDArray[np.float64]) -> float | None:
    """Return the bias-corrected Cramér's V of sites and classes, or None for too few labels."""
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    n = table.sum()
    sites, classes = table.shape
    if sites < 2 or classes < 2 or n < 2:
        return None
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    square = ((table - expected) ** 2 / expected).sum() / n
    without = max(0.0, square - (sites - 1) * (classes - 1) / (n - 1))
    rows = sites - (sites - 1) ** 2 / (n - 1)
    columns = classes - (classes - 1) ** 2 / (n - 1)
    rank = min(rows, columns) - 1
    if rank <= 0:
        return None
    return round(min(1.0, math.sqrt(without / rank)), 6)


def read_facts(study: StudyRecords) -> tuple[SimulationFacts, float]:
    """Read the properties of a study and its number of labels per class, from its records.

    The run with the most labels counts.  Raises ValueError for a study without records, and for
    regression.
    """
    records = [record for cell in study.cells for record in cell.records]
    if not records:
        raise ValueError(
            "the study has no record yet; ask again when its first cycle is done"
        )
    n_labeled = max(record.get("labeled") or 0 for record in records)
    last = [record for record in records if (record.get("labeled") or 0) == n_labeled][-1]
    if last.get("target_variance") is not None or study.is_regression:
        raise ValueError(
            "the task is regression, and the benchmark behind the recommendation "
            "covers classification only"
        )
    per_site = last.get("labeled_per_site") or {}
    per_class = last.get("per_class") or last.get("labeled_per_class") or ()
    classes = len(per_class)
    if classes < 2:
        raise ValueError(
            "the records of the study do not contain the number of classes, so it cannot "
            "be compared with the tasks"
        )
    labels = float(last.get("labeled") or 0) / classes
    counts = [counted for counted in per_site.values() if len(counted) == classes]
    if len(counts) < len(per_site) or not counts:  # without classes
        return SimulationFacts(classes, max(len(per_site), 1)), labels
    return facts_of_counts(counts), labels


Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Logarithms of labels, ascending, and scores."""
Curves = Mapping[str, Mapping[int, Curve]]
"""Strategy -> seed -> curve."""


# -- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdviceTable:
    """Scores of query strategies on the tasks of the benchmark, and the properties of each task.

    Attributes
    ----------
    scores : DataFrame
        One row for each task, strategy, seed and label budget, with the columns `COLUMNS`.
    """

    scores: pd.DataFrame
    simulations: Mapping[str, SimulationFacts]

    @cached_property
    def curves(self) -> Mapping[str, Curves]:
        """Learning curves of each task."""
        result: dict[str, dict[str, dict[int, Curve]]] = {}
        ordered = self.scores.sort_values("labels", kind="stable")
        for (task, strategy, seed), rows in ordered.groupby(
            ["task", "strategy", "seed"], sort=False
        ):
            x = np.log(rows["labels"].to_numpy(dtype=float))
            y = rows["accuracy"].to_numpy(dtype=float)
            of_task = result.setdefault(str(task), {})
            of_task.setdefault(str(strategy), {})[int(seed)] = (x, y)
        return result

    def without(self, task: str) -> AdviceTable:
        """Return the table without one task."""
        left = {name: facts for name, facts in self.simulations.items() if name != task}
        return AdviceTable(self.scores[self.scores["task"] != task], left)


def gains(
    curves: Curves, strategy: str, reference: str, start: float, end: float
) -> list[float]:
    """Return the gain in accuracy of a strategy over the reference on a task, one for each seed.

    A gain is the mean over the logarithm of the number of labels, between ``start`` and ``end``
    labels.  Seeds without both strategies, or without such a label budget, are omitted.
    """
    ours = curves.get(strategy, {})
    theirs = curves.get(reference, {})
    result = []
    for seed in filter(theirs.__contains__, ours):
        x, y = ours[seed]
        x_other, y_other = theirs[seed]
        low = max(math.log(start), float(x[0]), float(x_other[0]))
        high = min(math.log(end), float(x[-1]), float(x_other[-1]))
        if low <= high:
            at = np.linspace(low, high, POINTS)
            apart = np.interp(at, x, y) - np.interp(at, x_other, y_other)
            result.append(float(apart.mean()))
    return result


@dataclass(frozen=True)
class Expected:
    """Expected gain of a strategy over the reference, as a fraction."""

    strategy: Annotated[str, Field(description="query strategy")]
    gain: Annotated[float, Field(description="expected gain in accuracy, in [-1, 1]")]
    low: Annotated[
        float | None,
        Field(
            description="lower bound of the 95 % interval; null with fewer than two tasks"
        ),
    ]
    high: Annotated[float | None, Field(description="upper bound of the 95 % interval")]
    tasks: Annotated[
        tuple[tuple[str, float], ...],
        Field(description="tasks of the benchmark with their weights, most similar first"),
    ]

    def sentence(self, reference: str) -> str:
        """Describe the expected gain, in percentage points.

        >>> Expected("mine", 0.012, -0.01, 0.034, ()).sentence("theirs")
        'mine compared with theirs: +1.2 points [-1.0, +3.4].'
        """
        gain = f"{self.strategy} compared with {reference}: {100 * self.gain:+.1f} points"
        if self.low is None or self.high is None:
            return f"{gain}, from little more than one task, so there is no interval."
        return f"{gain} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]."

    def list_tasks(self) -> str:
        """List the tasks with the largest weights.

        >>> Expected("mine", 0.0, None, None, (("b/x", 0.8), ("b/y", 0.2))).list_tasks()
        'x (80 %), y (20 %)'
        """
        named = []
        for task, weight in self.tasks[:SHOWN]:
            named.append(f"{task.rpartition('/')[2]} ({100 * weight:.0f} %)")
        text = ", ".join(named)
        if len(self.tasks) > SHOWN:
            text += f" and {len(self.tasks) - SHOWN} more"
        return text


@dataclass(frozen=True)
class Advice:
    """Recommended query strategy and training algorithm, with the evidence."""

    strategy: Annotated[str, Field(description="recommended query strategy")]
    trainer: Annotated[str, Field(description="recommended training algorithm")]
    is_known: Annotated[
        bool,
        Field(
            description="whether the benchmark is conclusive; otherwise the default strategy is "
            "recommended"
        ),
    ]
    expected: Annotated[
        tuple[Expected, ...],
        Field(description="expected gain of each strategy, best first"),
    ]
    start: Annotated[float, Field(description="labels per class from which it holds")]
    end: Annotated[float, Field(description="labels per class up to which it holds")]
    facts: Annotated[SimulationFacts, Field(description="properties of the study")]
    usual: Annotated[str, Field(description="default strategy")]
    reference: Annotated[str, Field(description="strategy that gains are relative to")]
    sentences: Annotated[tuple[str, ...], Field(description="recommendation in words")] = ()

    def of(self, strategy: str) -> Expected | None:
        """Return the expected gain of a strategy, or None without enough evidence."""
        return next((item for item in self.expected if item.strategy == strategy), None)

    def describe(self) -> tuple[str, ...]:
        """Describe the recommendation, its evidence and its limits."""
        details = f"From {self.start:.3g} to {self.end:.3g} labels per class"
        if self.is_known:
            lines = [f"{details}: {self.strategy}, trained by {self.trainer}."]
        else:
            lines = [
                f"{details} the benchmark is inconclusive; default: {self.strategy}, "
                f"trained by {self.trainer}."
            ]
        result = self.of(self.strategy)
        if result is not None:
            lines.append(result.sentence(self.reference))
            lines.append(f"The recommendation is based on {result.list_tasks()}.")
        other = self.of(self.usual)
        if self.is_known and other is not None:
            lines.append(other.sentence(self.reference))
        lines.append(
            f"All tasks were run with {self.trainer}, so the recommendation does not "
            "cover other training algorithms."
        )
        return tuple(lines)


@dataclass(frozen=True)
class Rules:
    """Parameters of the recommendation.

    Attributes
    ----------
    reference : str
        Strategy relative to which gains are computed.
    usual : str
        Strategy to recommend if the benchmark is inconclusive.
    trainer : str
        Training algorithm of the benchmark.
    """

    reference: str
    usual: str
    trainer: str


def weigh_tasks(
    gains: Mapping[str, float], weights: Mapping[str, float]
) -> tuple[float, float | None]:
    """Return the weighted mean gain over tasks and the half width of its 95 % confidence interval.

    The interval is based on the variation between tasks.  The width is None with fewer than two tasks.
    """
    from scipy import special  # imported here, because the import takes 0.3 s

    w = np.array([weights[task] for task in gains])
    g = np.array(list(gains.values()))
    mean = float(w @ g / w.sum())
    effective = float(w.sum() ** 2 / (w @ w))  # the number of tasks with equal weights
    if effective < 1.5:
        return mean, None
    spread = float(w @ (g - mean) ** 2 / w.sum()) * effective / (effective - 1)
    quantile = float(special.stdtrit(effective - 1, (1 + LEVEL) / 2))
    return mean, quantile * math.sqrt(spread / effective)


def advise(
    table: AdviceTable, facts: SimulationFacts, labels: float, rules: Rules
) -> Advice:
    """Recommend a strategy for ``labels`` labels per class, given the properties ``facts``.

    The strategy with the largest expected gain is recommended if at least two tasks count and its gain
    over the default strategy is significant.  Otherwise, the default strategy is recommended.
    """
    start = max(labels, FIRST)
    end = AHEAD * start
    weights = {}
    by_strategy: dict[str, dict[str, float]] = {}  # mean gain over seeds, by task
    for task, curves in table.curves.items():
        simulation = table.simulations[task]
        weights[task] = math.exp(-facts.distance(simulation) / 2)
        span = (start * simulation.classes, end * simulation.classes)
        for strategy in curves:
            of_seeds = gains(curves, strategy, rules.reference, *span)
            if of_seeds and weights[task] > LEAST_WEIGHT:
                by_strategy.setdefault(strategy, {})[task] = float(np.mean(of_seeds))
    expected = []
    for strategy, of_tasks in by_strategy.items():
        if strategy != rules.reference:
            expected.append(_expect(strategy, of_tasks, weights))
    expected.sort(key=lambda gain: -gain.gain)
    best = next((item.strategy for item in expected if item.low is not None), "")
    usual = by_strategy.get(rules.usual, {})
    ahead = {}  # of the default strategy, on tasks that have both
    for task, gain in by_strategy.get(best, {}).items():
        if task in usual:
            ahead[task] = gain - usual[task]
    strategy = rules.usual
    is_known = False
    if len(ahead) > 1:
        mean, half = weigh_tasks(ahead, weights)
        is_known = half is not None and mean > half
    if is_known:
        strategy = best
    advice = Advice(
        strategy=strategy,
        trainer=rules.trainer,
        is_known=is_known,
        expected=tuple(expected),
        start=start,
        end=end,
        facts=facts,
        usual=rules.usual,
        reference=rules.reference,
    )
    return replace(advice, sentences=advice.describe())


def _expect(
    strategy: str, gains: Mapping[str, float], weights: Mapping[str, float]
) -> Expected:
    mean, half = weigh_tasks(gains, weights)
    total = sum(weights[task] for task in gains)
    shares = [(task, weights[task] / total) for task in gains]
    tasks = tuple(sorted(shares, key=lambda pair: -pair[1]))
    if half is None:
        return Expected(strategy, mean, None, None, tasks)
    return Expected(strategy, mean, mean - half, mean + half, tasks)
