from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.engine.forward import forward
from fallow.models.networks import Linear, ResNet8
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import BALD
from fallow.strategies.bald import drop_features, information
from fallow.training import FedAvg
from tests.models.owned import Own
from tests.simulations import Table, simulation, tables


def view_of(model: nn.Module, x: Tensor, strategy: BALD, labels: int = 2) -> SiteView:
    """Return a view of a site with this local model; its first examples are labeled."""
    layout = Layout.of(model)
    methods: Methods = {"query": strategy, "training": FedAvg(), "plain": FedAvg()}
    parts = RunComponents(
        model, layout, methods, 3, 0, lambda generator: layout.flatten(model)
    )
    site = LocalSite("a", x, parts, MemoryStore())
    site.buy([Label(row, row % 3, 0) for row in range(labels)])
    site.remember("local", layout.flatten(model))
    return SiteView(site, 0)


def mutual_information(members: Sequence[Tensor] | Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of the members from their mean."""
    p = torch.stack([member.double().softmax(1) for member in members])
    return (p * (p.log() - p.mean(0).log())).sum(2).mean(0)


def test_information_is_the_mean_divergence_from_the_mean_prediction() -> None:
    members = torch.randn(5, 20, 4, generator=stream(0, "members"))
    score = information(members)
    assert_close(score, mutual_information(members))
    assert (score > 0).all() and (score < torch.tensor(4.0).log()).all()


def test_information_by_hand() -> None:
    p = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]], dtype=torch.float64)
    by_hand = (
        0.610864 - (0.325083 + 0.693147) / 2
    )  # H(.7, .3) - (H(.9, .1) + H(.5, .5)) / 2
    assert information(p.log()).tolist() == pytest.approx([by_hand], abs=2e-6)


def test_members_that_agree_say_nothing_however_unsure_they_are() -> None:
    same = torch.zeros(3, 2)
    assert information([same, same]).tolist() == [0.0] * 3


def test_half_of_the_features_are_dropped_and_the_mean_stays() -> None:
    values = drop_features(torch.ones(200, 50), stream(0, "drop"))
    assert set(values.flatten().tolist()) == {0.0, 2.0}
    assert float(values.mean()) == pytest.approx(1, abs=0.03)


def test_a_model_without_dropout_gets_half_of_its_features() -> None:
    member = simulation({"a": tables()["a"]}, BALD()).members["a"]
    members = list(BALD(passes=2).committee(SiteView(member, 0)))
    assert not torch.equal(members[0], members[1])
    one = members[0] / member.x[:12, :3]  # a logit of the tests' model is one feature
    assert set(one.flatten().tolist()) == {0.0, 2.0}


def test_batch_norm_stays_in_evaluation_mode() -> None:
    model = ResNet8((3, 16, 16), 3)
    model.reset(stream(0, "weights"))
    view = view_of(model, torch.randn(9, 3, 16, 16, generator=stream(0, "x")), BALD())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = {name: value.clone() for name, value in view.model("local").items()}
    z, draw = view.embed("local"), view.stream("dropout")
    for member in BALD(passes=2).committee(view):
        assert_close(member, model.head(drop_features(z, draw)).detach())
    assert all(
        torch.equal(before[name], value) for name, value in model.state_dict().items()
    )
    assert all(
        torch.equal(state[name], value) for name, value in view.model("local").items()
    )


def test_a_model_with_dropout_uses_its_own() -> None:
    model = Own((5,), 3)
    x = torch.randn(9, 5, generator=stream(0, "x"))
    view = view_of(model, x, BALD())
    assert view.draws
    draw, layout = view.stream("dropout"), view.layout
    for member in BALD(passes=3).committee(view):
        assert torch.equal(member, forward(model, layout, view.model("local"), x[2:], draw))


def test_a_classifier_without_a_bias_is_a_classifier() -> None:
    model = Linear((4,), 3)
    model.head = torch.nn.Linear(4, 3, bias=False)
    view = view_of(model, torch.ones(5, 4), BALD())
    assert [member.shape for member in BALD(passes=2).committee(view)] == [(3, 3)] * 2


def test_an_ensemble_is_the_local_and_the_global_model() -> None:
    site = tables(rows=30)["a"]
    order = mutual_information([site.local, site.common]).argsort(descending=True)
    assert (
        simulation({"a": site}, BALD(ensemble=True)).selected(9)["a"] == order[:9].tolist()
    )


def test_the_contract_of_an_ensemble_says_what_it_reads_and_that_it_draws_nothing() -> None:
    assert BALD(ensemble=True).contract.needs == ("local", "global")
    assert not BALD(ensemble=True).contract.draws
    assert BALD().contract.needs == ("local",) and BALD.contract.draws


def test_a_site_without_labels_has_one_model_twice_and_picks_at_random() -> None:
    site = tables()["a"]
    bare = {"a": Table(site.local, site.common)}
    selected = {
        tuple(simulation(bare, BALD(ensemble=True), seed).selected(3)["a"])
        for seed in range(8)
    }
    assert len(selected) > 4
