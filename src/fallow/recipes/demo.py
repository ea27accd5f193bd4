"""Demo: handwritten digits of scikit-learn at ten sites with heterogeneous classes.

It compares FedAvg and a closed-form classifier, each with random sampling and a query strategy, at the
same number of labels.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

DEMO = Recipe(
    name="demo",
    title="Handwritten digits at ten sites: FedAvg and a closed-form classifier",
    data="digits",
    model=Spec("mlp"),
    training_config=TrainingConfig(
        (TrainingStage(5),), 16, Optimizer(lr=0.1, momentum=0.9)
    ),
    initial=0.05,
    budget=0.05,
    rounds=7,
    score_rounds=3,
    cycles=3,
    strategies=(
        "random",
        "margin",
        "random@training=closed-form",
        "margin@training=closed-form",
    ),
    strategy=Spec("ahfal"),
    reference="margin@training=closed-form",
    seeds=7,  # the smallest number with which the exact test over three comparisons can reach 0.05
    bounds=("all-labels",),
)
SOLVED = (
    "random@training=fedavg",
    "margin@training=fedavg",
    "random",
    "margin",
)
"""Strategies of the demo. A study trains in closed form unless a strategy overrides this."""

FAST = replace(DEMO, cycles=2, seeds=2, bounds=())
"""The demo in 15 seconds, with too few seeds for a test."""

TARGET = 0.9
"""Accuracy to which the demo counts labels."""

RECIPES = (DEMO,)
ABOUT = (
    f"{DEMO.sites} simulated sites have the handwritten digits of scikit-learn. Each site "
    "has mostly a few classes (non-IID). In each cycle, the sites select examples to "
    "label, at random or by the smallest margin. They then train one global model by "
    "FedAvg or in closed form."
)
"""Message before the demo begins."""
