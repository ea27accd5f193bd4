"""Closed-form models and FedAvg on tabular data of persons and hospitals.

Both share initial labels, budgets and test sets. FedAvg trains a network with one hidden
layer. The closed-form model uses random Fourier features, or the features themselves. The
learning rates of FedAvg were chosen from those in studies/closed-form.md by the final score
of random sampling, with seeds that the configurations do not use.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

FOURIER = "training=closed-form@encoder=fourier"
NUMBERS = "training=closed-form@encoder=identity"

PEOPLE = Recipe(
    name="closed-form/har",
    title="Human activities, from the sensors of phones: 21 persons, tested on 9 others",
    data="har",
    partition=Spec("natural"),
    sites=0,
    model=Spec("mlp"),
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.2, momentum=0.9)
    ),
    initial=0.02,  # 7 examples per person
    budget=0.02,
    cycles=4,
    budget_allocation="proportional",
    strategies=(
        "random",
        "margin",
        f"random@{FOURIER}",
        f"margin@{FOURIER}",
        f"random@{NUMBERS}",
        f"margin@{NUMBERS}",
    ),
    strategy=Spec("margin"),
    reference=f"random@{FOURIER}",
    bounds=(),
)

HOSPITALS = replace(
    PEOPLE,
    name="closed-form/heart",
    title="Heart disease in four hospitals, tested on other patients of the same hospitals",
    data="heart",
    resplit=True,
    training_config=replace(
        PEOPLE.training_config, optimizer=Optimizer(lr=0.01, momentum=0.9)
    ),
    initial=0.1,
    budget=0.05,
)

RECIPES = (PEOPLE, HOSPITALS)
