"""Early validation of arguments accepts every query strategy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fallow import strategies
from fallow.cli.arguments import BUILT_IN, PAPERS, check_arguments, check_config
from fallow.configs.find import find_config, load_configs
from fallow.configs.papers import FALLOW, GROUP
from fallow.core.build import build, find
from fallow.core.names import spell_class
from fallow.settings.classes import classes_of, packages_of
from fallow.settings.config import with_settings
from fallow.settings.fields import expand
from fallow.settings.spec import Spec


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


@pytest.mark.long
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
        ("rows=x", "rows is 'x'; it must be a whole number, at least 1, or none"),
        (
            "lr=fast",
            "training_config.optimizer.lr is 'fast'; it must be a number above 0 or none",
        ),
        (
            "privacy.epsilon=true",
            "privacy.epsilon is True; it must be a number, at least 1e-06 and at most 1e+06, or none",
        ),
        ("privacy.epsilom=1", "privacy.epsilom is not a setting; did you mean 'epsilon'?"),
        ("privcy.epsilon=1", "privcy is not a setting; did you mean 'privacy'?"),
        ("nothing=1", "nothing is not a setting; did you mean 'training'?"),
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


@pytest.mark.parametrize(
    ("part", "text", "sentence"),
    [
        (
            "partition",
            "dirichlt",
            "'dirichlt' is not one of the partitions; did you mean 'dirichlet'?",
        ),
        (
            "partition",
            "dirichlet:alpa=1",
            "dirichlet has no setting 'alpa'; did you mean 'alpha'?",
        ),
        (
            "training",
            "margin",
            "'margin' is a query strategy, not a training algorithm; give it as the strategy",
        ),
        (
            "encoder",
            "resnet18",
            "'resnet18' is not one of the encoders; for the pretrained network, write "
            "'timm:resnet18'",
        ),
        (
            "strategy",
            "fedavg",
            "'fedavg' is a training algorithm, not a query strategy; set training=fedavg",
        ),
        (
            "strategy",
            "zz",
            "'zz' is not one of the strategies; 'fallow algorithms' lists them",
        ),
        (
            "strategy",
            "ahfal:tua=3",
            "ahfal has no setting 'tua'; did you mean 'tau'?",
        ),
    ],
)
def test_a_component_is_wrong_in_the_same_words_early_and_late(
    part: str, text: str, sentence: str
) -> None:
    with pytest.raises(ValueError) as early:
        check_arguments("demo", [], [f"{part}={text}"])
    assert str(early.value) == sentence
    spec = Spec.parse(text)
    with pytest.raises(ValueError) as late:
        build(packages_of(part), spec.name, **spec.fields)
    assert str(late.value) == sentence


def test_settings_are_checked_before_pytorch_is_loaded() -> None:
    code = (
        "import sys; from fallow.cli.arguments import check_arguments; "
        "check_arguments('demo', ['ahfal'], ['rows=none', 'alpha=1.0', 'privacy.epsilon=1.0']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
