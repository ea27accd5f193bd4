"""How near picks are to what collaborators have labeled, against the plain form."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from fallow.experiment.record import Record
from fallow.experiment.redundancy import collaborators, redundancy
from fallow.experiment.world import World
from fallow.sites.view import SiteView
from tests.experiment.test_personal_environment import run_recipe


def run_with_queries(training: str) -> tuple[World, list[Record]]:
    return run_recipe(
        training=training, cycles=1, initial=6, budget=3, rounds=3, restart="continue"
    )


def make_world_with_picks(training: str = "dpfl:graph=full") -> World:
    world, _ = run_with_queries(training)
    for k, site in enumerate(world.members.values()):
        site.remember("picks", {"rows": site.pool[k : k + 2]})
    return world


def test_it_is_the_mean_of_the_largest_cosines_to_rows_of_collaborators() -> None:
    world = make_world_with_picks()
    result = []
    for name, site in world.members.items():
        others = [other for other in world.members if other != name]
        assert collaborators(site) == others
        view = SiteView(site, 0)
        known = torch.cat([world.members[o].seen[world.members[o].bought] for o in others])
        z = view.look(site.memory["average"], known)[0].double()
        for row in site.memory["picks"]["rows"]:
            mine = view.look(site.memory["average"], site.seen[row][None])[0].double()
            result.append(float(cosine_similarity(mine, z).max()))
    assert redundancy(world) == pytest.approx(sum(result) / len(result), abs=1e-6)


def test_what_a_collaborator_has_labeled_itself_is_as_redundant_as_can_be() -> None:
    world = make_world_with_picks()
    first, second, *_ = world.members.values()
    rows = first.memory["picks"]["rows"]
    second.x[second.bought.nonzero()[:2, 0]] = first.x[rows]
    for site in world.members.values():
        if site is not first:
            site.remember("picks", None)
    assert redundancy(world) == pytest.approx(1.0, abs=1e-6)


def test_without_collaborators_there_is_none() -> None:
    assert redundancy(make_world_with_picks("local")) is None
    assert redundancy(make_world_with_picks("dpfl:budget=1")) is None
    world = make_world_with_picks()
    for site in world.members.values():
        site.remember("picks", None)
    assert redundancy(world) is None


def test_records_have_it_for_every_query() -> None:
    for training, is_known in (("dpfl:graph=full", True), ("local", False)):
        _, rows = run_with_queries(training)
        first = rows[0]["pseudo_labels"]
        last = rows[-1]["pseudo_labels"]
        assert isinstance(first, dict) and last is None
        assert (first["redundancy"] is not None) == is_known
