"""The papers' measures of a graph on worked examples."""

from __future__ import annotations

import math

import pytest
import torch

from fallow.training.personal.parts.graphs import graph_of, reachable
from fallow_papers.dpfl.graph_measures import (
    agreement,
    churn,
    reciprocity,
    share_from,
    sparsity,
)

SITES = ["a", "b", "c", "d"]
ROWS = {"a": ["b", "c"], "b": ["a"], "d": ["a"]}
GRAPH = graph_of(ROWS, SITES)  # a <-> b, a <- c, d <- a


def test_measures_of_a_graph_of_four_sites() -> None:
    assert sparsity(GRAPH) == pytest.approx(1 - 4 / 12)
    assert sparsity(GRAPH, with_self=True) == pytest.approx(1 - 8 / 16)
    assert agreement(GRAPH) == pytest.approx(4 / 6)  # but a-c and a-d
    assert reciprocity(GRAPH) == pytest.approx(2 / 4)
    assert math.isnan(reciprocity(torch.zeros(4, 4, dtype=torch.bool)))


def test_links_from_marked_sites_are_counted_at_the_others() -> None:
    marked = torch.tensor([False, False, True, False])
    assert share_from(GRAPH, marked) == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert math.isnan(share_from(torch.zeros(4, 4, dtype=torch.bool), marked))


def test_churn_is_the_mean_jaccard_distance() -> None:
    after = graph_of({"a": ["b"], "b": ["a"], "c": ["d"]}, SITES)
    assert churn(GRAPH, after) == pytest.approx((1 / 2 + 0 + 1 + 1) / 4)
    assert churn(GRAPH, GRAPH) == 0


def test_full_budgets_have_the_sparsity_of_the_papers_plots() -> None:
    assert sparsity(reachable("ring-2", 100), with_self=True) == pytest.approx(0.95)
