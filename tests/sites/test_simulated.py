"""An oracle that knows every label and counts requests."""

from __future__ import annotations

import pytest
import torch

from fallow.sites.in_process import Simulated

HIDDEN = {"a": torch.tensor([3, 1, 2]), "b": torch.tensor([0])}


def test_it_answers_what_was_asked_once() -> None:
    oracle = Simulated(HIDDEN)
    oracle.submit({"a": torch.tensor([2, 0])})
    assert oracle.poll() == {"a": {2: 2.0, 0: 3.0}}
    assert oracle.poll() == {}


def test_it_counts_and_keeps_the_budget() -> None:
    oracle = Simulated(HIDDEN, limit={"a": 2, "b": 1})
    oracle.submit({"a": torch.tensor([0, 1])})
    assert oracle.spent == {"a": 2}
    with pytest.raises(
        ValueError, match="site a requests 1 labels, but its label budget has 0 left"
    ):
        oracle.submit({"a": torch.tensor([2])})
    assert oracle.spent == {"a": 2}


def test_cancelled_questions_cost_nothing() -> None:
    oracle = Simulated(HIDDEN, limit={"a": 2})
    oracle.submit({"a": torch.tensor([0, 1])})
    assert oracle.cancel("a") == 2
    assert oracle.spent == {"a": 0} and oracle.poll() == {}


def test_totals_are_those_of_all_rows() -> None:
    assert Simulated(HIDDEN).totals("a", 4).tolist() == [0, 1, 1, 1]
