"""All ways to give training settings result in the same training configuration."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fallow as fl
from fallow.configs.find import find_config
from fallow.settings.config import ExperimentConfig, config_from, with_settings
from fallow.settings.fields import expand
from fallow.settings.variants import variant

KEYWORDS: dict[str, Any] = {
    "lr": 0.2,
    "epochs": 3,
    "batch_size": 8,
    "optimizer": "sgd",
    "momentum": 0.5,
    "weight_decay": 0.01,
    "milestones": [2],
    "patience": 2,
    "stop_at": 0.75,
}
WHOLE = fl.TrainingConfig(
    (fl.TrainingStage(3),),
    8,
    fl.Optimizer("sgd", 0.2, momentum=0.5, weight_decay=0.01),
    fl.Schedule((2,)),
    patience=2,
    stop_at=0.75,
)
WAYS: dict[str, dict[str, Any]] = {
    "keywords of the algorithm": {"training": fl.FedAvg(**KEYWORDS)},
    "whole in the algorithm": {"training": fl.FedAvg(training_config=WHOLE)},
    "keywords of the run": {"training": "fedavg", **KEYWORDS},
    "whole in the run": {"training": fl.FedAvg(), "training_config": WHOLE},
    "in the name": {
        "training": "fedavg:lr=0.2:epochs=3:batch_size=8",
        "training_config": {"optimizer": {"momentum": 0.5, "weight_decay": 0.01}},
        "schedule": fl.Schedule((2,)),
        "patience": 2,
        "stop_at": 0.75,
    },
    "some here, some there": {
        "training": fl.FedAvg(lr=0.2, epochs=3, momentum=0.5, stop_at=0.75, patience=2),
        "schedule": {"milestones": [2]},
        "batch_size": 8,
        "weight_decay": 0.01,
    },
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_giving_them_is_the_same_run(way: str) -> None:
    simulation = fl.Federation("digits", sites=3)
    settings: dict[str, Any] = {"model": "linear", "cycles": 0, "rounds": 1}
    usual = fl.run(simulation, training="fedavg", **settings)
    expected = fl.run(simulation, training="fedavg", training_config=WHOLE, **settings)
    result = fl.run(simulation, **WAYS[way], **settings)
    assert result.config.training_config == WHOLE
    assert read_head(result).equal(read_head(expected))
    assert not read_head(result).equal(read_head(usual))


def read_head(run: fl.Run) -> torch.Tensor:
    weights: torch.Tensor = run.model.head.weight  # type: ignore[union-attr, assignment]
    return weights


def test_a_file_and_the_command_line_take_the_same_keywords(tmp_path: Path) -> None:
    lines = [f"{name} = {value!r}".replace("'", '"') for name, value in KEYWORDS.items()]
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(['training = "fedavg"', *lines]))
    assert find_config(str(file)).training_config == WHOLE
    inside = ", ".join(['name = "fedprox", mu = 0.5', *lines])
    file.write_text(f"training = {{ {inside} }}")
    config = find_config(str(file))
    assert config.training_config == WHOLE
    assert config.training == fl.Spec("fedprox", {"mu": 0.5})

    texts = {name: str(value) for name, value in KEYWORDS.items()}
    settings = with_settings(ExperimentConfig("a"), expand(ExperimentConfig("a"), texts))
    assert settings.training_config == WHOLE
    assert with_settings(ExperimentConfig("a"), texts).training_config == WHOLE
    of_one = variant(ExperimentConfig("a"), "random@training=fedprox:lr=0.2@batch_size=8")
    assert of_one.training_config.optimizer.lr == 0.2
    assert of_one.training_config.batch_size == 8


def test_an_algorithm_without_settings_leaves_those_of_the_configuration() -> None:
    base = config_from({"name": "a", "training": "fedavg", **KEYWORDS})
    settings: dict[str, Any] = {"model": "linear", "cycles": 0, "rounds": 1}
    result = fl.run(config=base, training=fl.FedAvg(epochs=1), **settings)
    assert result.config.training_config.epochs == 1
    assert result.config.training_config.optimizer.lr == 0.2


@pytest.mark.parametrize(
    "settings",
    [
        {"training": fl.FedAvg(lr=0.1), "lr": 0.2},
        {"training": "fedavg:lr=0.1", "lr": 0.2},
        {"training": fl.FedAvg(lr=0.1), "training_config": WHOLE},
        {"training": "fedavg", "lr": 0.1, "training_config": WHOLE},
        {"training": fl.FedAvg(training_config=WHOLE), "lr": 0.1},
    ],
)
def test_two_different_values_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^lr is 0\.\d in .* and 0\.\d in .*; give it once$"
    ):
        fl.run("digits", **settings)


def test_two_different_values_on_the_command_line_are_refused() -> None:
    settings = {"lr": "0.1", "training_config.optimizer.lr": "0.2"}
    with pytest.raises(ValueError, match="give it once"):
        expand(ExperimentConfig("a"), settings)
    with pytest.raises(ValueError, match="give it once"):
        with_settings(ExperimentConfig("a"), {"lr": "0.1", "training": "fedavg:lr=0.2"})
