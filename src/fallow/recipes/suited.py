"""Default strategies for the user's own data where those of the configuration do not apply."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.core.words import join_words
from fallow.data.dataset import Dataset
from fallow.experiment.methods import methods_of
from fallow.settings.recipe import Recipe
from fallow.settings.variants import variant
from fallow.study.opening import works_on

NUMBERS = (
    "random",
    "badge",
    "random@training=closed-form",
    "badge@training=closed-form",
)
"""For numbers to predict: of the strategies that choose by them, BADGE alone held its own against
random rows on tables (studies/fale.md); each in rounds of FedAvg, and solved for at once."""
SOLVED = NUMBERS[:2]
"""The same where a study solves for all its models."""


def suit_strategies(
    strategies: Sequence[str], recipe: Recipe, dataset: Dataset
) -> tuple[str, ...]:
    """The strategies, or where one of them cannot work on the data, others that can.

    A single strategy stays a single one.

    >>> from fallow.data import load
    >>> suit_strategies(["margin"], Recipe("a", data="diabetes"), load("diabetes"))
    ('badge',)
    """
    chosen = tuple(strategies)
    if all(_is_for(variant(recipe, strategy), dataset) for strategy in chosen):
        return chosen
    if len(chosen) == 1:
        return NUMBERS[1:2]
    if "least-squares" in methods_of(recipe)["training"].contract.tags:
        return SOLVED
    return NUMBERS


def describe_change(before: Sequence[str], after: Sequence[str], dataset: Dataset) -> str:
    """Why other strategies are compared than those of the recipe, in a sentence; "" where they are
    the same."""
    if tuple(before) == tuple(after):
        return ""
    instead = f"{join_words(after)} instead of {join_words(before)}"
    return f"{dataset.name} has numbers to predict: {instead}; --strategy names others"


def _is_for(recipe: Recipe, dataset: Dataset) -> bool:
    contract = methods_of(recipe)["query"].contract
    return dataset.task != "regression" or works_on(contract, dataset.task)
