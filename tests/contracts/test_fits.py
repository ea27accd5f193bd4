"""Local training sends and keeps exactly what each training algorithm declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow import training
from fallow.core.build import names
from fallow.core.fit_declarations import LOCAL
from fallow.core.messages import Request, Step
from fallow.core.methods import declared_state
from fallow.core.training_config import TrainingConfig
from fallow.data import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import SimulatedEnvironment, environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.site import LocalSite
from fallow.storage.files import load_tree
from fallow.training import personal
from tests.keys import key_of
from tests.training.personal.test_bad_input import EXPERIMENT, odd

ALGORITHMS = {
    name: cls
    for name, cls in {**names(training), **names(personal)}.items()
    if cls.contract.trains
}
SENT = {"training", "head"}
"""Owners whose requests an algorithm makes; the models of a query are sent by the run."""


def data_for(contract: Any) -> Dataset:
    data = odd(3)
    if contract.classes:
        return data
    if contract.multilabel:
        return replace(data, classes=(), labels=("a", "b"))
    y = data.y.float()
    return replace(data, y=y, y_test=data.y_test.float(), classes=())


def simulation_for(name: str, **changes: Any) -> tuple[SimulatedEnvironment, EventLog]:
    contract = ALGORITHMS[name].contract
    config: ExperimentConfig = replace(
        EXPERIMENT,
        training=Spec(name),
        initial=0.5,
        budget=0.2,
        cycles=1,
        rounds=2,
        **changes,
    )
    if contract.model:
        config = replace(config, model=Spec(contract.model), validation=0.0)
    event_log = EventLog()
    return environment_of(config, 0, data_for(contract), event_log), event_log


@pytest.mark.parametrize(
    ("name", "head"), [*((name, "trained") for name in ALGORITHMS), ("FedAvg", "exact")]
)
def test_local_training_is_what_the_algorithm_declares(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[tuple[Step, Request]] = []
    kept: set[str] = set()
    accept = LocalSite.accept_fit
    remember = LocalSite.remember_fit

    def accept_fit(site: LocalSite, step: Step, request: Request) -> TrainingConfig | None:
        fits.append((step, request))
        return accept(site, step, request)

    def remember_fit(site: LocalSite, step: Step, request: Request, result: Any) -> None:
        if request.owner == "training" and step.function == LOCAL:
            kept.update(result.own)
        remember(site, step, request, result)

    monkeypatch.setattr(LocalSite, "accept_fit", accept_fit)
    monkeypatch.setattr(LocalSite, "remember_fit", remember_fit)
    changes = {"validation": 0.0, "head": head} if head == "exact" else {}
    simulation, event_log = simulation_for(name, **changes)
    ExperimentRun(simulation, event_log, folder=tmp_path).go()

    methods: dict[str, Any] = {"training": simulation.methods["training"]}
    if "head" in simulation.methods:
        methods["head"] = simulation.methods["head"]
    state = declared_state(simulation.methods)
    models: dict[str, set[str]] = {owner: set() for owner in methods}
    for step, request in fits:
        assert state.find_wrong_part(step.args) is None
        if request.owner in SENT:
            models[request.owner].add(step.function)
            method = methods[request.owner]
            config = step.training_config
            assert method.contract.fit.allows(method, step.function, config), (
                step.function,
                config,
            )
    for owner, method in methods.items():
        expected = {*method.contract.fit.models, *([LOCAL] if owner == "training" else [])}
        assert models[owner] == expected
    assert kept <= set(state.kept)
    assert kept == set(state.kept) - {"bn"}  # with bn="local"
    ended = load_tree(tmp_path / "checkpoints" / "cycle-1.safetensors", tmp_path)["state"]
    assert not set(state.sent) & set(state.server)
    assert ended.keys() <= {*state.sent, *state.server}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_else_is_trained_or_sent(name: str) -> None:
    simulation, _ = simulation_for(name)
    method: Any = simulation.methods["training"]
    fit = method.contract.fit
    agreed: TrainingConfig = method.training_config
    more = replace(agreed, stages=agreed.trained_stages * 3, batch_size=999)
    for model in {*fit.models, LOCAL}:
        assert not fit.allows(method, model, replace(more, start="scratch")), model
        optimizer = replace(agreed.optimizer, lr=123.0)
        assert not fit.allows(method, model, replace(agreed, optimizer=optimizer)), model
    assert not fit.allows(method, "another", agreed)
    assert not fit.allows(method, "another", None)
    if fit.find(LOCAL) is not None and not fit.find(LOCAL).is_stored:
        assert not fit.allows(method, LOCAL, None)
    whole = {"w": torch.zeros(3), "stats": torch.zeros(0)}
    assert fit.find_wrong_part(whole) is None
    for part in (*fit.server, "own/w", "__class__", "another"):
        why = fit.find_wrong_part({**whole, part: torch.zeros(3)})
        assert why is not None and "not the name of a part" in why
    for wrong in ("many", None, [1.0], torch.zeros(2, 3), torch.zeros(3).to(torch.float16)):
        why = fit.find_wrong_part({**whole, "w": wrong})
        assert why is not None and "invalid part of a model" in why


@pytest.mark.parametrize("owner", ["training", "query"])
def test_a_site_takes_no_part_of_a_model_that_is_not_declared(owner: str) -> None:
    simulation, _ = simulation_for("FedAvg")
    site = next(iter(simulation.members.values()))
    step = Step("fit", LOCAL, {"w": torch.zeros(3), "moments": torch.zeros(3)}, None)
    with pytest.raises(ValueError, match=r"'moments' with a model.*FitDeclaration\(sent="):
        site.accept_fit(step, Request(key_of("0/train/0/0"), owner, 0, 0, (step,)))
