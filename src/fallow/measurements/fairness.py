"""Fairness of accuracy between sites: the worst tenth of the sites, and the spread between them.

Observed accuracies differ between sites even if the model is equally good at all of them, because each
has few test examples.  Both results therefore have intervals, and the spread is corrected.

Notes
-----
*Worst tenth.*  The mean accuracy of the worst tenth of the sites, at least one (Li et al., 2020).  The
accuracy of each of K sites has a Clopper-Pearson interval at confidence 1 - 0.05 / K, so that all are
correct together with probability 0.95.  The worst tenth increases with each accuracy, so that the worst
tenths of the lower and of the upper bounds are an interval for it.

*Spread.*  The standard deviation between sites of the accuracy that unlimited test examples would show:
the estimate of Paule and Mandel (1982) for random effects, and the Q-profile interval (Viechtbauer,
2007).  Sites are a sample of more sites, with normally distributed accuracies.  The interval is too
narrow if accuracies are skewed, as near 1 with a large spread, and with few sites of few examples that
are nearly all correct.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from fallow.core import values
from fallow.core.composites import Parts
from fallow.core.types import SiteId, Values
from fallow.engine.score_metrics import Floats, Task
from fallow.measurements.base import (
    IntervalScores,
    ScoredExamples,
    describe_intervals,
)

ALPHA = 0.05
"""Probability that an interval misses the truth."""
PSEUDO = 1
"""Successes and failures added to the accuracy over all sites, so that it is neither 0 nor 1."""


@final
@dataclass(frozen=True)
class Fairness:
    """Accuracy of the worst tenth of the sites, and its spread between sites.

    It follows from the test counts of each site, and no further number leaves a site.

    >>> counts = {"a": {"rows": 50.0, "hits": 45.0}, "b": {"rows": 50.0, "hits": 30.0}}
    >>> worst = Fairness().fold({}, counts)["worst tenth"]
    >>> worst["value"], round(worst["low"], 2), round(worst["high"], 2)
    (0.6, 0.43, 0.75)
    """

    name: ClassVar[str] = "fairness"
    title: ClassVar[str] = "Fairness of accuracy between sites"
    note: ClassVar[str] = (
        "Worst tenth: mean accuracy of the worst tenth of the sites, with a simultaneous "
        "Clopper-Pearson interval. Spread: standard deviation between sites without the part "
        "that is due to few test examples, with a Q-profile interval. Both are fractions."
    )
    tasks: ClassVar[tuple[Task, ...]] = ("classification",)
    needs_sites: ClassVar[bool] = True
    disclosure: ClassVar[str] = ""
    sums: ClassVar[Mapping[str, values.Kind]] = {}

    def measure(self, examples: ScoredExamples) -> Values:
        return {}

    def find_fault(self, parts: Parts, known: values.SenderFacts) -> str | None:
        return None

    def fold(
        self, total: Values, of_sites: Mapping[SiteId, Values]
    ) -> dict[str, IntervalScores]:
        rows = _read(of_sites, "rows")
        hits = _read(of_sites, "hits")
        is_scored = rows > 0
        return {
            "worst tenth": estimate_worst_tenth(hits[is_scored], rows[is_scored]),
            "spread": estimate_spread(hits[is_scored], rows[is_scored]),
        }

    def describe(
        self, result: Mapping[str, IntervalScores], classes: Sequence[str]
    ) -> Iterator[str]:
        yield from describe_intervals(self.title, result)


def _read(of_sites: Mapping[SiteId, Values], name: str) -> Floats:
    """Return a count of each site, (K,)."""
    counts = [float(sums[name] or 0) for sums in of_sites.values()]
    return np.array(counts, dtype=np.float64)


def estimate_worst_tenth(hits: Floats, rows: Floats) -> IntervalScores:
    """Return the mean accuracy of the worst tenth of K sites, with an interval.

    hits, rows: (K,) correct predictions and test examples, at least one example each.  The value is
    None without sites.
    """
    from scipy.stats import beta

    sites = len(rows)
    if not sites:
        return {"value": None, "low": None, "high": None}
    tail = ALPHA / sites / 2
    misses = rows - hits
    low = np.where(hits > 0, beta.ppf(tail, hits, misses + 1), 0.0)
    high = np.where(misses > 0, beta.ppf(1 - tail, hits + 1, misses), 1.0)
    return {
        "value": _worst_tenth(hits / rows),
        "low": _worst_tenth(low),
        "high": _worst_tenth(high),
    }


def _worst_tenth(accuracies: Floats) -> float:
    """Return the mean of the lowest tenth, at least one site."""
    count = -(-len(accuracies) // 10)  # rounded up
    return float(np.sort(accuracies)[:count].mean())


def estimate_spread(hits: Floats, rows: Floats) -> IntervalScores:
    """Return the standard deviation of accuracies between K sites, with an interval.

    hits, rows: (K,) correct predictions and test examples, at least one example each.  All values
    are None for fewer than two sites.  There is no interval if all predictions are correct, or none.
    """
    from scipy.stats import chi2

    freedom = len(rows) - 1
    if freedom < 1:
        return {"value": None, "low": None, "high": None}
    if hits.sum() in (0, rows.sum()):
        return {"value": 0.0, "low": None, "high": None}

    def find_deviation(q: float) -> float:
        return math.sqrt(_find_variance(hits, rows, q))

    return {
        "value": find_deviation(freedom),
        "low": find_deviation(float(chi2.ppf(1 - ALPHA / 2, freedom))),
        "high": find_deviation(float(chi2.ppf(ALPHA / 2, freedom))),
    }


def _find_variance(hits: Floats, rows: Floats, q: float) -> float:
    """Return the variance between sites at which the generalized Q statistic is ``q``.

    Q decreases with the variance.  The result is 0 if Q is smaller without any, and at most the
    variance of a binary value.
    """
    from scipy.optimize import brentq

    accuracies = hits / rows
    mean = (hits.sum() + PSEUDO) / (rows.sum() + 2 * PSEUDO)
    largest = mean * (1 - mean)

    def excess(between: float) -> float:
        weights = 1 / (between + (largest - between) / rows)
        center = np.average(accuracies, weights=weights)
        return float((weights * (accuracies - center) ** 2).sum()) - q

    if excess(0.0) <= 0:
        return 0.0
    if excess(largest) >= 0:
        return float(largest)
    return float(brentq(excess, 0.0, largest))
