"""DPFL over several cycles, its state for queries, and its gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.settings.spec import Spec
from fallow.sites.view import SiteView
from fallow.strategies.parts.committee import gather_committee
from fallow.training.personal.dpfl import load_models
from tests.sites.test_agree import TINY, check, ending
from tests.training.personal.collaborators import Federation, ran

GOES_ON = replace(
    TINY, strategy=Spec("margin"), restart="continue", validation=0.25, cycles=2, rounds=3
)


def next_cycle(simulation: Federation) -> Federation:
    """Return the same sites after a query, with only the state for the next cycle."""
    for site in simulation.members.values():
        site.forget(("own/", "average"))
    return simulation


@pytest.mark.long
def test_alone_it_goes_on_as_local_training_does_bit_for_bit() -> None:
    alone = Spec("dpfl", {"budget": 1, "tau_init": 0})
    check(
        ending(replace(GOES_ON, training=alone)),
        ending(replace(GOES_ON, training=Spec("local"))),
        atol=0,
    )


@pytest.mark.long
def test_a_fresh_cycle_warms_up_from_the_common_model_and_a_continued_one_does_not() -> (
    None
):
    first = ran(4, budget=3)
    average = first.stack_models("average")
    again = next_cycle(first).rounds(0)
    fresh = next_cycle(ran(4, budget=3))
    fresh.state = fresh.start
    fresh.rounds(0)
    near, far = ((f.stack_models("local") - average).norm(dim=1) for f in (again, fresh))
    assert (near < far).all()
    assert int(again.state["begin"]) == 1 and int(fresh.state["begin"]) == 2
    assert again.state["omega"].sum(1).max() <= 2


def test_a_random_graph_stays_and_goes_on_at_once() -> None:
    first = ran(4, budget=3, graph="static")
    before = first.state["omega"]
    received = sum(first.watch.received.values())
    again = next_cycle(first).rounds(0)
    assert torch.equal(again.state["omega"], before)
    assert sum(again.watch.received.values()) - received == before.sum()


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [
        {"budget": 3},
        {"budget": 3, "graph": "static"},
        {"budget": 3, "graph": "symmetric-and"},
        {"graph": "full"},
        {"budget": 3, "guard": "loop"},
        {"budget": 1},
    ],
)
def test_a_query_finds_the_models_that_are_in_the_average(fields: dict[str, Any]) -> None:
    simulation = ran(4, **fields)
    for k, site in enumerate(simulation.members.values()):
        view = SiteView(site, 0)
        committee = gather_committee(view)
        assert len(committee.models) == 1 + int(simulation.state["graph"][k].sum())
        mixed = sum(
            b * m["w"] for b, m in zip(committee.shares, committee.models, strict=True)
        )
        torch.testing.assert_close(mixed, site.memory["average"]["w"])


def test_after_preprocessing_in_batches_no_collaborator_is_at_hand() -> None:
    simulation = ran(1, budget=2)
    for site in simulation.members.values():
        assert len(load_models(SiteView(site, 0))) <= 2
        assert gather_committee(SiteView(site, 0)).is_alone


def test_with_a_gate_and_few_validation_rows_a_round_averages_all_candidates() -> None:
    simulation = ran(4, budget=3, gate=0.5)  # four validation examples at each site
    assert torch.equal(simulation.state["graph"], simulation.state["omega"])
    assert simulation.state["omega"].sum(1).tolist() == [2] * 5
    assert simulation.state["conflicts"].sum() == 0


def test_a_gate_on_many_validation_rows_still_chooses() -> None:
    others = ran(4, {"labels_of_site": 40, "flipped": (0, 1)}, gate=0.5).state["graph"][2:]
    assert not others[:, :2].any() and others.any()  # no site chooses the mirrored sites
