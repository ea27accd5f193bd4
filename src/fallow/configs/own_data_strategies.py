"""Default strategies for the user's own data if those of the configuration do not support
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.core.wording import join_words
from fallow.data.dataset import Dataset
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import variant
from fallow.study.preparation import works_on

NUMBERS = (
    "random",
    "badge",
    "random@training=closed-form",
    "badge@training=closed-form",
)
"""Strategies for regression. Of those that support it, only BADGE was as good as random
sampling on tables (studies/fale.md). Each is combined with FedAvg and a closed-form
regressor.
"""
SOLVED = NUMBERS[:2]
"""The same for a study that trains all models in closed form."""


def suit_strategies(
    strategies: Sequence[str], config: ExperimentConfig, dataset: Dataset
) -> tuple[str, ...]:
    """Return the strategies, or others if one of them does not support the data.

    A single strategy is replaced by a single one.

    >>> from fallow.data import load
    >>> suit_strategies(
    ...     ["margin"], ExperimentConfig("a", data="diabetes"), load("diabetes")
    ... )
    ('badge',)
    """
    chosen = tuple(strategies)
    if all(_is_for(variant(config, strategy), dataset) for strategy in chosen):
        return chosen
    if len(chosen) == 1:
        return NUMBERS[1:2]
    if "least-squares" in methods_of(config)["training"].contract.tags:
        return SOLVED
    return NUMBERS


def describe_change(before: Sequence[str], after: Sequence[str], dataset: Dataset) -> str:
    """Explain why other strategies than those of the configuration are compared, or return
    "".
    """
    if tuple(before) == tuple(after):
        return ""
    instead = f"{join_words(after)} instead of {join_words(before)}"
    return f"{dataset.name} is a regression task: {instead}; --strategy names others"


def _is_for(config: ExperimentConfig, dataset: Dataset) -> bool:
    contract = methods_of(config)["query"].contract
    return dataset.task != "regression" or works_on(contract, dataset.task)
