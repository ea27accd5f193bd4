"""Personalized training on bad input: tiny sites, absent classes, diverged models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fallow.training.personal
from fallow.core.build import build, names
from fallow.core.contract import Contract
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data.dataset import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.methods import methods_of
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.experiment.suitability import check_task
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.site import LocalSite
from fallow.storage.files import load_tree
from fallow.study.preparation import settle_config
from fallow.training.personal import PFedGraph
from fallow.training.personal.base import decode_sites
from tests.each import mark_long
from tests.engine.jobs import mlp
from tests.training.personal.collaborators import dpfl, federation
from tests.training.personal.federation import (
    CONFIG,
    METHODS,
    TRAINING_ANY_MODEL,
    first_state,
    rounds,
)
from tests.training.personal.federation import federation as plain_federation

# one example, one for training and one for validation, one batch, and more
SIZES = (1, 2, 5, 14)
EXPERIMENT = ExperimentConfig(
    name="odd",
    data="odd",
    partition=Spec("natural"),
    sites=4,
    model=Spec("mlp", {"hidden": [6]}),
    training_config=TrainingConfig((TrainingStage(1),), 4, Optimizer("sgd", 0.05)),
    rounds=4,
    cycles=0,
    initial=1.0,
    budget_allocation="proportional",
    validation=0.2,
    test="own",
    score_rounds=1,
)
TRAINERS = ("fed-avg", "fed-prox", *TRAINING_ANY_MODEL)
NAMES = tuple(f"site-{k}" for k in range(len(SIZES)))


def odd(classes: int = 3, scale: Mapping[int, float] | None = None) -> Dataset:
    """Return natural sites of these sizes.

    The last of ``classes`` has no training example, and examples of some sites are scaled.
    """
    draw = stream(0, "odd")
    site_of = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    group_test = torch.arange(len(SIZES)).repeat(6)
    y = torch.arange(len(site_of)) % (classes - 1)
    y_test = torch.arange(len(group_test)) % classes
    x, x_test = (torch.randn(len(label), 5, generator=draw) for label in (y, y_test))
    for site, factor in (scale or {}).items():
        x[site_of == site] *= factor
    return Dataset(
        name="odd",
        x=x,
        y=y,
        x_test=x_test,
        y_test=y_test,
        sites=site_of,
        sites_test=group_test,
        classes=tuple("abcdef"[:classes]),
        site_names=NAMES,
    )


def enlarge_rows(site: LocalSite) -> None:
    """Enlarge the training examples of a site until its loss overflows."""
    assert isinstance(site.seen, torch.Tensor)
    site.seen = site.seen * 1e200


def run_config(
    dataset: Dataset, training: str, fields: Mapping[str, Any] | None = None, **changes: Any
) -> tuple[SimulatedEnvironment, EventLog, Mapping[str, Any]]:
    """Return a run's federation, event log and last record."""
    event_log = EventLog()
    config = replace(EXPERIMENT, training=Spec(training, fields or {}), **changes)
    simulation = environment_of(config, 0, dataset, event_log)
    return simulation, event_log, ExperimentRun(simulation, event_log).go()[-1]


@pytest.mark.long
@pytest.mark.parametrize("training", TRAINERS)
@pytest.mark.parametrize("executor", ["loop", "stacked"])
def test_sites_of_one_row_of_one_batch_and_without_a_validation_row_are_trained_and_scored(
    training: str, executor: Any
) -> None:
    simulation, _, row = run_config(odd(), training, executor=executor)
    validation_sizes = {
        name: len(site.validation) for name, site in simulation.members.items()
    }
    assert validation_sizes == dict(zip(NAMES, (0, 1, 1, 3), strict=True))
    assert row["per_site"].keys() == set(NAMES)
    for site in simulation.members.values():
        assert bool(site.memory["best"]["w"].isfinite().all())
        assert bool(site.memory["local"]["w"].isfinite().all())


@pytest.mark.parametrize("training", TRAINERS)
def test_a_class_that_no_site_holds_is_scored_where_test_rows_have_it(
    training: str,
) -> None:
    _, _, row = run_config(odd(), training)
    assert row["labeled_per_class"][2] == 0 and row["per_class"][2] is not None


