"""Early validation of arguments accepts every query strategy."""

from __future__ import annotations

import pytest

from fallow import strategies
from fallow.cli.arguments import BUILT_IN, PAPERS, check_arguments, check_recipe
from fallow.core.build import find
from fallow.core.names import spell_class
from fallow.recipes.find import find_recipe, load_recipes
from fallow.recipes.papers import FALLOW, GROUP
from fallow.settings.classes import classes_of


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
    parts = [recipe.name.partition("/")[0] for recipe in FALLOW.recipes]
    assert {*parts} == {*BUILT_IN}
    assert GROUP == PAPERS
    for name in load_recipes():
        check_recipe(name)


@pytest.mark.parametrize("name", ["dmo", "cifar", "unknown/cifar10"])
def test_early_and_late_a_recipe_is_unknown_in_the_same_words(name: str) -> None:
    with pytest.raises(ValueError, match="is not a recipe") as early:
        check_recipe(name)
    with pytest.raises(ValueError, match="is not a recipe") as late:
        find_recipe(name)
    assert str(early.value).partition(";")[0] == str(late.value).partition(";")[0]


@pytest.mark.parametrize(
    "strategy",
    ["mine:Own", "mine.sub:Own:tau=1@rounds=3", "entropy:model=global", "bound:all-labels"],
)
def test_fields_and_custom_strategies_are_left_to_the_run(strategy: str) -> None:
    check_arguments("demo", [strategy])
