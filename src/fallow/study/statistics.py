"""Paired comparisons over seeds: effect sizes, confidence intervals and tests.

For the same seed, all query strategies have the same partition, initial labeled set and initial
weights, so they are compared seed by seed.  Differences are always ``strategy - reference``.

References: F. Wilcoxon, Individual comparisons by ranking methods (1945); J. Hodges and E. Lehmann,
Estimates of location based on rank tests (1963); S. Holm, A simple sequentially rejective
multiple test procedure (1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fallow.core.wording import count_noun

LEVEL = 0.05
"""Significance level."""

_NOISE = 1e-12
"""Relative tolerance of equal scores, for rounding errors."""


@dataclass(frozen=True)
class Interval:
    """Confidence interval with its actual level; exact rank intervals exceed the nominal level."""

    low: Annotated[float, Field(description="lower bound")]
    high: Annotated[float, Field(description="upper bound")]
    level: Annotated[float, Field(gt=0, le=1, description="confidence level")]


@dataclass(frozen=True)
class Comparison:
    """Comparison of one query strategy with the reference over their common seeds.

    Differences are strategy - reference, in the unit of the scores.

    Attributes
    ----------
    difference : float
        Mean difference, with its Student interval.
    shift : float
        Hodges-Lehmann estimate.
    holm, t_holm : float
        ``wilcoxon`` and ``t`` with Holm's correction over all strategies of the table.
    lowest : float
        Smallest corrected p-value of the exact test with this number of pairs.
    note : str
        Explanation if ``lowest`` is above 0.05.
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
        """Whether the exact test can reach 0.05 with this number of seeds."""
        return self.lowest <= LEVEL

    @property
    def is_distinct(self) -> bool:
        """Whether the difference is significant (exact test with Holm's correction)."""
        return self.holm <= LEVEL


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and standard deviation (ddof=1), None for a single value.

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
    """Return the two-sided p-value of the paired t-test.

    For equal differences, it is 1 if they are 0, otherwise 0 (limit).

    >>> round(paired_t([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    d = _pairs(differences)
    if np.ptp(d) == 0:
        return float(d[0] == 0)
    t = d.mean() / (d.std(ddof=1) / math.sqrt(len(d)))
    from scipy import special  # imported here, because the import takes 0.3 s

    return float(2 * special.stdtr(len(d) - 1, -abs(t)))


def t_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Return the Student confidence interval of the mean difference."""
    d = _pairs(differences)
    from scipy import special

    half = special.stdtrit(len(d) - 1, (1 + level) / 2) * d.std(ddof=1) / math.sqrt(len(d))
    return Interval(float(d.mean() - half), float(d.mean() + half), level)


