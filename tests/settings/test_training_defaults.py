"""Default training configurations: their choice, and that they train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.api.settings import read_request
from fallow.configs.find import find_config, load_configs
from fallow.core.names import BUILT_IN
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.methods import has_gradient_steps, methods_of
from fallow.models import networks
from fallow.settings.training_defaults import (
    CUSTOM,
    DENSE,
    FAMILIES,
    REGRESSION,
    complete_from,
    complete_training,
)
from fallow.settings.variants import variant
from fallow.study.preparation import settle_config

SIMULATION = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.3), sites=4)


def config_of(config: fl.ExperimentConfig) -> TrainingConfig:
    """Return the training configuration sent to sites."""
    values: Any = methods_of(config, policy=BUILT_IN)["training"]
    training_config: TrainingConfig = values.training_config
    return training_config


def test_each_built_in_model_has_a_complete_default() -> None:
    assert set(FAMILIES) == {name.lower() for name in networks.__all__} - {"trees"}
    for training_config in (*FAMILIES.values(), CUSTOM, REGRESSION):
        assert None not in (
            training_config.stages,
            training_config.batch_size,
            training_config.optimizer.lr,
        )


@pytest.mark.parametrize("training", ["fedavg", fl.FedAvg(), fl.FedProx(mu=0.1)])
def test_a_run_uses_the_default_of_its_model(training: Any) -> None:
    request = read_request(SIMULATION, None, {"training": training, "model": "mlp"})
    assert config_of(request.config) == DENSE
    changed = read_request(
        SIMULATION,
        None,
        {"training": training, "model": "mlp", "batch_size": 8, "epochs": 1},
    )
    training_config = config_of(changed.config)
    assert (
        training_config.epochs,
        training_config.batch_size,
        training_config.optimizer.lr,
    ) == (1, 8, 0.1)


def test_a_file_uses_the_default_of_its_model_and_a_strategy_that_of_its_own(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('training = "fedavg"\nmodel = "digits-cnn"\n')
    config = find_config(str(file))
    assert config_of(config) == FAMILIES["digitscnn"]
    assert config_of(variant(config, "random@model=mlp")) == DENSE


def test_regression_has_a_default_of_its_own() -> None:
    diabetes = fl.load("diabetes")
    request = read_request("diabetes", None, {"training": "fedavg", "model": "mlp"})
    assert config_of(settle_config(request.config, diabetes)) == REGRESSION


def test_adam_has_a_rate_of_its_own() -> None:
    training_config = complete_training(TrainingConfig(optimizer=Optimizer("adam")), "mlp")
    assert (training_config.optimizer.lr, training_config.epochs) == (0.001, 5)
    training_config = TrainingConfig(optimizer=Optimizer("adam", lr=0.1))
    assert complete_from(training_config, REGRESSION).optimizer.lr == 0.1


def test_experiment_configurations_keep_their_explicit_values() -> None:
    for config in load_configs().values():
        if has_gradient_steps(config):
            assert config.completed_training == config.training_config
    by_hand = fl.ExperimentConfig("mine", model=fl.Spec("mlp"))
    assert config_of(by_hand) == TrainingConfig((TrainingStage(2),), 16, Optimizer(lr=0.01))


def test_the_digest_knows_the_defaults() -> None:
    open_ = fl.ExperimentConfig("a", model=fl.Spec("mlp"), training_config=TrainingConfig())
    filled = fl.ExperimentConfig("a", model=fl.Spec("mlp"), training_config=DENSE)
    assert open_.digest == filled.digest


def test_three_rounds_of_the_defaults_train_the_digits() -> None:
    run = fl.run(
        SIMULATION, training=fl.FedAvg(), model="mlp", rounds=3, cycles=1, score_rounds=1
    )
    assert run.records["accuracy"].iloc[-1] > 0.8