def test_with_class_shares_no_site_gets_test_rows_of_a_class_that_none_holds() -> None:
    _, _, row = run_config(odd(), "ditto", partition=Spec("iid"))
    assert row["per_class"][2] is None


@pytest.mark.long
@pytest.mark.parametrize(
    "graph",
    mark_long(
        ["ggc", "symmetric-or", "degree", "static", "resampled"], ["symmetric-or", "degree"]
    ),
)
def test_a_budget_beyond_the_sites_is_no_budget(graph: str) -> None:
    fields = {"graph": graph, "tau_init": 1}
    (one, _, a), (other, _, b) = (
        run_config(odd(), "dpfl", {**fields, "budget": budget}) for budget in (99, None)
    )
    for name in NAMES:
        assert torch.equal(
            one.members[name].memory["best"]["w"], other.members[name].memory["best"]["w"]
        )
    assert a["per_site"] == b["per_site"]


@pytest.mark.parametrize(
    "fields",
    [{"counts_self": False, "budget": 0}, {"budget": [1] * 4}, {"reach": "ring-0"}],
)
def test_no_budget_or_no_reach_for_anybody_is_local_training(
    fields: Mapping[str, Any],
) -> None:
    ours, event_log, _ = run_config(odd(), "dpfl", {"tau_init": 0, **fields})
    local, _, _ = run_config(odd(), "local")
    for name in NAMES:
        for model in ("local", "best"):
            w = ours.members[name].memory[model]["w"]
            assert torch.equal(w, local.members[name].memory[model]["w"])
    done = event_log.load_step("0/train")
    assert done is not None and not done["state"]["graph"].any()


def test_a_mask_that_isolates_a_site_leaves_it_to_local_training_and_nobody_sees_it() -> (
    None
):
    reach = [[1, 3], [0, 3], [], [0, 1]]
    ours, event_log, _ = run_config(odd(), "dpfl", {"tau_init": 0, "reach": reach})
    local, _, _ = run_config(odd(), "local")
    memory = ours.members["site-2"].memory
    assert torch.equal(memory["local"]["w"], local.members["site-2"].memory["local"]["w"])
    done = event_log.load_step("0/train")
    assert done is not None
    graph = done["state"]["graph"]
    assert graph.any() and not graph[2].any() and not graph[:, 2].any()


@pytest.mark.parametrize("budget", [2.5, "5", True, [2, 2.0, 2, 2], [2, 0, 2, 2]])
def test_a_budget_that_is_no_number_of_models_is_named(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"(?i)dpfl's budget is .*; it must be"):
        build(fallow.training.personal, "dpfl", budget=budget)


def test_parts_of_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tau_init is 1\.5; it must be a whole number"):
        run_config(odd(), "dpfl", {"tau_init": 1.5})


# -- models that are not finite --------------------------------------------------------


def test_a_site_that_diverges_is_refused_in_every_round_and_the_others_train_on() -> None:
    values = federation(dpfl(tau_init=0))
    wild = values.members["b"]
    enlarge_rows(wild)  # its loss overflows in the first step
    for r in range(3):
        values.rounds(r)
        assert values.state["refused"].tolist() == [
            name == "b" for name in values.watch.sites
        ]
        assert not values.state["graph"][:, 1].any() and values.state["graph"].any()
    assert not bool(values.stack_models("local")[1].isfinite().all())
    others = [0, 2, 3, 4]
    assert bool(values.stack_models("average")[others].isfinite().all())


@pytest.mark.parametrize("graph", ["static", "resampled", "full"])
def test_graphs_that_choose_by_nothing_average_without_it_too(graph: str) -> None:
    simulation = federation(dpfl(tau_init=0, graph=graph))
    enlarge_rows(simulation.members["b"])
    simulation.rounds(0, 1)
    assert bool(simulation.stack_models("average")[[0, 2, 3, 4]].isfinite().all())


