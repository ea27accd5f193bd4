"""Equalities of personalized algorithms in full runs: data, labels, batches and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.types import State
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.spec import Spec
from tests.sites.test_agree import TINY

OWN = replace(
    TINY,
    partition=Spec("patho", {"min_samples": 4}),
    sites=4,
    rows=200,
    test_rows=100,
    validation=0.25,
    test="own",
    strategy=Spec("random"),
    budget_allocation="proportional",
    initial=0.4,
    budget=0.1,
    cycles=1,
    rounds=3,
    dtype="float32",
)
SCORES = (
    "accuracy",
    "per_site",
    "accuracy_weighted",
    "variance",
    "worst_tenth",
    "retained",
)
each_executor = pytest.mark.parametrize("executor", ["loop", "stacked"])


class Ended(NamedTuple):
    """Results of a run: coordinator state, state kept by each site, and the last record."""

    state: State
    memory: Mapping[str, Mapping[str, State]]
    row: Mapping[str, Any]

    def kept(self, name: str) -> Tensor:
        """Return a model that every site keeps, (N, d)."""
        return torch.stack([memory[name]["w"] for memory in self.memory.values()])

    @property
    def scores(self) -> list[Any]:
        return [self.row.get(name) for name in SCORES]


def ran(training: str, fields: Mapping[str, Any] | None = None, **changes: Any) -> Ended:
    event_log = EventLog()
    config = replace(OWN, training=Spec(training, fields or {}), **changes)
    simulation = build_environment(config, 0, event_log)
    rows = ExperimentRun(simulation, event_log).go()
    done = event_log.load_step(f"{config.cycles}/train")
    assert done is not None
    return Ended(
        done["state"], {n: s.memory for n, s in simulation.members.items()}, rows[-1]
    )


def assert_same(ours: Ended, theirs: Ended, name: str = "best") -> None:
    """Check bitwise equality of every site's model, chosen rounds and scores."""
    assert torch.equal(ours.kept(name), theirs.kept(name))
    assert ours.scores == theirs.scores


@pytest.fixture(scope="module")
def fedavg() -> Ended:
    return ran("fed-avg")


@pytest.fixture(scope="module")
def local() -> Ended:
    return ran("local")


@pytest.mark.long
@each_executor
def test_dpfl_with_a_budget_of_one_is_local_training(executor: Any) -> None:
    alone = ran("dpfl", {"budget": 1, "tau_init": 0}, executor=executor)
    local = ran("local", executor=executor)
    assert_same(alone, local)
    assert_same(alone, local, "local")
    assert not alone.state["graph"].any()


@pytest.mark.long
@each_executor
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_dpfl_in_which_everyone_averages_everyone_is_fedavg_after_every_round(
    executor: Any, rounds: int
) -> None:
    full = ran("dpfl", {"graph": "full", "tau_init": 0}, rounds=rounds, executor=executor)
    common = ran("fed-avg", rounds=rounds, executor=executor).state["w"]
    assert_close(full.kept("average"), common.expand(4, -1), rtol=0, atol=1e-6)


def test_fedprox_without_a_penalty_is_fedavg(fedavg: Ended) -> None:
    free = ran("fed-prox", {"mu": 0.0})
    assert torch.equal(free.state["w"], fedavg.state["w"])
    assert_same(free, fedavg)


def test_ditto_without_its_pull_is_local_training_beside_fedavg(
    fedavg: Ended, local: Ended
) -> None:
    free = ran("ditto", {"lam": 0.0})
    assert torch.equal(free.state["w"], fedavg.state["w"])
    assert_same(free, local)


@pytest.mark.long
def test_apfl_with_a_fixed_alpha_is_fedavgs_copy_or_local_training(
    fedavg: Ended, local: Ended
) -> None:
    """Its steps are those of autograd, and the others are taken in place: up to rounding."""
    shared, private = (ran("apfl", {"alpha": a, "adaptive": False}) for a in (0.0, 1.0))
    assert_close(shared.state["w"], fedavg.state["w"], rtol=0, atol=1e-6)
    tuned = ran("fed-avg-post")
    assert_close(shared.kept("best"), tuned.kept("best"), rtol=0, atol=1e-6)
    assert_close(private.kept("best"), local.kept("best"), rtol=0, atol=1e-6)


def test_knn_without_weight_is_fedavg(fedavg: Ended) -> None:
    assert_same(ran("knn-per", {"weight": 0.0}), fedavg)


def test_a_graph_that_sees_shares_of_rows_alone_is_fedavg(fedavg: Ended) -> None:
    graph = ran("pfedgraph", {"alpha": 1e6, "lam": 0.0})
    state, n = graph.state, graph.state["rows"]
    assert len(n.unique()) > 1  # type: ignore[no-untyped-call]  # torch
    assert_close(state["weights"], (n / n.sum()).expand(4, 4), rtol=0, atol=1e-6)
    mixed = state["weights"].float() @ state["models"]
    assert_close(mixed, fedavg.state["w"].expand(4, -1), rtol=0, atol=1e-5)


@pytest.mark.long
def test_before_its_last_word_fine_tuning_is_fedavg_and_starts_at_what_validation_chose(
    fedavg: Ended,
) -> None:
    tuned = ran("fed-avg-ft")
    assert torch.equal(tuned.state["w"], fedavg.state["w"])
    assert torch.equal(tuned.kept("best"), fedavg.kept("best"))
    assert not torch.equal(tuned.kept("tuned"), tuned.kept("best"))


@pytest.mark.long
@pytest.mark.parametrize("training", ["dpfl", "fed-rep"])
def test_all_methods_hold_back_and_train_on_the_same_labels(
    training: str, fedavg: Ended
) -> None:
    row = ran(training).row
    for name in (
        "labeled",
        "labels_validation",
        "labeled_per_site",
        "labeled_per_class",
    ):
        assert row[name] == fedavg.row[name]
    assert row["labels_validation"] > 0
