from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as sp

from fallow.study import statistics as stats


def draws(n: int, seed: int = 0) -> list[float]:
    drawn: list[float] = np.random.default_rng(seed).normal(0.3, 1, n).tolist()
    return drawn


@pytest.mark.parametrize("n", [2, 5, 6, 10, 16])
def test_the_exact_test_is_scipys_without_ties(n: int) -> None:
    d = draws(n, n)
    assert stats.wilcoxon_exact(d) == pytest.approx(sp.wilcoxon(d, method="exact").pvalue)


@pytest.mark.parametrize(
    "d", [[1, 1, -1, 2, 2, 3], [0, 0, 1, -2, 2], [1, 1, 1, 1], [0, -1, -1, 2, 2, 2, -3]]
)
def test_ties_and_zeros_agree_with_enumerating_every_sign(d: list[float]) -> None:
    kept = np.array([x for x in d if x])
    ranks = sp.rankdata(abs(kept))
    seen = ranks[kept > 0].sum()
    sums = [
        ranks[np.array(signs)].sum()
        for signs in itertools.product([True, False], repeat=len(kept))
    ]
    below = np.mean(np.array(sums) <= seen)
    above = np.mean(np.array(sums) >= seen)
    assert stats.wilcoxon_exact(d) == pytest.approx(min(1, 2 * min(below, above)))


@pytest.mark.parametrize(("n", "p"), [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_few_pairs_bound_the_exact_p_from_below(n: int, p: float) -> None:
    assert stats.wilcoxon_exact(list(range(1, n + 1))) == p == stats.lowest_p(n)


def test_all_zero_differences_have_p_one() -> None:
    assert stats.wilcoxon_exact([0.0, 0.0, 0.0]) == stats.paired_t([0.0, 0.0, 0.0]) == 1


def test_the_t_test_and_its_interval_are_scipys() -> None:
    d = draws(8)
    expected = sp.ttest_1samp(d, 0)
    interval = stats.t_interval(d)
    assert stats.paired_t(d) == pytest.approx(expected.pvalue)
    assert (interval.low, interval.high) == pytest.approx(
        tuple(expected.confidence_interval())
    )


def test_hodges_lehmann_by_hand() -> None:
    shift, interval = stats.hodges_lehmann([1.0, 4.0])  # Walsh averages 1, 2.5, 4
    assert (shift, interval) == (2.5, None)


def test_the_rank_interval_of_ten_pairs_is_the_tabled_one() -> None:
    d = draws(10)
    walsh = sorted((a + b) / 2 for i, a in enumerate(d) for b in d[i:])
    _, interval = stats.hodges_lehmann(d)
    assert interval is not None  # from tables: 9th from each end, 95.1 %
    assert (interval.low, interval.high) == pytest.approx((walsh[8], walsh[-9]))
    assert interval.level == pytest.approx(0.951, abs=5e-4)


@given(st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=6, max_size=12))
def test_an_interval_without_zero_goes_with_a_small_p(d: list[float]) -> None:
    if len(set(map(abs, d))) < len(d) or 0 in d:
        return  # without ties, the duality is exact
    _, interval = stats.hodges_lehmann(d)
    assert interval is not None
    outside = interval.low > 0 or interval.high < 0
    assert outside == (stats.wilcoxon_exact(d) <= 1 - interval.level + 1e-12)


def test_holm_by_hand() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p(p: list[float]) -> None:
    adjusted = stats.holm(p)
    assert all(a >= q for a, q in zip(adjusted, p, strict=True))
    assert [adjusted[i] for i in np.argsort(p, kind="stable")] == sorted(adjusted)


@pytest.mark.parametrize(("m", "n"), [(1, 6), (3, 7), (6, 8), (12, 9)])
def test_seeds_needed_are_those_of_the_rule(m: int, n: int) -> None:
    assert stats.seeds_needed(m) == n
    assert stats.lowest_p(n, m) <= stats.LEVEL < stats.lowest_p(n - 1, m)


def scores(**shift: float) -> dict[str, dict[int, float]]:
    return {
        name: {s: 0.5 + by + s * (1 + by) / 100 for s in range(8)}
        for name, by in shift.items()
    }


def compare(
    scores: dict[str, dict[int, float]], reference: str, *, higher_is_better: bool = True
) -> list[stats.Comparison]:
    """Compare every other strategy with the reference."""
    pairs = [(strategy, reference) for strategy in scores if strategy != reference]
    return stats.compare_pairs(scores, pairs, higher_is_better=higher_is_better)


def test_compare_pairs_over_common_seeds_only() -> None:
    given_scores = scores(a=0.1, b=0.0)
    given_scores["a"][99] = 0.0
    (outcome,) = compare(given_scores, "b")
    assert outcome.pairs == 8
    assert (outcome.wins, outcome.ties, outcome.losses) == (8, 0, 0)
    assert outcome.difference == pytest.approx(0.1 + 0.035 * 0.1)
    assert outcome.is_distinct
    assert not outcome.note


def test_holm_runs_over_all_queries_of_the_table() -> None:
    comparisons = compare(scores(a=0.1, b=0.2, c=0.3, ref=0.0), "ref")
    assert [c.holm for c in comparisons] == [3 * c.wilcoxon for c in comparisons]


def test_rounding_is_a_tie_and_not_a_win() -> None:
    (comparison,) = compare({"a": {0: 0.1 + 0.2, 1: 0.7}, "b": {0: 0.3, 1: 0.7}}, "b")
    assert (comparison.wins, comparison.ties, comparison.losses) == (0, 2, 0)
    assert comparison.wilcoxon == 1


def test_a_lower_error_is_a_win() -> None:
    (values,) = compare(scores(a=-0.1, b=0.0), "b", higher_is_better=False)
    assert (values.wins, values.losses) == (8, 0)
    assert values.difference < 0


def test_too_few_seeds_are_named_with_the_number_that_would_do() -> None:
    few = {
        q: dict(itertools.islice(s.items(), 6))
        for q, s in scores(a=0.1, b=0.2, c=0.0).items()
    }
    outcome = compare(few, "c")
    assert not any(c.can_tell or c.is_distinct for c in outcome)
    assert "6 pairs are too few" in outcome[0].note
    assert "7 seeds are required for 0.05" in outcome[0].note


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: compare({"a": {0: 1.0, 1: 2.0}, "b": {1: 1.0, 2: 1.0}}, "b"),
            "1 differences .* give at least two",
        ),
        (lambda: stats.wilcoxon_exact([1.0]), "at least two"),
        (lambda: stats.paired_t([1.0, math.nan]), "finite"),
        (lambda: stats.mean_sd([]), "no mean"),
    ],
)
def test_wrong_use_is_refused_with_the_way_out(
    call: Callable[[], object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_pairs_with_different_references_are_adjusted_together() -> None:
    base = {s: 0.5 + s / 10 for s in range(8)}
    scores = {"a": base, "b": {s: v + 0.01 for s, v in base.items()}, "c": {0: 1.0, 1: 1.0}}
    first, second = stats.compare_pairs(scores, [("b", "a"), ("a", "b")])
    assert first.difference == pytest.approx(0.01)
    assert second.difference == pytest.approx(-0.01)
    assert first.wins == second.losses == 8
    assert first.holm == second.holm == 2 * first.wilcoxon
    alone = stats.compare_pairs(scores, [("b", "a")])[0]
    assert alone == compare({"a": base, "b": scores["b"]}, "a")[0]
    with pytest.raises(ValueError, match="0 differences"):
        stats.compare_pairs({**scores, "d": {9: 0.1}}, [("d", "a")])
