"""DPFL in full rounds: equalities, chosen peers, counting of rounds, controls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fallow.core.client import declared
from fallow.core.values import SenderFacts
from fallow.sites.view import SiteView
from fallow.training import FedAvg
from fallow.training.personal import Local
from fallow.training.personal.dpfl import DPFL, reward
from fallow.training.personal.parts.graphs import everyone
from fallow.training.personal.parts.greedy import Member, average_chosen, ggc
from tests.engine.jobs import mlp
from tests.training.personal.collaborators import (
    CONFIG,
    N,
    dpfl,
    federation,
    ran,
    share_from,
)

# -- equalities ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_budget_of_one_without_preprocessing_is_local_training_bit_for_bit(
    dtype: torch.dtype,
) -> None:
    result = ran(3, {"dtype": dtype, "make": mlp}, budget=1, tau_init=0)
    local = federation(Local(CONFIG), dtype=dtype, make=mlp).rounds(0, 1, 2)
    assert torch.equal(result.stack_models("local"), local.stack_models("local"))
    assert result.watch.received == {}


def test_averaging_everyone_in_every_round_is_fedavg() -> None:
    full = federation(dpfl(graph="full", tau_init=0), make=mlp)
    fedavg = federation(FedAvg(CONFIG), make=mlp)
    for r in range(3):
        full.rounds(r)
        fedavg.rounds(r)
        for w in full.stack_models("average"):
            assert_close(w, fedavg.state["w"], rtol=0, atol=1e-6)
    assert full.state["graph"].sum() == N * (N - 1)


@pytest.mark.long
def test_the_same_seed_gives_the_same_models_and_more_threads_change_last_digits_at_most() -> (
    None
):
    first, again = (ran(3, {"make": mlp}) for _ in range(2))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        threaded = ran(3, {"make": mlp})
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first.stack_models("local"), again.stack_models("local"))
    assert_close(
        threaded.stack_models("local"), first.stack_models("local"), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("budget", [2, 3, 4, 7])
def test_models_that_come_in_batches_are_chosen_as_if_they_came_at_once(
    budget: int,
) -> None:
    """Theorem 1 in a run: sites hold at most one batch of models and run Algorithm 2."""
    result = federation(dpfl(budget=budget)).rounds(0)
    members = [
        Member(site.memory["local"]["w"], len(site.labels))
        for site in result.members.values()
    ]
    for k, site in enumerate(result.members.values()):
        order = torch.randperm(N - 1, generator=site.streams("ggc order 0", 0))
        coins = torch.rand(
            N - 1, dtype=torch.float64, generator=site.streams("ggc coins 0", 0)
        )
        peers = [*members[:k], *members[k + 1 :]]
        earned = reward(SiteView(site, 0))
        whole = ggc(members[k], peers, earned, order, coins, budget - 1)
        for name, value in whole._asdict().items():
            assert torch.equal(
                value.nan_to_num(7.0), site.memory["search"][name].nan_to_num(7.0)
            )
        assert torch.equal(average_chosen(whole, members[k]), site.memory["average"]["w"])


# -- chosen peers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": 3},
        {"budget": 2, "counts_self": False},
        {"budget": [1, 2, 3, 4, 5]},
        {"budget": 3, "reach": "ring-1"},
        {"budget": 3, "reach": "random-2"},
        {"budget": 2, "reach": [[1, 2], [0], [], [0, 1, 2], [3]]},
        {"budget": 3, "graph": "static"},
        {"budget": 3, "graph": "resampled", "reach": "ring-1"},
        {"budget": 3, "graph": "degree"},
        {"budget": 2, "graph": "symmetric-or"},
        {"budget": 3, "graph": "symmetric-and"},
        {"budget": 3, "guard": "loop"},
    ],
)
def test_budgets_and_reach_are_never_violated(fields: dict[str, Any]) -> None:
    result = ran(4, **fields)
    least = int(fields.get("counts_self", True))
    value = fields["budget"]
    budgets = torch.tensor(value if isinstance(value, list) else [value] * N)
    for state in result.history:
        graph = state["graph"]
        assert not graph.diagonal().any()
        assert bool((graph.sum(1) <= budgets - least).all())
        assert not bool((graph & ~state["reach"]).any())
        if fields.get("graph", "ggc") in ("ggc", "symmetric-and", "static"):
            assert not bool((graph & ~state["omega"]).any())
    assert any(bool(state["graph"].any()) for state in result.history)
    sizes = dict(zip(result.watch.sites, budgets.tolist(), strict=True))
    assert all(highest <= sizes[name] for name, highest in result.watch.highest.items())


def test_the_average_of_a_round_is_the_matrix_product_of_its_graph() -> None:
    result = ran(5, budget=3)
    m = (result.state["graph"] + torch.eye(N)).double() * result.labels
    product = (m / m.sum(1, keepdim=True)) @ result.stack_models("local")
    assert_close(result.stack_models("average"), product, rtol=0, atol=1e-12)


def test_the_break_fires_in_preprocessing_alone() -> None:
    result = ran(5, budget=2)
    assert result.history[0]["broke"].any()
    assert not any(state["broke"].any() for state in result.history[2:])


def test_each_choice_costs_two_evaluations_and_two_for_every_candidate() -> None:
    result = ran(3)
    sizes = result.state["omega"].sum(1)
    assert torch.equal(result.history[0]["evaluations"], torch.full((N,), 2 * N))
    assert torch.equal(
        result.state["evaluations"], torch.where(sizes > 0, 2 + 2 * sizes, 0)
    )


def test_sites_with_mirrored_labels_are_avoided_by_the_others() -> None:
    rows = (12,) * 6
    flipped = (0, 1)
    result = ran(5, {"rows": rows, "flipped": flipped, "labels_of_site": 12})
    marked = torch.zeros(6, dtype=torch.bool)
    marked[list(flipped)] = True
    assert share_from(result.state["graph"], marked) < share_from(everyone(6), marked) / 2


def test_the_model_of_a_site_is_the_one_it_trained_before_averaging() -> None:
    result = ran(3)
    memory = result.members["a"].memory
    used = result.method.deploy(result.state, memory)
    assert torch.equal(used["w"], memory["local"]["w"])
    assert not torch.equal(used["w"], memory["average"]["w"])
    assert torch.equal(result.method.deploy(result.state, {})["w"], result.start["w"])


# -- rounds ----------------------------------------------------------------------------


def test_preprocessing_stands_for_as_many_rounds_as_its_epochs_would_take() -> None:
    values = federation(dpfl(tau_init=5)).rounds(0)  # 5 epochs, 2 per round: 3 rounds
    trained = values.stack_models("local")
    exchanges = len(values.watch.routes)
    values.rounds(1, 2)
    assert (
        torch.equal(values.stack_models("local"), trained)
        and len(values.watch.routes) == exchanges
    )
    values.rounds(3)
    assert not torch.equal(values.stack_models("local"), trained)


@pytest.mark.parametrize("between", ["reuse", "local"])
def test_between_two_choices_the_last_one_is_used_again_or_none(between: Any) -> None:
    result = ran(6, period=3, between=between)  # peers are chosen in rounds 2 and 5
    chosen, *later = [state["graph"] for state in result.history[2:5]]
    assert chosen.any()
    for graph in later:
        assert torch.equal(
            graph, chosen if between == "reuse" else torch.zeros_like(chosen)
        )
    again = 2 * int(chosen.sum()) if between == "reuse" else 0
    preprocessing = N * (N - 1)
    choices = 2 * int(result.state["omega"].sum())
    assert sum(result.watch.received.values()) == preprocessing + choices + again


# -- controls --------------------------------------------------------------------------


def test_a_static_graph_is_full_and_stays_and_a_resampled_one_changes() -> None:
    static = ran(5, graph="static", budget=3)
    other = ran(5, graph="resampled", budget=3)
    drawn = [state["graph"] for state in static.history]
    assert all(torch.equal(graph, drawn[0]) for graph in drawn)
    assert drawn[0].sum(1).tolist() == [2] * N
    fresh = [state["graph"] for state in other.history[2:]]
    assert all(graph.sum(1).tolist() == [2] * N for graph in fresh)
    assert not torch.equal(fresh[0], fresh[1])


def test_random_peers_in_the_number_of_the_greedy_choice() -> None:
    greedy = ran(3)
    random = ran(3, graph="degree")
    degrees = greedy.state["graph"].sum(1)
    assert torch.equal(random.state["graph"].sum(1), degrees)
    assert not torch.equal(random.state["graph"], greedy.state["graph"])


def test_symmetric_graphs_keep_links_with_a_reverse_or_add_it() -> None:
    greedy = ran(3, {"flipped": (0, 1)}).state["graph"]
    assert not torch.equal(greedy, greedy.T)
    both = ran(3, {"flipped": (0, 1)}, graph="symmetric-and").state["graph"]
    either = ran(3, {"flipped": (0, 1)}, graph="symmetric-or").state["graph"]
    assert torch.equal(both, greedy & greedy.T)
    assert torch.equal(either, greedy | greedy.T)


def test_the_guard_leaves_sites_alone_in_the_main_loop_only() -> None:
    result = ran(5, {"flipped": (0, 1)}, budget=3, guard="loop")
    assert not result.history[0]["guarded"].any()
    for state in result.history[2:]:
        assert not state["graph"][state["guarded"].bool()].any()
    own = result.stack_models("local")
    average = result.stack_models("average")
    for k, graph in enumerate(result.state["graph"]):
        assert graph.any() or torch.equal(own[k], average[k])


def test_a_site_reports_no_more_evaluations_than_it_can_make() -> None:
    returns = declared(DPFL())["choices"].returns
    assert returns is not None
    fields = returns.fields({})
    known = SenderFacts({"sites": 3})  # two candidates, each evaluated twice
    for name, limit in (("evaluations", 6.0), ("conflicts", 3.0)):
        assert fields[name].find_fault(name, limit, known) is None
        why = fields[name].find_fault(name, limit + 1, known)
        assert why == f"{name} is {limit + 1:g}, and the study has 3 sites"