def _rank_sums(doubled_ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return P(doubled positive rank sum = k) under random signs, for k = 0, 1, ..."""
    chance = np.ones(1)
    for rank in doubled_ranks:
        grown = np.zeros(len(chance) + rank)
        grown[: len(chance)] += chance / 2
        grown[rank:] += chance / 2
        chance = grown
    return chance


def wilcoxon_exact(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of the signed-rank test, with ties and zeros.

    Zeros are dropped (Wilcoxon's rule), and ties share their mean rank.  The exact distribution
    over all 2^n signs is computed by convolution.  If all differences are zero, p = 1.

    >>> wilcoxon_exact([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    0.03125
    """
    d = _pairs(differences)
    d = d[d != 0]
    if not len(d):
        return 1.0
    from scipy import stats as sp  # takes a second, as above

    # mean ranks end in .0 or .5
    ranks = np.rint(2 * sp.rankdata(np.abs(d))).astype(np.int64)
    chance = _rank_sums(ranks)
    observed = int(ranks[d > 0].sum())
    tail = min(chance[: observed + 1].sum(), chance[observed:].sum())
    return float(min(1.0, 2 * tail))


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of the input.

    >>> [round(q, 4) for q in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p)
    running = 0.0  # an adjusted value is never below that of a smaller p
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = running
    return adjusted


def hodges_lehmann(
    differences: Sequence[float], level: float = 0.95
) -> tuple[float, Interval | None]:
    """Return the median of the Walsh averages and its exact signed-rank interval.

    The interval has at least the confidence ``level``.  It is None if the widest interval has less
    (five pairs reach 93.75 %).  With ties, the level is a lower bound.

    >>> hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    (3.5, Interval(low=1.0, high=6.0, level=0.96875))
    """
    d = _pairs(differences)
    i, j = np.triu_indices(len(d))  # pairs, including a value with itself
    walsh = np.sort((d[i] + d[j]) / 2)
    below = np.cumsum(_rank_sums(np.arange(1, len(differences) + 1)))  # P(W+ <= k)
    k = int((below <= (1 - level) / 2).sum())
    median = float(np.median(walsh))
    if k == 0:
        return median, None
    return median, Interval(
        float(walsh[k - 1]), float(walsh[-k]), float(1 - 2 * below[k - 1])
    )


def lowest_p(pairs: int, comparisons: int = 1) -> float:
    """Return the smallest Holm-adjusted p-value that the exact test can attain.

    It is 2 / 2^n (two-sided), times the number of comparisons.

    >>> lowest_p(6), lowest_p(5, comparisons=3)
    (0.03125, 0.1875)
    """
    return min(1.0, comparisons * 2.0 ** (1 - pairs))


def seeds_needed(comparisons: int) -> int:
    """Return the smallest number of pairs with which the exact test can reach 0.05 after Holm.

    >>> [seeds_needed(m) for m in (1, 3, 6, 12)]
    [6, 7, 8, 9]
    """
    return math.ceil(1 + math.log2(comparisons / LEVEL))


def differences(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return the differences over common seeds; differences within rounding error are ties."""
    seeds = sorted(set(ours) & set(theirs))
    sizes = [max(abs(ours[seed]), abs(theirs[seed])) for seed in seeds]
    grain = _NOISE * max(sizes, default=0.0) or 1.0
    return [round((ours[seed] - theirs[seed]) / grain) * grain for seed in seeds]


def compare_pairs(
    scores: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    *,
    higher_is_better: bool = True,
) -> list[Comparison]:
    """Compare each pair (strategy, reference) over common seeds, with Holm's correction over all.

    Raises ValueError if a pair has fewer than two common seeds.

    >>> a, b = {s: 0.5 + s / 100 for s in range(6)}, {s: 0.5 for s in range(6)}
    >>> [c.shift > 0 for c in compare_pairs({"a": a, "b": b}, [("a", "b"), ("b", "a")])]
    [True, False]
    """
    by_seed = [differences(scores[ours], scores[theirs]) for ours, theirs in pairs]
    t_tests = list(map(paired_t, by_seed))
    rank_tests = list(map(wilcoxon_exact, by_seed))
    corrected = zip(holm(t_tests), holm(rank_tests), strict=True)
    result = []
    for at, (t_holm, rank_holm) in enumerate(corrected):
        d = by_seed[at]
        lowest = lowest_p(len(d), len(pairs))
        note = ""
        if lowest > LEVEL:
            note = (
                f"{len(d)} pairs are too few: the smallest possible p-value of the exact test "
                f"over {count_noun(len(pairs), 'comparison')} is {lowest:.3g} after Holm's "
                f"correction; {seeds_needed(len(pairs))} seeds are required for {LEVEL}"
            )
        better = np.sign(d)
        if not higher_is_better:
            better = -better
        shift, shift_interval = hodges_lehmann(d)
        strategy, reference = pairs[at]
        comparison = Comparison(
            strategy=strategy,
            reference=reference,
            pairs=len(d),
            difference=float(np.mean(d)),
            interval=t_interval(d),
            shift=shift,
            shift_interval=shift_interval,
            t=t_tests[at],
            t_holm=t_holm,
            wilcoxon=rank_tests[at],
            holm=rank_holm,
            lowest=lowest,
            wins=int((better > 0).sum()),
            ties=int((better == 0).sum()),
            losses=int((better < 0).sum()),
            note=note,
        )
        result.append(comparison)
    return result
