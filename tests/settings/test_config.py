"""Configurations from text: TOML, --set, similar names, digests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.configs.find import find_config, load_configs
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.config import ExperimentConfig, config_from, with_settings
from fallow.settings.spec import Spec
from fallow.settings.variants import bounds_of, variant
from tests.data.published import write_fashion_mnist


@pytest.mark.parametrize(
    "text",
    [
        "ahfal",
        "ahfal:tau=15",
        "ahfal:tau=15:balance=none",
        "mine:Own:on=true:hidden=[3, 2]",
    ],
)
def test_a_spec_reads_what_it_writes(text: str) -> None:
    assert str(Spec.parse(text)) == text
    assert Spec.parse(str(Spec.parse(text))) == Spec.parse(text)


def test_a_spec_of_a_users_class_keeps_its_module() -> None:
    assert Spec.parse("my.module:Own:mu=0.1") == Spec("my.module:Own", {"mu": 0.1})
    with pytest.raises(
        ValueError, match="'b' in 'a:x=1:b' is not of the form parameter=value"
    ):
        Spec.parse("a:x=1:b")


@pytest.mark.parametrize("name", ["metrics", "measure", "drop", "bounds"])
def test_a_text_is_not_read_as_a_list_of_its_letters(name: str) -> None:
    settings: dict[str, Any] = {name: "auroc"}
    with pytest.raises(ValueError, match=rf"{name} is 'auroc'; it must be a list, such as"):
        ExperimentConfig("a", **settings)


@pytest.mark.parametrize("name", load_configs())
def test_a_recipe_survives_a_trip_through_json(name: str) -> None:
    again = config_from(json.loads(json.dumps(load_configs()[name].to_dict())))
    assert again == load_configs()[name]
    assert again.digest == load_configs()[name].digest


def test_settings_reach_into_parts_and_the_last_word_counts() -> None:
    made = with_settings(
        load_configs()["demo"],
        {
            "model": "mlp",
            "model.hidden": "[8]",
            "training_config.optimizer.lr": "0.5",
            "training_config.stages": "3",
            "local_training_config.stages": "4",
            "partition": "iid",
            "sites": "4",
            "bounds": "false",
            "title": "5",
        },
    )
    assert made.model == Spec("mlp", {"hidden": [8]})
    assert made.training_config == TrainingConfig(
        (TrainingStage(3),), 16, Optimizer(lr=0.5, momentum=0.9)
    )
    assert made.local_training_config.epochs == 4
    assert (made.partition, made.sites, made.bounds, made.title) == (
        Spec("iid"),
        4,
        (),
        "5",
    )


def test_other_data_does_not_keep_the_name_and_numbers_of_a_recipe() -> None:
    made = with_settings(
        load_configs()["ahfal/mnist-mini"], {"data": "mine/patients.csv", "label": "y"}
    )
    assert (made.name, made.title, made.published) == ("patients", "", None)
    own = config_from(
        {"data": "svhn", "published": {"setting": "dataset=SVHN"}},
        load_configs()["ahfal/mnist-mini"],
    )
    assert own.published is not None
    assert (own.title, own.published.setting) == ("", "dataset=SVHN")
    assert own.published.names["ahfal"] == "AHFAL"
    assert with_settings(load_configs()["demo"], {"data": "digits"}).name == "demo"


def test_published_results_stay_beside_the_same_images_at_another_path(
    tmp_path: Path,
) -> None:
    write_fashion_mnist(tmp_path)
    base = load_configs()["fairfal/fmnist"]
    same = with_settings(base, {"data": str(tmp_path / "fashion_mnist")})
    assert (same.published, same.title) == (base.published, base.title)
    (tmp_path / "fashion_mnist" / "t10k-images-idx3-ubyte.gz").unlink()
    assert with_settings(base, {"data": str(tmp_path / "fashion_mnist")}).published is None


def test_another_training_algorithm_keeps_an_encoder_that_is_set() -> None:
    plain = with_settings(load_configs()["demo"], {"training": "closed-form"})
    assert plain.encoder == Spec("auto")
    own = with_settings(load_configs()["demo"], {"encoder": "identity"})
    solved = with_settings(own, {"training": "closed-form"})
    assert (solved.encoder, solved.model) == (Spec("identity"), Spec("linear"))
    assert with_settings(solved, {"training": "fedavg"}).encoder == Spec("identity")
    assert with_settings(plain, {"training": "fedavg"}).encoder is None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"round": "3"}, "round is not a setting; did you mean 'rounds'?"),
        (
            {"training_config.bach": "3"},
            "training_config.bach is not a setting; did you mean 'batch_size'?",
        ),
        (
            {"training_config.optimizer.moment": "3"},
            "training_config.optimizer.moment is not a setting; did you mean",
        ),
        ({"rounds": "many"}, "rounds is 'many'; it must be a whole number, at least 1$"),
        ({"rounds": "2.5"}, "rounds is 2.5; it must be a whole number"),
        ({"rounds": "0"}, "rounds is 0; it must be at least 1"),
        ({"sites": "0"}, "sites is 0; it must be at least 1"),
        ({"cycles": "-1"}, "cycles is -1; it must be at least 0"),
        ({"participation": "0"}, "participation is 0.0; it must be above 0"),
        (
            {"training_config": "3"},
            "training_config is 3; its settings are set one by one: training_config.stages, ",
        ),
        ({"model": "[1]"}, "model is [1]; it must be a name, followed by parameters such"),
        ({"model": "5"}, "model is 5; it must be a name"),
        (
            {"rows": "many"},
            "rows is 'many'; it must be a whole number, at least 1, or none",
        ),
        ({"rounds": "null"}, "rounds is none; it must be a whole number"),
        ({"rounds": "true"}, "rounds is True; it must be a whole number, at least 1$"),
        (
            {"rows": "false"},
            "rows is False; it must be a whole number, at least 1, or none",
        ),
        (
            {"participation": "true"},
            "participation is True; it must be a number above 0 and at most 1$",
        ),
        (
            {"budget": "true"},
            "budget is True; it must be a fraction of all examples with a decimal point",
        ),
        ({"budget": "[1, true, 1]"}, "budget is [1, True, 1]; it must be a fraction"),
        (
            {"training_config.batch_size": "true"},
            "training_config.batch_size is True; it must be a whole number, at least 1, or none$",
        ),
        (
            {"training_config.stages": "true"},
            "training_config.stages is True; it must be a list of tables",
        ),
        (
            {"training_config.stages": '[{"epochs": true}]'},
            "stages.0.epochs is True; it must be a",
        ),
        (
            {"training_config.optimizer.betas": "[0.9, true]"},
            "betas.1 is True; it must be a number$",
        ),
        (
            {"privacy.epsilon": "true"},
            "privacy.epsilon is True; it must be a number, at least 1e-06 and",
        ),
        ({"drop_rows": "maybe"}, "drop_rows is 'maybe'; it must be true or false"),
        (
            {"initial": "few"},
            "initial is 'few'; it must be a fraction of all .* each site .20.$",
        ),
        ({"budget": "few"}, "budget is 'few'; it must be .* or a list of"),
        (
            {"privacy.epsilon": "low"},
            "privacy.epsilon is 'low'; it must be a number, at least 1e-06 and",
        ),
        (
            {"training_config.stages": "x"},
            "training_config.stages is 'x'; it must be a list of tables of",
        ),
        (
            {"training_config.stages": '[{"epoch": 2}]'},
            "stages.0.epoch is not a setting; did",
        ),
        (
            {"training_config.optimizer.betas": "[1]"},
            "betas is [1]; it must be a list of 2: a number",
        ),
        (
            {"training_config.optimizer.betas": "[1, 2, 3]"},
            "betas is [1, 2, 3]; it must be a list of 2: a number",
        ),
        ({"bounds": "pooled"}, "bounds is 'pooled'; it must be a list of"),
        ({"training_config.optimizer.lr": "-1"}, "lr is -1.0; it must be above 0"),
        (
            {"training_config.optimizer.momentum": "1"},
            "momentum is 1.0; it must be at least 0 and below 1",
        ),
        ({"training_config.batch_size": "0"}, "batch_size is 0; it must be at least 1"),
        (
            {"budget_allocation": "equl"},
            "budget_allocation is 'equl'; it must be 'equal', 'equal_rounded' or "
            "'proportional'",
        ),
        (
            {"budget": "proportional"},
            "one for each cycle; to allocate it so, set budget_allocation='proportional'$",
        ),
        (
            {"executor": "gpu"},
            "executor 'gpu' is unknown; use 'auto', 'device', 'loop' or 'stacked'",
        ),
        ({"device": "gpu"}, "device is 'gpu'; it must be 'none', 'cpu', 'cuda' or 'mps'"),
        (
            {"executor": "device"},
            "executor is 'device' and device is 'none'; set device=cuda",
        ),
        (
            {"precision": "bf16"},
            "precision is 'bf16' and device is 'none'; also set device=cuda",
        ),
        (
            {"device": "cuda", "executor": "stacked"},
            "device is 'cuda' and executor is 'stacked', which trains on the CPU",
        ),
        (
            {"device": "cpu", "precision": "tf32"},
            "precision is 'tf32' and device is 'cpu', which does not",
        ),
        (
            {"device": "cuda", "precision": "bf16", "dtype": "float64"},
            "dtype is 'float64' and precision is 'bf16', which has fewer digits",
        ),
        (
            {"device": "mps", "dtype": "float64"},
            "dtype is 'float64' and device is 'mps', which does not",
        ),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?").replace("[", r"\[")):
        with_settings(ExperimentConfig("a"), settings)


def toml(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_toml_file_starts_from_a_recipe_and_changes_it(tmp_path: Path) -> None:
    text = """
    base = "demo"
    rounds = 2
    partition = {name = "dirichlet", alpha = 0.5}
    strategy = "ahfal:tau=15"
    [model]
    hidden = [8]
    [training_config.optimizer]
    lr = 0.1
    """
    made = find_config(str(toml(tmp_path, text)))
    demo = load_configs()["demo"]
    lr = replace(
        demo.training_config, optimizer=replace(demo.training_config.optimizer, lr=0.1)
    )
    assert made == replace(
        demo,
        name="mine",
        rounds=2,
        partition=Spec("dirichlet", {"alpha": 0.5}),
        strategy=Spec("ahfal", {"tau": 15}),
        model=Spec("mlp", {"hidden": [8]}),
        training_config=lr,
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rounds = ", "is not valid TOML"),
        ('base = "dem"', "'dem' is not an experiment configuration; did you mean 'demo'?"),
        (
            'base = "demo"\nround = 3',
            "mine.toml: round is not a setting; did you mean 'rounds'?",
        ),
        ('training = "fedavg"\n[model]\nhidden = [3]', "names no class"),
        (
            'training = "fedavg"\nrounds = true',
            "mine.toml: rounds is True; it must be a whole number",
        ),
    ],
)
def test_a_bad_toml_file_says_what_is_wrong(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        find_config(str(toml(tmp_path, text)))


def test_a_missing_toml_file_and_an_unknown_recipe_are_named() -> None:
    with pytest.raises(ValueError, match=r"nowhere\.toml cannot be read: No such file"):
        find_config("nowhere.toml")
    with pytest.raises(ValueError, match="did you mean 'ahfal/mnist-mini'"):
        find_config("ahfal/mnist-mni")


def test_the_upper_bounds_change_only_what_they_must() -> None:
    config = ExperimentConfig("a", initial=10, budget=5, sites=4)
    assert bounds_of(config) == ("bound:all-labels", "bound:pooled")
    everything = variant(config, "bound:all-labels")
    assert (everything.initial, everything.cycles, everything.sites) == (1.0, 0, 4)
    pooled = variant(config, "bound:pooled")
    assert (pooled.initial, pooled.budget, pooled.sites) == (40, 20, 1)
    assert variant(config, "ahfal:tau=15").strategy == Spec("ahfal", {"tau": 15})


def test_the_fields_of_a_recipe_are_plain_values() -> None:
    config: Any = load_configs()["demo"]
    assert (
        json.loads(json.dumps(config.to_dict()))["training_config"]["batch_size"]
        == config.training_config.batch_size
    )


def test_a_toml_file_may_begin_with_the_mark_that_editors_of_windows_write(
    tmp_path: Path,
) -> None:
    file = tmp_path / "größe.toml"
    file.write_bytes("\ufeffbase = 'demo'\ntitle = 'Größe'\n".encode())
    assert find_config(str(file)).title == "Größe"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_toml_file_of_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes("title = 'Größe'".encode(encoding))
    with pytest.raises(ValueError, match=r"mine\.toml is not UTF-8, .*save it with that"):
        find_config(str(file))
