"""What a study trains by that names no training method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.api.settings import read_request
from fallow.core.own import lend
from fallow.papers import RECIPES, find_recipe
from fallow.papers.own.default_training import CLOSED_FORM, FEDAVG, default_training
from fallow.settings.recipe import recipe_from
from fallow.settings.variants import variant
from tests.toys import First

WORLD = fl.Federation(fl.load("digits"), "iid", sites=4)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "mlp"},
        {"rounds": 3},
        {"training_config": {"batch_size": 8}},
        {"head": "exact"},
        {"features": "resnet18"},
        {"query": "ifal"},
        {"query": {"name": "ifal", "epochs": 5}},
        {"queries": ["random", "noise-stability"]},
        {"queries": "random,noise-stability"},
        {"queries": ["random", "margin@rounds=5"]},
        {"queries": ["random", "margin@trainer=3x2"]},
        {"queries": ["random", "margin@privacy.epsilon=1.0"]},
        {"queries": ["random", "ksas"]},
        {"fresh_first": True},
        {"training_config.batch_size": "8"},
        {"privacy": {"epsilon": 1.0}},
        {"privacy": fl.Privacy(epsilon=1.0)},
        {"privacy.epsilon": "1.0"},
    ],
)
def test_whoever_speaks_of_a_network_or_of_noise_has_one_trained(
    settings: dict[str, Any],
) -> None:
    assert default_training(settings, []) == FEDAVG


@pytest.mark.parametrize(
    "strategies",
    [[], ["random", "badge", "ahfal:tau=15"], ["ifal@training=fedavg"], ["nowhere:Mine"]],
)
def test_all_else_is_solved_for(strategies: list[str]) -> None:
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
def test_a_setting_that_changes_nothing_trains_nothing_by_steps(
    settings: dict[str, Any],
) -> None:
    assert default_training(settings, []) == CLOSED_FORM


def test_a_query_of_ones_own_that_looks_at_networks_has_one_trained() -> None:
    name = f"{First.__module__}:{First.__qualname__}"
    with lend({name: First}):
        assert default_training({}, [name]) == CLOSED_FORM

    class Deep(fl.Query):
        contract = fl.Contract(
            "Deep", keep={"select": "a count"}, not_solved="it looks at layers"
        )

        def select(self, view: Any, n: int) -> Any:
            return range(n)

    with lend({"mine:Deep": Deep}):
        assert default_training({}, ["mine:Deep"]) == FEDAVG


def test_calls_and_files_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('queries = ["random", "margin"]\ncycles = 1\n')
    called = read_request(WORLD, None, {"cycles": 1}, ["random", fl.Margin()]).recipe
    mapped = read_request(WORLD, {"cycles": 1}, {}, ["random"]).recipe
    written = find_recipe(str(file))
    for recipe in (called, mapped, written):
        found = (recipe.training.name, recipe.rounds, str(recipe.encoder))
        assert found == (CLOSED_FORM, 1, "auto")

    file.write_text('queries = ["random", "margin"]\nrounds = 4\n')
    mixed = read_request(WORLD, {"cycles": 1}, {"model": "mlp"}).recipe
    assert mixed.training.name == find_recipe(str(file)).training.name == FEDAVG


@pytest.mark.parametrize(
    ("changes", "strategies"),
    [({"model": "mlp"}, []), ({"privacy.epsilon": "1.0"}, []), ({}, ["random", "ifal"])],
)
def test_what_is_said_on_top_of_a_file_is_about_its_training_too(
    tmp_path: Path, changes: dict[str, Any], strategies: list[str]
) -> None:
    below = tmp_path / "below.toml"
    below.write_text("cycles = 1\n")
    file = tmp_path / "own.toml"
    file.write_text('base = "below.toml"\n')
    assert find_recipe(str(file)).training.name == CLOSED_FORM
    changed = find_recipe(str(file), changes, strategies)
    assert changed.training.name == FEDAVG


def test_a_call_on_top_of_a_file_means_what_the_file_would_say(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("cycles = 1\n")
    called = read_request(WORLD, file, {"model": "mlp"}).recipe
    queried = read_request(WORLD, file, {}, [fl.IFAL()]).recipe
    assert called.training.name == queried.training.name == FEDAVG
    # the encoder is the file's own, not one that the closed form had brought
    file.write_text('encoder = "auto"\n')
    prox = read_request(WORLD, file, {"training": "fedprox"}).recipe
    assert (str(prox.encoder), prox.rounds) == ("auto", 15)


def test_what_is_said_is_done(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('training = "fedprox"\n')
    assert find_recipe(str(file)).training.name == "fedprox"
    file.write_text('base = "demo"\n')
    assert find_recipe(str(file)).training == RECIPES["demo"].training
    prox = fl.FedProx(mu=0.1)
    assert read_request(WORLD, None, {"training": prox}).recipe.training.name == "fedprox"
    mapped = read_request(WORLD, {"training": "fedprox"}, {"cycles": 1}).recipe
    assert mapped.training.name == "fedprox"
    assert read_request(WORLD, "demo", {}).recipe.training == RECIPES["demo"].training


def test_a_strategy_trained_otherwise_leaves_what_the_closed_form_brought() -> None:
    solved = recipe_from({"name": "a", "training": "closed-form"})
    assert variant(solved, "random@training=fedavg") == recipe_from({"name": "a"})
    own = recipe_from({"name": "a", "training": "closed-form", "encoder": "fourier"})
    changed = variant(own, "random@training=fedavg")
    assert (str(changed.encoder), changed.rounds) == ("fourier", 15)
    # the same method with another field is no other method
    again = variant(own, "random@training=closed-form:penalty=0.1")
    assert (str(again.encoder), again.rounds) == ("fourier", 1)


def test_numbers_to_predict_are_solved_for_and_nothing_is_compared_twice() -> None:
    study = fl.compare(None, "diabetes", seeds=1, cycles=1, progress=False)
    assert list(study.found.study.queries) == ["random", "badge"]
    assert study.found.study.recipe["training"]["name"] == CLOSED_FORM
