"""Properties of personalized training for any data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from fallow.core.types import State
from fallow.engine import Loop
from fallow.engine.stacked import Stacked
from fallow.sites.view import SiteView
from fallow.training import FedAvg, FedProx
from fallow.training.personal import (
    APFL,
    Ditto,
    FedAvgFT,
    FedAvgPost,
    FedProxFT,
    KNNPer,
    Local,
    PFedGraph,
)
from tests.engine.jobs import assert_agree, linear, mlp, norm
from tests.laws.test_training_laws import ROWS
from tests.training.personal.federation import (
    CONFIG,
    METHODS,
    federation,
    first_state,
    rounds,
    run_last,
    train_and_deploy,
)

each_model = pytest.mark.parametrize("make", [linear, mlp, norm])
each_method = pytest.mark.parametrize(
    "method", METHODS, ids=lambda method: type(method).__name__
)


def assert_same(ours: dict[str, State], theirs: dict[str, State]) -> None:
    """Check bitwise equality at every site."""
    for name in theirs:
        assert torch.equal(ours[name]["w"], theirs[name]["w"])
        assert torch.equal(ours[name]["stats"], theirs[name]["stats"])


@cache
def deployed(make: Callable[[], nn.Module], method: Any) -> dict[str, State]:
    """Return the models of the sites, trained once for all tests that compare with them."""
    return train_and_deploy(make, method)


@cache
def common(make: Callable[[], nn.Module], method: Any, executor: type = Loop) -> State:
    """Return the global model after three rounds."""
    return rounds(federation(make, method, executor=executor), method, first_state(make))


@each_model
def test_ditto_without_its_pull_is_local_training_bit_for_bit(
    make: Callable[[], nn.Module],
) -> None:
    assert_same(
        deployed(make, Ditto(CONFIG, lam=0.0)),
        deployed(make, Local(CONFIG)),
    )


@each_model
def test_with_its_pull_it_is_not(make: Callable[[], nn.Module]) -> None:
    ours, alone = (
        deployed(make, Ditto(CONFIG)),
        deployed(make, Local(CONFIG)),
    )
    assert all(not torch.equal(ours[name]["w"], alone[name]["w"]) for name in alone)


@each_model
@pytest.mark.parametrize(
    "method", [Ditto(CONFIG, lam=0.3), APFL(CONFIG), FedAvgPost(CONFIG)]
)
def test_the_common_model_beside_personal_ones_is_that_of_fedavg(
    make: Callable[[], nn.Module], method: Any
) -> None:
    assert_agree(common(make, method), common(make, FedAvg(CONFIG)), atol=0)


@each_model
def test_apfl_whose_mixture_is_all_private_is_local_training_bit_for_bit(
    make: Callable[[], nn.Module],
) -> None:
    fixed = APFL(CONFIG, alpha=1.0, adaptive=False)
    assert_same(deployed(make, fixed), deployed(make, Local(CONFIG)))


@pytest.mark.parametrize("make", [linear, mlp])
def test_apfl_whose_mixture_is_all_shared_is_the_copy_of_fedavg_bit_for_bit(
    make: Callable[[], nn.Module],
) -> None:
    fixed = APFL(CONFIG, alpha=0.0, adaptive=False)
    assert_same(deployed(make, fixed), deployed(make, FedAvgPost(CONFIG)))


@each_model
def test_knn_without_weight_predicts_as_fedavg(make: Callable[[], nn.Module]) -> None:
    method = KNNPer(CONFIG, weight=0.0)
    channel = federation(make, method)
    state = rounds(channel, method, first_state(make))
    assert_agree(state, common(make, FedAvg(CONFIG)), atol=0)
    site = channel.members["a"]
    view = SiteView(site, 0)
    ours, plain = view.outputs(state, site.x), view.forward(state, site.x)
    assert_close(ours, plain.log_softmax(1), rtol=0, atol=1e-12)


@pytest.mark.long
@each_model
def test_fedprox_without_a_penalty_is_fedavg_before_and_after_tuning(
    make: Callable[[], nn.Module],
) -> None:
    ours, theirs = FedProxFT(CONFIG, mu=0.0), FedAvgFT(CONFIG)
    assert_agree(common(make, ours), common(make, FedAvg(CONFIG)), atol=0)
    assert_same(deployed(make, ours), deployed(make, theirs))


@each_model
def test_before_tuning_the_tuned_methods_are_fedavg_and_fedprox(
    make: Callable[[], nn.Module],
) -> None:
    assert_agree(common(make, FedAvgFT(CONFIG)), common(make, FedAvg(CONFIG)), atol=0)
    assert_agree(
        common(make, FedProxFT(CONFIG, mu=0.4)),
        common(make, FedProx(CONFIG, mu=0.4)),
        atol=0,
    )


@each_model
def test_a_graph_that_only_sees_shares_of_rows_is_fedavg(
    make: Callable[[], nn.Module],
) -> None:
    method = PFedGraph(CONFIG, alpha=1e6, lam=0.0)
    channel = federation(make, method)
    state = rounds(channel, method, first_state(make))
    p = torch.tensor([8.0, 6.0, 12.0]) / 26
    assert_close(state["weights"], p.double().expand(3, 3), rtol=0, atol=1e-6)
    mixed = state["weights"] @ state["models"]
    fedavg = common(make, FedAvg(CONFIG))
    assert_close(mixed, fedavg["w"].expand(3, -1), rtol=0, atol=1e-5)


@each_method
def test_the_order_of_sites_does_not_matter(method: Any) -> None:
    in_order = train_and_deploy(mlp, method, n=2)
    in_reverse = train_and_deploy(mlp, method, dict(reversed(ROWS.items())), n=2)
    assert_same(in_order, in_reverse)


@each_method
def test_both_executors_deploy_the_same(method: Any) -> None:
    rows = {"one row": 1, "one batch": 4, "odd": 7, "none": 0, "many": 13}
    there, back = (
        train_and_deploy(mlp, method, rows, executor) for executor in (Loop, Stacked)
    )
    for name in rows:
        assert bool(there[name]["w"].isfinite().all())
        assert_agree(back[name], there[name])


@each_method
def test_a_site_without_labels_leaves_the_others_as_they_are(method: Any) -> None:
    alone = train_and_deploy(mlp, method, n=2)
    beside = train_and_deploy(mlp, method, {**ROWS, "d": 0}, n=2)
    for name in alone:
        assert_close(beside[name]["w"], alone[name]["w"], rtol=0, atol=1e-12)


@each_method
def test_one_site_with_one_batch_trains(method: Any) -> None:
    (model,) = train_and_deploy(mlp, method, {"a": 3}).values()
    assert bool(model["w"].isfinite().all())
    assert not torch.equal(model["w"], first_state(mlp)["w"])


@each_method
def test_sites_that_come_and_go_train_on(method: Any) -> None:
    channel = federation(mlp, method)
    cohorts = {0: ("a", "b"), 1: ("b", "c"), 2: ("a",)}
    state = rounds(channel, method, first_state(mlp), 4, cohorts)
    if hasattr(method, "last"):
        run_last(channel, method, state)
    models = [method.deploy(state, site.memory)["w"] for site in channel.members.values()]
    assert all(
        bool(w.isfinite().all()) and not torch.equal(w, first_state(mlp)["w"])
        for w in models
    )


@each_method
def test_the_same_seed_gives_the_same_models(method: Any) -> None:
    rows = {"a": 6, "b": 4}
    once = train_and_deploy(norm, method, rows, n=2)
    again = train_and_deploy(norm, method, rows, n=2)
    assert_same(once, again)
