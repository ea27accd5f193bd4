"""Queries in runs on a device: which of them compute there, with equal selections.

`test_agree.py` compares the selections of every strategy through the public API.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.engine.device import SelectionDevice, ignore_message
from fallow.engine.placement import Placement
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.spec import Spec
from tests.engine.jobs import DEVICE
from tests.sites.test_agree import TINY, check, ending, on_device

SMALL = replace(
    TINY,
    cycles=1,
    rounds=1,
    training_config=replace(TINY.training_config, stages=(TrainingStage(1),)),
)
PRODUCTS: dict[str, dict[str, Any]] = {
    "acsfw": {"data": "diabetes", "partition": Spec("iid"), "model": Spec("linear")},
    "badge": {},
    "core-set": {},
    "fairfal": {},
    "feal": {},
    "ifal": {},
    "lcmd": {},
    "logo": {"local_training_config": TrainingConfig((TrainingStage(1),), 8)},
    "noise-stability": {},
    "typical": {},
    "typicality": {},
}
"""Strategies that compare many rows with many."""
CLUSTERS = ("ifal", "logo", "typicality")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the number of clusters from which the device is used."""
    monkeypatch.setattr("fallow.strategies.parts.kmeans.LARGE", 1)


@pytest.mark.long
@pytest.mark.parametrize("strategy", PRODUCTS)
def test_a_run_on_a_device_takes_the_products_of_its_query_there(strategy: str) -> None:
    config = replace(SMALL, strategy=Spec(strategy), device="cpu", executor="auto")
    config = replace(config, **PRODUCTS[strategy])
    event_log = EventLog()
    simulation = build_environment(config, 0, event_log)
    there = Placement(torch.device("meta"))
    for site in simulation.members.values():
        assert site.parts.selection is not None
        selection = SelectionDevice(there, ignore_message, free=lambda: None)
        site.parts = replace(site.parts, selection=selection)
    with pytest.raises(RuntimeError, match="Cannot copy out of meta tensor"):
        ExperimentRun(simulation, event_log).go()


@pytest.mark.long
@pytest.mark.parametrize("strategy", CLUSTERS)
def test_large_clusters_that_a_device_finds_are_those_of_the_processor(
    strategy: str,
) -> None:
    config = replace(TINY, strategy=Spec(strategy), cycles=1)
    check(on_device(config), ending(config))


def test_where_no_device_is_named_products_are_taken_where_the_rows_are() -> None:
    simulation = build_environment(SMALL, 0, EventLog())
    assert all(site.parts.selection is None for site in simulation.members.values())
    config = replace(SMALL, device=DEVICE, executor="auto")  # type: ignore[arg-type]
    placed = build_environment(config, 0, EventLog())
    assert all(site.parts.selection is not None for site in placed.members.values())
