"""DPFL: messages, excluded sites, refused settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.sites.in_process import InProcessChannel
from fallow.sites.view import SiteView
from fallow.training.personal.dpfl import own_model, reward
from fallow.training.personal.parts import server_side
from fallow.training.personal.parts.graphs import everyone, graph_of
from fallow.training.personal.parts.greedy import Member, with_each
from fallow.transport.serialized import SerializingChannel
from tests.simulations import Forgetful
from tests.training.personal.collaborators import N, dpfl, ran

# -- messages --------------------------------------------------------------------------


def count_most_models(sites: int, budget: int, rounds: int) -> int:
    """Return the most models that a site receives in all rounds."""
    return 2 * (sites - 1) + rounds * (budget - 1)


@pytest.mark.long
def test_batches_are_paid_whole_and_what_is_received_is_bounded() -> None:
    assert count_most_models(100, 10, 98) == 1080
    result = ran(4, budget=3)
    assert max(result.watch.received.values()) <= count_most_models(N, 3, 2)
    at_once = ran(
        4, {"labels_of_site": [4, 0, 0, 0, 0]}, budget=3
    )  # two of a batch of three are used
    received = [at_once.watch.received[name] for name in "bcde"]
    assert set(received) == {(N - 1) + 3 + 2 * 2}


def test_all_that_is_received_was_sent_and_counted() -> None:
    result = ran(4, budget=3)
    # weights, and the number of labels as their weight
    size = 8 * result.start["w"].numel() + 8
    (relayed,) = [row for row in result.shown.rows() if row["kind"] == "relay"]
    assert relayed["bytes"] == sum(result.watch.received.values()) * size


@pytest.mark.long
@pytest.mark.parametrize("graph", ["ggc", "symmetric-or", "degree"])
def test_nothing_relies_on_shared_objects(graph: str) -> None:
    plain, packed = (
        ran(4, {"runtime": runtime}, budget=3, graph=graph)
        for runtime in (InProcessChannel, SerializingChannel)
    )
    assert torch.equal(plain.state["graph"], packed.state["graph"])
    assert torch.equal(plain.stack_models("average"), packed.stack_models("average"))


# -- edge cases ------------------------------------------------------------------------


def test_without_validation_rows_peers_join_until_the_budget_is_full() -> None:
    result = ran(3, {"labels_of_site": [0, 4, 0, 4, 4]}, budget=3)
    for k in (0, 2):
        assert result.state["omega"][k].sum() == result.state["graph"][k].sum() == 2
    assert result.stack_models("average").isfinite().all()


def test_a_federation_without_any_validation_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no site has any; set validation=0\.2"):
        ran(1, {"labels_of_site": 0}, budget=3)


def test_a_site_without_labels_is_nobodys_collaborator_and_takes_its_peers() -> None:
    result = ran(3, {"rows": (8, 0, 12, 5)})
    assert not result.state["graph"][:, 1].any()
    assert result.history[0]["refused"].tolist() == [False, True, False, False]
    assert result.stack_models("average").isfinite().all()
    assert result.state["graph"][1].any()


@pytest.mark.parametrize("rows", [(1, 1), (3,), (1, 9, 2)])
def test_sites_of_one_row_and_federations_of_one_site_run(rows: tuple[int, ...]) -> None:
    result = ran(4, {"rows": rows, "labels_of_site": 1})
    assert result.stack_models("average").isfinite().all()


def test_a_model_that_is_not_finite_is_refused_and_named_and_the_round_goes_on() -> None:
    result = ran(2)
    kept = result.members["c"].memory["average"]
    result.members["c"].remember(
        "average", {**kept, "w": torch.full_like(kept["w"], torch.inf)}
    )
    result.rounds(2)
    assert result.state["refused"].tolist() == [name == "c" for name in result.watch.sites]
    assert not result.state["graph"][:, 2].any()
    others = [i for i in range(N) if i != 2]
    assert result.stack_models("average")[others].isfinite().all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budget": 0}, "budget is 0 models; it must be 1 or more"),
        (
            {"budget": [2, -1], "counts_self": False},
            "budget is -1 models; it must be 0 or more",
        ),
        ({"period": 0}, "period is 0; it must be at least 1"),
        ({"tau_init": -1}, "tau_init is -1; it must be 0 or more"),
        ({"gain_tol": float("nan")}, "gain_tol is nan"),
        ({"smooth": 0}, "smooth is 0; it must be at least 1"),
        ({"between": "both"}, "between is 'both'; it must be 'reuse' or 'local'"),
        ({"guard": "on"}, "guard is 'on'; it must be 'off' or 'loop'"),
        ({"graph": "greedy"}, "graph is 'greedy'; it must be 'ggc', 'symmetric-or'"),
        ({"reach": "near"}, "reach is 'near'; use 'all'"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(dpfl(), **fields)


def test_beyond_a_budget_the_added_links_that_earn_most_are_kept() -> None:
    result = ran(3, budget=3)
    ask = Ask(
        result.watch,
        Forgetful(),
        Disclosure(),
        ExchangeKey("train", "round", cycle=9),
        "training",
    )
    chosen = graph_of({"b": ["a"], "c": ["a"], "d": ["a"], "e": ["d"]}, ask.cohort)
    either = server_side.link_both_ways(
        ask, result.method.functions, chosen, everyone(N), result.method.limits(ask)
    )
    view = SiteView(result.members["a"], 0)
    local = [result.members[name] for name in "bcd"]
    peers = [Member(site.memory["local"]["w"], len(site.labels)) for site in local]
    earned = with_each(result.method.choice(view), own_model(view), peers, reward(view))
    kept = either[0, 1:4]
    assert kept.sum() == 2 and not kept[earned.argmin()]
    assert either[3].tolist() == [True, False, False, False, True]  # d can still choose e
    assert torch.equal(either[[1, 2, 4]], chosen[[1, 2, 4]])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"budget": 3},
        {"reach": "random-2"},
        {"graph": "symmetric-or", "budget": 3},
        {"graph": "degree"},
        {"graph": "static", "budget": 3},
        {"graph": "resampled"},
        {"graph": "full"},
    ],
    ids=str,
)
def test_sites_that_stay_alone_send_and_average_nobody(fields: dict[str, Any]) -> None:
    result = ran(4, alone=("b", "d"), **fields)
    graphs = [state["graph"] for state in result.history]
    assert not any(bool(graph[[1, 3]].any()) for graph in graphs)
    assert any(bool(graph[[0, 2, 4]][:, [1, 3]].any()) for graph in graphs)
    assert not {"b", "d"} & {*result.watch.received}
    for name in "bd":
        memory = result.members[name].memory
        assert torch.equal(memory["average"]["w"], memory["local"]["w"])


def test_a_site_that_stays_alone_is_one_of_the_federation() -> None:
    with pytest.raises(ValueError, match="alone names site 'z'; known: a, b, c, d, e"):
        ran(1, alone=("a", "z"))


@pytest.mark.long
@pytest.mark.parametrize(("smooth", "kept"), [(1, 0), (2, 1), (3, 2)])
def test_gains_are_remembered_for_as_many_choices_as_asked(smooth: int, kept: int) -> None:
    outcome = ran(6, smooth=smooth)
    for site in outcome.members.values():
        assert len(site.memory["search"]["past"]) == kept
    assert (
        len(ran(3, smooth=smooth).members["a"].memory["search"]["past"]) == 0
    )  # the first choice
    packed = ran(6, {"runtime": SerializingChannel}, smooth=smooth)
    assert torch.equal(outcome.stack_models("average"), packed.stack_models("average"))
