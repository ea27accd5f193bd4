"""The registry of executors, and resolution of names in configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from fallow.core.names import BUILT_IN, OWN
from fallow.deployment.agreement import check_names
from fallow.engine.device import Device
from fallow.engine.executors import (
    check_executor,
    choose_executor,
    find_executor,
)
from fallow.engine.loop import Loop
from fallow.engine.stacked import Stacked
from fallow.experiment.methods import executor_of
from fallow.settings.config import ExperimentConfig, named_classes
from tests.toys import Backwards

LINEAR = nn.Sequential(nn.Linear(3, 2))
IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3))


def test_names_of_the_table_are_its_classes() -> None:
    assert find_executor("loop") is Loop
    assert find_executor("stacked") is Stacked
    assert find_executor("device") is Device


def test_auto_stacks_linear_layers_of_the_library_and_loops_over_the_rest() -> None:
    assert choose_executor(LINEAR, is_built_in=True) == "stacked"
    assert choose_executor(LINEAR, is_built_in=False) == "loop"
    assert choose_executor(IMAGES, is_built_in=True) == "loop"


def test_an_executor_is_refused_for_a_model_that_it_cannot_train() -> None:
    config = ExperimentConfig("a", executor="stacked")
    assert executor_of(config, LINEAR) == "stacked"
    with pytest.raises(ValueError, match="'stacked' trains linear and dense models only"):
        executor_of(config, IMAGES)


def test_a_device_trains_by_its_own_executor_and_refuses_models_that_draw() -> None:
    config = ExperimentConfig("a", device="cpu")
    assert executor_of(config, LINEAR) == "device"
    dropping = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    assert executor_of(config, dropping) == "device"
    of_maps = nn.Sequential(nn.Linear(3, 2), nn.Dropout2d(0.5))
    with pytest.raises(ValueError, match=r"draw random numbers by nn\.Dropout or nowhere"):
        executor_of(config, of_maps)


@pytest.mark.parametrize("name", ["", "gpu", "Loop", "LOOP"])
def test_a_word_that_names_no_executor_is_refused_with_those_that_do(name: str) -> None:
    known = "use 'auto', 'device', 'loop' or 'stacked'"
    with pytest.raises(ValueError, match=known):
        check_executor(name)


def test_an_executor_from_outside_is_found_by_who_may_run_any_code_alone() -> None:
    assert find_executor("tests.toys:Backwards", OWN) is Backwards
    with pytest.raises(ValueError, match="names code that is not part of Fallow"):
        find_executor("tests.toys:Backwards", BUILT_IN)


def test_an_agreement_cannot_name_an_executor_that_its_machine_does_not_allow() -> None:
    config = replace(ExperimentConfig("a"), executor="tests.toys:Backwards")
    assert named_classes(config)["executor"] == "tests.toys:Backwards"
    with pytest.raises(ValueError, match=r"executor: 'tests\.toys:Backwards' names code"):
        check_names(config, BUILT_IN)
    with pytest.raises(ValueError, match="is part of Python"):
        check_names(replace(config, executor="os:system"), BUILT_IN)


def test_a_class_of_fallow_that_is_no_executor_cannot_stand_for_one() -> None:
    with pytest.raises(ValueError, match="is no executor"):
        find_executor("fallow.strategies:Random", BUILT_IN)