def test_pfedgraph_refuses_and_names_a_model_that_is_not_finite_and_goes_on() -> None:
    method = PFedGraph(CONFIG)
    channel = plain_federation(mlp, method)
    wild = channel.members["b"]
    tame = wild.seen
    enlarge_rows(wild)
    state = rounds(channel, method, first_state(mlp), 2)
    assert decode_sites(state["refused"]) == {"b"}
    assert decode_sites(state["sites"]) == {"a", "c"}
    assert bool(state["models"].isfinite().all())
    assert bool(state["weights"].isfinite().all())

    wild.seen = tame  # it starts from the initial model again
    state = rounds(channel, method, state, 1, first=2)
    assert decode_sites(state["refused"]) == set()
    assert decode_sites(state["sites"]) == {"a", "b", "c"}

    enlarge_rows(wild)  # now its last model is used instead
    before = state["models"][1]
    state = rounds(channel, method, state, 1, first=3)
    assert decode_sites(state["refused"]) == {"b"}
    assert torch.equal(state["models"][1], before)


def test_pfedgraph_stops_where_every_model_is_not_finite() -> None:
    method = PFedGraph(CONFIG)
    channel = plain_federation(mlp, method)
    for site in channel.members.values():
        enlarge_rows(site)
    with pytest.raises(
        ValueError, match="all models that sites sent to PFedGraph have NaN"
    ):
        rounds(channel, method, first_state(mlp), 1)


AVERAGING = [
    m
    for m in METHODS
    if "upload" in m.contract.disclosures and not isinstance(m, PFedGraph)
]


@pytest.mark.parametrize("method", AVERAGING, ids=lambda method: type(method).__name__)
def test_a_common_average_stops_at_a_model_that_is_not_finite_and_names_its_site(
    method: Any,
) -> None:
    channel = plain_federation(mlp, method)
    enlarge_rows(channel.members["b"])
    with pytest.raises(
        ValueError, match=r"site b replied to 'upload' with .* NaN or infinite"
    ):
        rounds(channel, method, first_state(mlp), 1)


def test_a_run_in_which_a_site_never_had_a_finite_model_says_which() -> None:
    with pytest.raises(
        ValueError, match="model of site site-2 has NaN or infinite outputs"
    ):
        run_config(
            odd(scale={2: 1e30}),
            "dpfl",
            {"tau_init": 0},
            training_config=replace(EXPERIMENT.training_config, batch_size=1),
        )


# -- messages to the coordinator -------------------------------------------------------


@pytest.mark.parametrize("training", ["dpfl", "pfedgraph"])
def test_methods_that_need_single_models_are_refused_under_secure_sums(
    training: str,
) -> None:
    config = replace(EXPERIMENT, training=Spec(training), privacy=Privacy(secure_sum=True))
    with pytest.raises(
        ValueError, match=f"{training} does not support secure aggregation .*model"
    ):
        methods_of(config)


@pytest.mark.long
@pytest.mark.parametrize("training", names(fallow.training.personal))
def test_nothing_that_the_server_remembers_is_handed_to_sites_before_a_query(
    training: str, tmp_path: Path
) -> None:
    event_log = EventLog()
    config = replace(EXPERIMENT, training=Spec(training), initial=0.5, budget=0.2, cycles=1)
    if training not in TRAINING_ANY_MODEL:
        config = replace(config, model=Spec("linear"))
    simulation = environment_of(config, 0, odd(), event_log)
    ExperimentRun(simulation, event_log, folder=tmp_path).go()
    state = load_tree(tmp_path / "checkpoints" / "cycle-1.safetensors", tmp_path)["state"]
    contract: Contract = simulation.methods["training"].contract
    assert state.keys() - set(contract.fit.server) <= {"w", "stats", "body"}


@pytest.mark.parametrize(("share", "taken"), [(0.5, 2), (0.7, 3)])
def test_dpfl_with_some_sites_a_round_is_refused_before_anything_starts(
    share: float, taken: int
) -> None:
    config = replace(EXPERIMENT, training=Spec("dpfl"), participation=share)
    message = rf"dpfl needs all sites in every round, and participation={share:g} takes {taken} of 4"
    with pytest.raises(ValueError, match=f"{message}; set participation=1"):
        methods_of(config)
    assert methods_of(replace(config, participation=0.8))  # rounded up, these are all
    assert methods_of(replace(config, training=Spec("ditto")))


def test_where_the_data_name_the_sites_they_are_counted_first() -> None:
    config = replace(EXPERIMENT, training=Spec("dpfl"), participation=0.5, sites=0)
    assert methods_of(config)
    with pytest.raises(ValueError, match="takes 2 of 4; set participation=1"):
        check_task(settle_config(config, odd()), odd())
