"""The default training algorithm of a study, and the settings that it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.api.settings import read_request
from fallow.cli.app import main
from fallow.configs.defaults import CLOSED_FORM, default_training
from fallow.configs.find import find_config, load_configs
from fallow.core.names import lend
from fallow.settings.config import config_from
from fallow.settings.variants import variant
from tests.toys import First

REFUSED = 'add training="fedavg"'
STOP = "when another 9 labels bring less than 1 points with 90 % confidence"
SIMULATION = fl.Federation(fl.load("digits"), "iid", sites=4)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "mlp"},
        {"rounds": 3},
        {"training_config": {"batch_size": 8}},
        {"head": "exact"},
        {"features": "resnet18"},
        {"strategy": "ifal"},
        {"strategy": {"name": "ifal", "epochs": 5}},
        {"strategies": ["random", "noise-stability"]},
        {"strategies": "random,noise-stability"},
        {"strategies": ["random", "margin@rounds=5"]},
        {"strategies": ["random", "margin@trainer=3x2"]},
        {"strategies": ["random", "margin@privacy.epsilon=1.0"]},
        {"strategies": ["random", "ksas"]},
        {"fresh_first": True},
        {"training_config.batch_size": "8"},
        {"privacy": {"epsilon": 1.0}},
        {"privacy": fl.Privacy(epsilon=1.0)},
        {"privacy.epsilon": "1.0"},
    ],
)
def test_settings_of_networks_and_noise_need_a_training_algorithm(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        default_training(settings, [])


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.1},
        {"epochs": 2},
        {"optimizer": "adam"},
        {"restart": "continue"},
        {"training_config": fl.TrainingConfig(batch_size=8)},
    ],
)
def test_settings_of_gradient_steps_need_them(settings: dict[str, Any]) -> None:
    (name,) = settings
    sentence = f"{name} is a setting of gradient steps, and closed-form has a closed-form"
    solved: dict[str, Any] = {"training": "closed-form", "cycles": 0}
    with pytest.raises(ValueError, match=sentence):
        fl.run(SIMULATION, **solved, **settings)
    with pytest.raises(ValueError, match=sentence):
        fl.run(SIMULATION, training=fl.ClosedForm(), cycles=0, **settings)
    with pytest.raises(ValueError, match=sentence):
        fl.run(SIMULATION, config={**solved, **settings})
    with pytest.raises(ValueError, match=sentence):
        fl.compare(SIMULATION, ["random", "margin"], **solved, **settings)


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    "words",
    [
        ["own.toml"],
        ["demo", "--set", "training=closed-form", "--set", "lr=0.1"],
        ["demo", "--set", "training=closed-form", "--set", "patience=3"],
        ["demo", "--strategy", "margin@training=closed-form@lr=0.1"],
    ],
)
def test_settings_of_gradient_steps_need_them_on_the_command_line(
    command: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text('data = "digits"\ntraining = "closed-form"\nlr = 0.1\n')
    monkeypatch.setattr(sys, "argv", ["fallow", command, *words, "--out", "out"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "is a setting of gradient steps, and closed-form has" in message
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "setting", [{"seeds": 3}, {"reference": "random"}, {"bounds": True}]
)
def test_a_run_has_no_settings_of_comparisons(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} is a setting of comparisons"):
        fl.run(SIMULATION, "random", **setting)


def test_a_comparison_has_several_strategies() -> None:
    with pytest.raises(ValueError, match="compare runs several strategies"):
        fl.compare(SIMULATION, ["random", "entropy"], strategy="margin")  # type: ignore[call-arg]


def test_a_run_of_the_command_line_has_no_settings_of_comparisons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fallow", "run", "demo", "--set", "seeds=3"])
    with pytest.raises(SystemExit):
        main()
    assert "seeds is a setting of comparisons" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("data", [SIMULATION, SIMULATION.dataset])
@pytest.mark.parametrize(
    "setting", [{"data": "iris"}, {"label": "x"}, {"task": "regression"}, {"drop": ["a"]}]
)
def test_settings_of_files_are_refused_beside_data(
    data: Any, setting: dict[str, Any]
) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} is a setting of the data"):
        fl.run(data, "random", **setting)


def test_options_of_loading_that_do_not_apply_to_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="label='x' does not apply to it"):
        fl.run("digits", label="x")
    with pytest.raises(ValueError, match="data is a setting of the data"):
        fl.run("digits", data="iris")


@pytest.mark.parametrize("setting", [{"sites": 3}, {"partition": "iid"}])
def test_a_federation_has_its_sites(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} is a setting of the data.*fl.Federation"):
        fl.compare(SIMULATION, ["random", "margin"], **setting)
    assert read_request(SIMULATION.dataset, None, setting).config is not None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"participation": 0.5}, "participation has no effect, because there is one round"),
        ({"rounds": 2}, "finds its model in one round"),
        ({"cycles": 0, "evaluation_fraction": 0.1}, "because there are no cycles"),
        ({"cycles": 0, "stop": STOP}, "stop has no effect"),
        ({"initial": 0, "initial_by": "typical"}, "there is no initial labeled set"),
        (
            {"initial": 5, "budget": 5, "budget_allocation": "proportional"},
            "only fractions are allocated",
        ),
        ({"privacy": {"bound": 2.0}}, "privacy.bound is a setting of secure aggregation"),
        ({"target_scale": "oracle"}, "it scales the targets of regression"),
    ],
)
def test_settings_without_effect_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fl.run(SIMULATION, "random", training="closed-form", **settings)


@pytest.mark.parametrize(
    ("settings", "strategies"),
    [
        ({"participation": 0.5, "rounds": 3}, ["random", "random@training=closed-form"]),
        ({"participation": 0.5, "rounds": 3}, ["random", "random@rounds=1"]),
        ({"initial_by": "typical"}, ["random", "random@initial=0"]),
        ({"stop": STOP}, ["random", "random@cycles=0"]),
        (
            {"initial": 5, "budget": 5, "budget_allocation": "proportional"},
            ["random", "random@budget=0.1"],
        ),
    ],
)
def test_settings_with_an_effect_on_one_strategy_are_accepted(
    settings: dict[str, Any], strategies: list[str]
) -> None:
    request = read_request(SIMULATION, None, {"training": "fedavg", **settings}, strategies)
    assert [variant(request.config, strategy) for strategy in strategies]


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["--strategy", "random@training=fedavg,random"],
        ["--set", "training=fedavg"],
        ["--set", "strategies=random@training=fedavg"],
    ],
)
def test_what_a_file_specifies_may_be_used_by_what_a_command_names(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(
        'data = "iris"\nencoder = "identity"\ntraining = "closed-form"\nlr = 0.1\n'
    )
    command = ["fallow", "compare", "own.toml", *words, "--dry-run", "--quiet"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_settings_of_a_mapping_are_checked_too() -> None:
    with pytest.raises(ValueError, match="sites is a setting of the data"):
        fl.run(SIMULATION, "random", config={"sites": 3})
    with pytest.raises(ValueError, match="seeds is a setting of comparisons"):
        fl.run(SIMULATION, "random", config={"seeds": 3})


def test_a_mapping_names_its_training_algorithm() -> None:
    request = read_request(SIMULATION, {"training": "fedavg", "lr": 0.1}, {})
    assert request.config.training_config.optimizer.lr == 0.1


def test_settings_of_gradient_steps_of_one_strategy_are_used() -> None:
    two = ["random@training=closed-form", "random@training=fedavg"]
    request = read_request(SIMULATION, None, {"training": "fedavg", "lr": 0.1}, two)
    assert request.config.training_config.optimizer.lr == 0.1


@pytest.mark.parametrize(
    "strategies",
    [[], ["random", "badge", "ahfal:tau=15"], ["ifal@training=fedavg"], ["nowhere:Mine"]],
)
def test_the_default_is_closed_form(strategies: list[str]) -> None:
    assert default_training({"cycles": 3, "encoder": "fourier"}, strategies) == CLOSED_FORM


@pytest.mark.parametrize(
    "settings",
    [
        {"features": None},
        {"privacy": fl.Privacy(secure_sum=True)},
        {"privacy.epsilon": "null"},
        {"fresh_first": False},
    ],
)
def test_settings_that_are_off_are_accepted(
    settings: dict[str, Any],
) -> None:
    assert default_training(settings, []) == CLOSED_FORM


def test_a_custom_strategy_that_needs_a_network_is_refused() -> None:
    name = f"{First.__module__}:{First.__qualname__}"
    with lend({name: First}):
        assert default_training({}, [name]) == CLOSED_FORM

    class Deep(fl.Strategy):
        contract = fl.Contract("Deep", not_solved="it looks at layers")

        def select(self, view: Any, n: int) -> Any:
            return range(n)

    with lend({"mine:Deep": Deep}), pytest.raises(ValueError, match=REFUSED):
        default_training({}, ["mine:Deep"])


def test_calls_and_files_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('strategies = ["random", "margin"]\ncycles = 1\n')
    called = read_request(SIMULATION, None, {"cycles": 1}, ["random", fl.Margin()]).config
    mapped = read_request(SIMULATION, {"cycles": 1}, {}, ["random"]).config
    written = find_config(str(file))
    for config in (called, mapped, written):
        defaults = (config.training.name, config.rounds, str(config.encoder))
        assert defaults == (CLOSED_FORM, 1, "auto")


@pytest.mark.parametrize(
    ("changes", "strategies"),
    [({"model": "mlp"}, []), ({"privacy.epsilon": "1.0"}, []), ({}, ["random", "ifal"])],
)
def test_changes_of_a_file_are_refused_alike(
    tmp_path: Path, changes: dict[str, Any], strategies: list[str]
) -> None:
    below = tmp_path / "below.toml"
    below.write_text("cycles = 1\n")
    file = tmp_path / "own.toml"
    file.write_text('base = "below.toml"\n')
    assert find_config(str(file)).training.name == CLOSED_FORM
    with pytest.raises(ValueError, match=REFUSED):
        find_config(str(file), changes, strategies)
    file.write_text('base = "below.toml"\ntraining = "fedavg"\n')
    assert find_config(str(file), changes, strategies).training.name == "fedavg"


def test_calls_files_and_commands_refuse_in_the_same_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = (
        "rounds is a setting of networks, and closed-form, the default training algorithm, "
        'has no network; add training="fedavg"'
    )
    with pytest.raises(ValueError) as called:
        fl.compare(SIMULATION, ["random", "margin"], rounds=15)
    file = tmp_path / "own.toml"
    file.write_text("rounds = 15\n")
    with pytest.raises(ValueError) as written:
        find_config(str(file))
    assert str(called.value) == str(written.value) == sentence
    file.write_text("cycles = 1\n")
    monkeypatch.setattr(sys, "argv", ["fallow", "compare", str(file), "-s", "rounds=15"])
    with pytest.raises(SystemExit):
        main()
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_strategy_that_needs_a_network_is_refused_beside_others() -> None:
    with pytest.raises(ValueError, match="^ifal needs a network, .*" + REFUSED):
        fl.compare(SIMULATION, ["random", fl.IFAL()])


def test_a_call_on_top_of_a_file_is_read_as_one_with_it(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("cycles = 1\n")
    with pytest.raises(ValueError, match=REFUSED):
        read_request(SIMULATION, file, {"model": "mlp"})
    with pytest.raises(ValueError, match=REFUSED):
        read_request(SIMULATION, file, {}, [fl.IFAL()])
    # the encoder is that of the file, not the default of the closed form
    file.write_text('encoder = "auto"\n')
    prox = read_request(SIMULATION, file, {"training": "fedprox", "model": "mlp"}).config
    assert (str(prox.encoder), prox.rounds) == ("auto", 15)


def test_what_is_said_is_done(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('training = "fedprox"\n')
    assert find_config(str(file)).training.name == "fedprox"
    file.write_text('base = "demo"\n')
    assert find_config(str(file)).training == load_configs()["demo"].training
    prox = fl.FedProx(mu=0.1)
    assert (
        read_request(SIMULATION, None, {"training": prox}).config.training.name == "fedprox"
    )
    mapped = read_request(SIMULATION, {"training": "fedprox"}, {"cycles": 1}).config
    assert mapped.training.name == "fedprox"
    assert (
        read_request(SIMULATION, "demo", {}).config.training
        == load_configs()["demo"].training
    )


def test_a_strategy_trained_otherwise_leaves_what_the_closed_form_brought() -> None:
    solved = config_from({"name": "a", "training": "closed-form"})
    assert variant(solved, "random@training=fedavg") == config_from({"name": "a"})
    own = config_from({"name": "a", "training": "closed-form", "encoder": "fourier"})
    changed = variant(own, "random@training=fedavg")
    assert (str(changed.encoder), changed.rounds) == ("fourier", 15)
    # the same algorithm with another field counts as another one
    again = variant(own, "random@training=closed-form:penalty=0.1")
    assert (str(again.encoder), again.rounds) == ("fourier", 1)


@pytest.mark.long
def test_numbers_to_predict_are_solved_for_and_nothing_is_compared_twice() -> None:
    study = fl.compare("diabetes", None, seeds=1, cycles=1, progress=False)
    assert list(study.study_records.study.strategies) == ["random", "badge"]
    assert study.study_records.study.config["training"]["name"] == CLOSED_FORM
