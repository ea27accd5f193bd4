"""Graphs read from records, and their measures for four sites."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fallow.experiment.record import Record
from fallow.experiment.steps import describe_collaboration
from fallow.report.blocks import Figure
from fallow.study.records import ClassCounts, RunRecords
from fallow_papers.dpfl.figures import asymmetry
from fallow_papers.dpfl.graphs import (
    Graphs,
    all_graphs,
    at,
    graphs_of,
    links_and_dropped,
    measure_graph,
    over_rounds,
    snapshots,
)
from fallow_papers.dpfl.sections import graphs, scatter
from tests.report.test_sites import DPFL, LOCAL, row, study

SITES = ("a", "b", "c", "d")
FIRST = {"a": ["b", "c"], "b": ["a"], "d": ["a"]}  # a <-> b, a <- c, d <- a
THEN = {"a": ["b"], "b": ["a"], "c": ["d"]}
OMEGA = {"a": ["b", "c"], "b": ["a", "d"], "c": ["d"], "d": ["a"]}


Graph = dict[str, list[str]]


def record(
    graph: Graph, round_: int, omega: Graph | None = None, evaluations: int = 18
) -> Record:
    """Return the record of a round in which sites chose ``graph`` among ``omega``."""
    scores = {"a": 0.5, "b": 0.5, "d": None}  # c has flipped labels
    outcome = row(scores, round_)
    outcome["graph"] = graph
    outcome["evaluations"] = evaluations
    outcome["conflicts"] = 1
    if omega is not None:
        outcome["omega"] = omega
    return outcome


def cell() -> RunRecords:
    rows = (record(FIRST, 0), record(THEN, 1, omega=OMEGA))
    part = ClassCounts(("b", "a", "d", "c"), ("0", "1"), ((0, 2), (4, 0), (1, 1), (1, 1)))
    return RunRecords(DPFL, 0, rows, part, 0)


@pytest.fixture
def run() -> Graphs:
    graphs = graphs_of(cell(), True)
    assert graphs is not None
    return graphs


def test_graphs_are_read_by_round_with_the_sites_whose_labels_are_wrong(
    run: Graphs,
) -> None:
    assert (run.sites, run.first, run.last) == (SITES, 0, 1)
    assert run.wrong.tolist() == [False, False, True, False]
    assert run.base == pytest.approx(1 / 3)
    assert run.by_round[1].int().tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
    ]
    assert run.omega is not None and int(run.omega.sum()) == 6


def test_a_graph_of_four_sites_by_hand(run: Graphs) -> None:
    first = measure_graph(run, 0)
    assert (first.sparsity, first.with_self) == pytest.approx((8 / 12, 8 / 16))
    assert (first.agreement, first.reciprocity) == pytest.approx((4 / 6, 2 / 4))
    assert first.wrong == pytest.approx(
        (1 / 2 + 0 + 0) / 3
    )  # of a's two links; c's do not count
    assert first.popular == 2  # a sends to b and d
    assert math.isnan(first.churn) and math.isnan(first.distance)
    assert measure_graph(run, 1).churn == pytest.approx((1 / 2 + 0 + 1 + 1) / 4)


def test_distance_is_between_the_classes_of_receivers_and_senders(run: Graphs) -> None:
    outcome = study({(DPFL, 0): []})
    outcome = replace(outcome, cells=(cell(),))
    # a: only class 0, b: only class 1, c and d: half of each
    assert at(outcome, [run], lambda r: r.last).distance == pytest.approx((1 + 1 + 0) / 3)


def test_decisions_by_a_coin_are_counted_among_all_visits(run: Graphs) -> None:
    # 4 sites with candidates start with 2 evaluations in each of 2 rounds: 36 - 16 = 2 x 10
    # visits
    assert run.conflicts == pytest.approx(2 / 10)
    without = graphs_of(RunRecords(DPFL, 0, (record(FIRST, 0),), None, 0), True)
    assert without is not None and math.isnan(without.conflicts)
    # a file from others may lack the counts of a round
    uncounted = record(FIRST, 0)
    del uncounted["evaluations"], uncounted["conflicts"]
    rows = (uncounted, record(THEN, 1, omega=OMEGA, evaluations=36))
    graphs = graphs_of(RunRecords(DPFL, 0, rows, None, 0), True)
    assert graphs is not None
    assert graphs.conflicts == pytest.approx(1 / 10)


def test_what_is_dropped_are_candidates_without_a_link(run: Graphs) -> None:
    links, dropped = links_and_dropped(run, 1)
    assert links.int().sum() == 3
    assert dropped.int().tolist() == [
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]


def test_means_over_runs_leave_out_what_is_not_defined(run: Graphs) -> None:
    empty = replace(
        run, by_round=dict.fromkeys(run.by_round, torch.zeros(4, 4, dtype=torch.bool))
    )
    values = over_rounds([run, empty], lambda r, t: measure_graph(r, t).reciprocity)
    assert values == {0: [0.5], 1: [pytest.approx(2 / 3)]}


def test_a_method_without_a_graph_has_none() -> None:
    values = study({(LOCAL, 0): [row({"a": 0.5})], (DPFL, 0): [record(FIRST, 0)]})
    assert list(all_graphs(values)) == [DPFL]


def test_asymmetric_pairs_are_linked_in_one_direction(run: Graphs) -> None:
    assert asymmetry(run, 0) == pytest.approx(2 / 6)  # a <- c and d <- a, of six pairs


def test_every_budget_has_a_picture_of_its_graph() -> None:
    other = "random@training=dpfl:budget=2"
    values = study({(q, 0): [record(FIRST, 0), record(THEN, 1)] for q in (DPFL, other)})
    figures = [block for block in graphs(values, "k") if isinstance(block, Figure)]
    assert len(figures) == 3  # one for each strategy, and one over rounds
    assert "budget" in figures[1].caption or "2 models" in figures[1].caption
    assert "Asymmetric pairs, %" in figures[2].svg


def test_accuracy_and_variance_are_a_picture_with_a_point_for_every_strategy() -> None:
    values = study(
        {
            (LOCAL, 0): [row({"a": 0.5, "b": 0.7})],
            (DPFL, 0): [row({"a": 0.8, "b": 0.9})],
        }
    )
    (figure,) = scatter(values, "k")
    assert isinstance(figure, Figure)
    assert "Local 60.00 %, variance 100.0" in figure.svg
    assert "DPFL 85.00 %, variance 25.0" in figure.svg
    assert scatter(study({(DPFL, 0): [row({"a": 0.8})]}), "k") == []


def test_snapshots_are_the_first_and_the_last_and_some_between(run: Graphs) -> None:
    assert snapshots(run, 4) == [0, 1]
    assert snapshots(run, 1) == [0]


def test_a_record_holds_what_the_state_of_a_method_knows() -> None:
    graph = torch.zeros(2, 2, dtype=torch.bool)
    graph[1, 0] = True
    counts = {
        name: torch.tensor([3, 4]) for name in ("evaluations", "conflicts", "guarded")
    }
    state = {
        "graph": graph,
        "omega": ~torch.eye(2, dtype=torch.bool),
        **counts,
        "refused": torch.tensor([True, False]),
    }
    assert describe_collaboration(state, ["x", "y"], is_last=False) == {
        "graph": {"y": ["x"]},
        "refused": ["x"],
        "evaluations": 7,
        "conflicts": 7,
        "guarded": 7,
    }
    assert describe_collaboration(state, ["x", "y"], is_last=True)["omega"] == {
        "x": ["y"],
        "y": ["x"],
    }
    assert describe_collaboration({"w": torch.zeros(1)}, ["x", "y"], is_last=True) == {}
    assert describe_collaboration({"graph": graph}, ["x", "y", "z"], is_last=True) == {}
