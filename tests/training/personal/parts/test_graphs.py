"""Graphs over sites: permitted senders."""

from __future__ import annotations

import pytest
import torch

from fallow.training.personal.parts.graphs import (
    everyone,
    graph_of,
    parse,
    peers,
    reachable,
)
from fallow.training.personal.parts.server_side import ChoiceLimits

SITES = ["a", "b", "c", "d"]
ROWS = {"a": ["b", "c"], "b": ["a"], "d": ["a"]}
GRAPH = graph_of(ROWS, SITES)  # a <-> b, a <- c, d <- a


def test_a_graph_and_its_rows_are_the_same_thing() -> None:
    assert GRAPH.int().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert peers(GRAPH, SITES) == ROWS


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_nobody_reaches_itself(n: int) -> None:
    for reach in ("all", "ring-1", "ring-9", [list(range(n))] * n):
        graph = reachable(reach, n)
        assert not graph.diagonal().any()
    assert torch.equal(reachable("ring-9", n), everyone(n))


def test_reach_may_be_listed_site_by_site() -> None:
    assert torch.equal(reachable([[1, 2], [0], [], [0]], 4), GRAPH)


@pytest.mark.parametrize(
    ("reach", "message"),
    [
        ([[1], [0]], "lists 2 sites; give one list for each of the 3"),
        ([[1], [3], [0]], "lists 3 sites and the number 3; .* from 0 to 2"),
    ],
)
def test_a_wrong_list_is_refused(reach: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reachable(reach, 3)


@pytest.mark.parametrize("reach", ["ring", "ring-", "ring--1", "star", "all-2", ""])
def test_another_word_is_refused(reach: str) -> None:
    with pytest.raises(ValueError, match="use 'all', 'ring-K', 'random-K' or a list"):
        parse(reach)


def test_a_budget_counts_the_site_itself_unless_told_otherwise() -> None:
    assert ChoiceLimits.of(3, True, SITES).room.tolist() == [2, 2, 2, 2]
    assert ChoiceLimits.of(3, False, SITES).room.tolist() == [3, 3, 3, 3]
    assert ChoiceLimits.of(None, True, SITES).room.tolist() == [3, 3, 3, 3]
    item = ChoiceLimits.of([1, 2, 3, 4], True, SITES)
    assert item.room.tolist() == [0, 1, 2, 3]
    assert item.batch == {"a": 1, "b": 2, "c": 3, "d": 4}
    with pytest.raises(ValueError, match="budgets for 2 sites and 4 sites"):
        ChoiceLimits.of([1, 2], True, SITES)
