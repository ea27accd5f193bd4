"""Ranking of scores: ties, examples without a score, and short lists."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, tensor

from fallow.core.streams import stream
from fallow.strategies.parts.top import apportion, fill, rank_rows, top


def test_the_largest_scores_come_first() -> None:
    assert top(tensor([0.2, 0.9, 0.1, 0.5]), 3, stream(0, "ties")).tolist() == [1, 3, 0]


def test_asking_for_more_than_there_is_gives_everything() -> None:
    assert sorted(top(tensor([0.2, 0.9]), 5, stream(0, "ties")).tolist()) == [0, 1]
    assert top(torch.empty(0), 5, stream(0, "ties")).tolist() == []
    assert top(tensor([0.2, 0.9]), 0, stream(0, "ties")).tolist() == []


def test_ties_are_broken_by_the_stream_and_not_by_position() -> None:
    firsts = {int(rank_rows(torch.zeros(4), stream(seed, "ties"))[0]) for seed in range(40)}
    assert firsts == {0, 1, 2, 3}
    again = [rank_rows(torch.zeros(4), stream(1, "ties")).tolist() for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_a_finite_score_comes_after_the_smallest(bad: float) -> None:
    for seed in range(20):  # a tie with the smallest weight could otherwise come first
        assert (
            rank_rows(tensor([bad, 0.0, 0.5, 0.0]), stream(seed, "ties")).tolist()[3] == 0
        )


def test_scores_of_which_none_is_finite_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"all 2 scores are NaN or infinite.*learning rate"
    ):
        rank_rows(tensor([math.nan, math.inf]), stream(0, "ties"))


counts = st.lists(st.integers(0, 60), min_size=1, max_size=12)


def by_fractions(n: int, weight: list[Fraction]) -> list[int]:
    """Compute largest remainders in exact arithmetic."""
    share = [n * w / sum(weight) for w in weight]
    quota = [int(s) for s in share]
    order = sorted(range(len(share)), key=lambda c: (quota[c] - share[c], -weight[c], c))
    for c in order[: n - sum(quota)]:
        quota[c] += 1
    return quota


@given(counts, st.integers(0, 400))
@example([5, 1], 3)  # 0.5 and 2.5, up to rounding; the larger weight wins the tie
@example([11, 1], 18)  # 1.5 and 16.5
@example([0, 12, 12, 6, 3], 36)
def test_apportion_is_the_method_of_largest_remainders_without_rounding_noise(
    counts_at_site: list[int], n: int
) -> None:
    exact = [Fraction(1, max(1, k)) for k in counts_at_site]
    weight = 1 / tensor(counts_at_site, dtype=torch.float64).clamp_min(1)
    assert apportion(n, weight).tolist() == by_fractions(n, exact)


@st.composite
def demands(draw: st.DrawFn) -> tuple[int, Tensor, Tensor]:
    counts_at_site = draw(counts)
    caps = draw(
        st.lists(
            st.integers(0, 40), min_size=len(counts_at_site), max_size=len(counts_at_site)
        )
    )
    zero = draw(st.sets(st.integers(0, len(counts_at_site) - 1)))
    weight = [0.0 if c in zero else 1 / max(1, k) for c, k in enumerate(counts_at_site)]
    return draw(st.integers(0, 300)), tensor(weight, dtype=torch.float64), tensor(caps)


@given(demands())
def test_fill_spends_all_it_can_and_never_more_than_a_class_holds(
    demand: tuple[int, Tensor, Tensor],
) -> None:
    n, weight, caps = demand
    quota = fill(n, weight, caps)
    assert int(quota.sum()) == min(n, int(caps.sum()))
    assert bool(((quota >= 0) & (quota <= caps)).all())
    needed = min(n, int(caps[weight > 0].sum()))  # weight 0 is used when the rest is full
    assert int(quota[weight > 0].sum()) == needed or not bool(weight.any())


def test_a_class_of_weight_zero_gets_what_nobody_else_can_take() -> None:
    assert fill(6, tensor([1.0, 0.0, 0.0]), tensor([2, 9, 9])).tolist() == [2, 2, 2]


def test_weights_that_are_all_zero_share_evenly() -> None:
    assert fill(5, torch.zeros(3), tensor([9, 9, 9])).tolist() == [2, 2, 1]


@pytest.mark.parametrize(
    "weight", [[1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")], [0.0]]
)
def test_weights_without_proportions_are_refused(weight: list[float]) -> None:
    with pytest.raises(ValueError, match=r"weights .* give no proportions"):
        apportion(3, tensor(weight))
