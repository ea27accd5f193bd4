"""Ranking scores: ties, rows without a score, and short lists."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from fallow.core.streams import stream
from fallow.strategies.parts import rank_rows, top


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
    for seed in range(20):  # a tie with the smallest would now and then put it before
        assert (
            rank_rows(tensor([bad, 0.0, 0.5, 0.0]), stream(seed, "ties")).tolist()[3] == 0
        )


def test_scores_of_which_none_is_finite_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"all 2 scores are NaN or infinite.*learning rate"
    ):
        rank_rows(tensor([math.nan, math.inf]), stream(0, "ties"))
