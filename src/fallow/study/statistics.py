"""Paired comparisons over seeds: how large a difference is, and whether chance explains it.

The same seed gives every query the same partition, first labels and initial weights, so queries
are compared seed by seed.  Differences are always ``query - reference``.

Sources: F. Wilcoxon, Individual comparisons by ranking methods (1945); J. Hodges and E. Lehmann,
Estimates of location based on rank tests (1963); S. Holm, A simple sequentially rejective
multiple test procedure (1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fallow.core.words import count_noun

LEVEL = 0.05
"""The level at which a difference counts as distinguishable from chance."""

_NOISE = 1e-12
"""Scores closer than this, relative to their size, are equal: rounding is not a difference."""


@dataclass(frozen=True)
class Interval:
    """An interval and the confidence it has (an exact rank interval has more than was asked)."""

    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Comparison:
    """One query against the reference over the seeds both have.

    ``difference`` (mean, with its Student interval) and ``shift`` (Hodges-Lehmann) are query -
    reference, in the unit of the scores.  ``holm`` adjusts ``wilcoxon``, ``t_holm`` adjusts ``t``,
    both over all queries of the table.  ``lowest`` is the smallest adjusted value the exact test
    can give with this many pairs; ``note`` says so in words when it is above 0.05.
    """

    strategy: str
    reference: str
    pairs: int
    difference: float
    interval: Interval
    shift: float
    shift_interval: Interval | None
    t: float
    t_holm: float
    wilcoxon: float
    holm: float
    lowest: float
    wins: int
    ties: int
    losses: int
    note: str

    @property
    def can_tell(self) -> bool:
        """Whether the exact test could reach 0.05 at all with this many seeds."""
        return self.lowest <= LEVEL

    @property
    def is_distinct(self) -> bool:
        """Whether the difference is distinguishable from chance (exact test after Holm)."""
        return self.holm <= LEVEL


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (ddof=1); the deviation of one value is ``None``.

    >>> mean_sd([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    if not values:
        raise ValueError("0 values have no mean; give at least one score")
    mean = float(np.mean(values))
    if len(values) == 1:
        return mean, None
    return mean, float(np.std(values, ddof=1))


def _pairs(differences: Sequence[float]) -> NDArray[np.float64]:
    d = np.asarray(differences, dtype=np.float64)
    if len(d) < 2 or not np.isfinite(d).all():
        raise ValueError(
            f"{len(d)} differences {d.tolist()} cannot be tested; give at least two, all finite"
        )
    return d


def paired_t(differences: Sequence[float]) -> float:
    """Two-sided p of the paired t-test.  Equal differences: 1 when they are 0, else 0 (limit).

    >>> round(paired_t([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    d = _pairs(differences)
    if np.ptp(d) == 0:
        return float(d[0] == 0)
    t = d.mean() / (d.std(ddof=1) / math.sqrt(len(d)))
    from scipy import special  # 0.3 s, which workers of a study need not spend

    return float(2 * special.stdtr(len(d) - 1, -abs(t)))


def t_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Student interval of the mean difference."""
    d = _pairs(differences)
    from scipy import special

    half = special.stdtrit(len(d) - 1, (1 + level) / 2) * d.std(ddof=1) / math.sqrt(len(d))
    return Interval(float(d.mean() - half), float(d.mean() + half), level)


def _rank_sums(doubled_ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(doubled positive rank sum = k) when every sign is a fair coin, for k = 0, 1, ..."""
    chance = np.ones(1)
    for rank in doubled_ranks:
        grown = np.zeros(len(chance) + rank)
        grown[: len(chance)] += chance / 2
        grown[rank:] += chance / 2
        chance = grown
    return chance


def wilcoxon_exact(differences: Sequence[float]) -> float:
    """Exact two-sided p of the signed-rank test, for any number of ties and zeros.

    Zeros are dropped (Wilcoxon's rule), ties share their mean rank, and the distribution is the
    exact one of these ranks over all 2^n signs, by convolution.  All zeros: p = 1.

    >>> wilcoxon_exact([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    0.03125
    """
    d = _pairs(differences)
    d = d[d != 0]
    if not len(d):
        return 1.0
    from scipy import stats as sp  # a second, as above

    ranks = np.rint(2 * sp.rankdata(np.abs(d))).astype(
        np.int64
    )  # mean ranks end in .0 or .5
    chance = _rank_sums(ranks)
    observed = int(ranks[d > 0].sum())
    tail = min(chance[: observed + 1].sum(), chance[observed:].sum())
    return float(min(1.0, 2 * tail))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given.

    >>> [round(q, 4) for q in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p)
    running = 0.0  # an adjusted value is never below that of a smaller p
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = running
    return adjusted


def walsh_averages(differences: Sequence[float]) -> NDArray[np.float64]:
    """The n(n+1)/2 means of pairs (a value with itself too), sorted."""
    d = _pairs(differences)
    i, j = np.triu_indices(len(d))
    return np.sort((d[i] + d[j]) / 2)


def hodges_lehmann(
    differences: Sequence[float], level: float = 0.95
) -> tuple[float, Interval | None]:
    """Median of the Walsh averages and the exact signed-rank interval around it.

    The interval has at least ``level``; it is ``None`` when even the widest one has less
    (five pairs reach 93.75 %).  With ties its confidence is a lower bound.

    >>> hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (3.5, Interval(low=1.0, high=6.0, level=0.96875))
    """
    walsh = walsh_averages(differences)
    below = np.cumsum(_rank_sums(np.arange(1, len(differences) + 1)))  # P(W+ <= k)
    k = int((below <= (1 - level) / 2).sum())
    median = float(np.median(walsh))
    if k == 0:
        return median, None
    return median, Interval(
        float(walsh[k - 1]), float(walsh[-k]), float(1 - 2 * below[k - 1])
    )


def lowest_p(pairs: int, comparisons: int = 1) -> float:
    """The smallest Holm-adjusted p the exact test can give any single one of the comparisons.

    Two-sided, 2 / 2^n, times m for the first step of Holm.

    >>> lowest_p(6), lowest_p(5, comparisons=3)
    (0.03125, 0.1875)
    """
    return min(1.0, comparisons * 2.0 ** (1 - pairs))


def seeds_needed(comparisons: int) -> int:
    """The fewest pairs with which the exact test can reach 0.05 after Holm.

    >>> [seeds_needed(m) for m in (1, 3, 6, 12)]
    [6, 7, 8, 9]
    """
    return math.ceil(1 + math.log2(comparisons / LEVEL))


def differences(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """The differences query - reference over the common seeds; what is only rounding is a tie."""
    seeds = sorted(set(ours) & set(theirs))
    sizes = [max(abs(ours[seed]), abs(theirs[seed])) for seed in seeds]
    grain = _NOISE * max(sizes, default=0.0) or 1.0
    return [round((ours[seed] - theirs[seed]) / grain) * grain for seed in seeds]


def _compare(
    strategy: str, reference: str, d: list[float], m: int, higher_is_better: bool
) -> Comparison:
    n = len(d)
    lowest = lowest_p(n, m)
    note = ""
    if lowest > LEVEL:
        note = (
            f"{n} pairs are too few: over {count_noun(m, 'comparison')} the exact test "
            f"cannot go below {lowest:.3g} after Holm; with {seeds_needed(m)} seeds it could reach "
            f"{LEVEL}"
        )
    better = d
    if not higher_is_better:
        better = [-x for x in d]
    shift, shift_interval = hodges_lehmann(d)
    t = paired_t(d)
    rank = wilcoxon_exact(d)
    return Comparison(
        strategy=strategy,
        reference=reference,
        pairs=n,
        difference=float(np.mean(d)),
        interval=t_interval(d),
        shift=shift,
        shift_interval=shift_interval,
        t=t,
        t_holm=t,
        wilcoxon=rank,
        holm=rank,
        lowest=lowest,
        wins=sum(x > 0 for x in better),
        ties=better.count(0),
        losses=sum(x < 0 for x in better),
        note=note,
    )


def compare(
    scores: Mapping[str, Mapping[int, float]],
    reference: str,
    *,
    higher_is_better: bool = True,
) -> list[Comparison]:
    """Every other query against ``reference``, paired over the seeds both have.

    scores: query -> seed -> score.  Wins count seeds on which the query is better.  Raises
    ValueError when the reference is unknown or a pair of queries shares fewer than two seeds.

    >>> a, b = {s: 0.5 + s / 100 for s in range(6)}, {s: 0.5 for s in range(6)}
    >>> compare({"a": a, "b": b}, reference="b")[0].wins
    5
    """
    if reference not in scores:
        raise ValueError(
            f"reference {reference!r} has no scores; choose one of "
            f"{', '.join(sorted(scores)) or 'none'}"
        )
    pairs = [(strategy, reference) for strategy in scores if strategy != reference]
    return compare_pairs(scores, pairs, higher_is_better=higher_is_better)


def compare_pairs(
    scores: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    *,
    higher_is_better: bool = True,
) -> list[Comparison]:
    """Each (query, reference) of ``pairs`` over the seeds both have; Holm is over all of them.

    Raises ValueError when a pair shares fewer than two seeds.

    >>> a, b = {s: 0.5 + s / 100 for s in range(6)}, {s: 0.5 for s in range(6)}
    >>> [c.shift > 0 for c in compare_pairs({"a": a, "b": b}, [("a", "b"), ("b", "a")])]
    [True, False]
    """
    result = []
    for strategy, reference in pairs:
        d = differences(scores[strategy], scores[reference])
        if len(d) < 2:
            raise ValueError(
                f"{strategy!r} and {reference!r} share {len(d)} seed(s), and a paired "
                "test needs 2; run more seeds"
            )
        result.append(_compare(strategy, reference, d, len(pairs), higher_is_better))
    t_adjusted = holm([comparison.t for comparison in result])
    rank_adjusted = holm([comparison.wilcoxon for comparison in result])
    return [
        replace(comparison, t_holm=t, holm=rank)
        for comparison, t, rank in zip(result, t_adjusted, rank_adjusted, strict=True)
    ]
