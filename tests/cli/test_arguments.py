"""Early validation of arguments accepts every query strategy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fallow import strategies
from fallow.cli.arguments import BUILT_IN, PAPERS, check_arguments, check_config
from fallow.configs.find import find_config, load_configs
from fallow.configs.papers import FALLOW, GROUP
from fallow.core.build import find
from fallow.core.names import spell_class
from fallow.settings.classes import classes_of
from fallow.settings.config import with_settings
from fallow.settings.fields import expand


def test_every_query_strategy_and_alias_is_known() -> None:
    aliases: list[str] = []
    for cls in classes_of("strategy").values():
        check_arguments(
            "demo", [spell_class(cls), cls.__name__, f"{spell_class(cls)}@rounds=2"]
        )
        aliases += cls.contract.aliases
    assert aliases
    for alias in aliases:
        check_arguments("demo", [alias])
        assert find(strategies, alias)


def test_every_experiment_configuration_is_known() -> None:
    parts = [config.name.partition("/")[0] for config in FALLOW.configs]
    assert {*parts} == {*BUILT_IN}
    assert GROUP == PAPERS
    for name in load_configs():
        check_config(name)


@pytest.mark.parametrize("name", ["dmo", "cifar", "unknown/cifar10"])
def test_early_and_late_a_recipe_is_unknown_in_the_same_words(name: str) -> None:
    with pytest.raises(ValueError, match="is not an experiment configuration") as early:
        check_config(name)
    with pytest.raises(ValueError, match="is not an experiment configuration") as late:
        find_config(name)
    assert str(early.value).partition(";")[0] == str(late.value).partition(";")[0]


@pytest.mark.parametrize(
    "strategy",
    ["mine:Own", "mine.sub:Own:tau=1@rounds=3", "entropy:model=global", "bound:all-labels"],
)
def test_fields_and_custom_strategies_are_left_to_the_run(strategy: str) -> None:
    check_arguments("demo", [strategy])


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ("rows=x", "rows is 'x'; it must be a whole number or none"),
        ("lr=fast", "training_config.optimizer.lr is 'fast'; it must be a number or none"),
        ("privacy.epsilon=true", "privacy.epsilon is True; it must be a number or none"),
        ("privacy.epsilom=1", "privacy.epsilom is not a setting; did you mean 'epsilon'?"),
        ("privcy.epsilon=1", "privcy is not a setting; did you mean 'privacy'?"),
    ],
)
def test_a_setting_is_wrong_in_the_same_words_early_and_late(
    pair: str, sentence: str
) -> None:
    with pytest.raises(ValueError) as early:
        check_arguments("demo", [], [pair])
    assert str(early.value) == sentence
    key, _, text = pair.partition("=")
    demo = find_config("demo")
    with pytest.raises(ValueError) as late:
        with_settings(demo, expand(demo, {key: text}))
    assert str(late.value) == sentence


def test_settings_are_checked_before_pytorch_is_loaded() -> None:
    code = (
        "import sys; from fallow.cli.arguments import check_arguments; "
        "check_arguments('demo', ['ahfal'], ['rows=none', 'alpha=1.0', 'privacy.epsilon=1.0']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
