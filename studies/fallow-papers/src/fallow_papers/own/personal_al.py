"""Active learning for personalized models: joint selection of examples and collaborators.

All query strategies are combined with all training algorithms. Their separate effects are
main effects; a joint benefit is their interaction, which the report computes
(`fallow_papers.own.crossed`).

Twenty sites of three classes each share 16,000 examples of MNIST. The model is a small
dense network, trained for 8 rounds of 2 epochs. There are 20 initial labels per site and 20
per cycle, a fifth of which is held out for validation. Models continue from one cycle to
the next, and every site is tested on its classes. ``query-model`` compares the models that
select, also with the same number of random collaborators. ``flip``: eight sites have
mirrored labels, so that collaborators conflict.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

CHOICES = (
    "random",
    "entropy",  # by the site's own model, before any averaging
    "entropy:model=average",  # by the mean of all sites' models
    "entropy:model=personal",  # by the site's own average with its collaborators
    "complementary",
)
TRAININGS = ("local", "fed-avg-ft", "dpfl:budget=5", "dpfl:budget=5:graph=static")

GRID = Recipe(
    name="personal-al/mnist",
    title="Queries x personalized training: MNIST, 20 sites of 3 classes",
    data="mnist",
    rows=16_000,
    test_rows=4000,
    partition=Spec("patho"),
    sites=20,
    model=Spec("mlp", {"hidden": [64]}),
    training_config=TrainingConfig(
        (TrainingStage(2),), 10, Optimizer(lr=0.02, momentum=0.9, weight_decay=1e-3)
    ),
    rounds=8,
    restart="continue",
    initial=20,
    budget=20,
    cycles=4,
    validation=0.2,
    test="own",
    strategies=tuple(f"{q}@training={t}" for t, q in product(TRAININGS, CHOICES)),
    strategy=Spec("complementary"),
    training=Spec("dpfl", {"budget": 5}),
    reference="random@training=dpfl:budget=5",
    seeds=5,
    bounds=(),
)
FLIP = replace(
    GRID,
    name="personal-al/mnist-flip",
    title="Queries x personalized training: MNIST, 20 sites of 3 classes, 8 with flipped labels",
    flip=8,
)

ASKED = ("local", "collaborators", "personal", "average", "better")
"""Models that the entropy strategy may use, by their names in `strategies.Entropy`."""

QUERY_MODEL = replace(
    GRID,
    name="personal-al/query-model",
    title="Query model: entropy by five models, under DPFL and random collaborators",
    strategies=tuple(
        f"{q}@training={t}"
        for t, q in product(
            ("dpfl:budget=5", "dpfl:budget=5:graph=degree"),
            ("random", *(f"entropy:model={model}" for model in ASKED), "complementary"),
        )
    ),
)

RECIPES = (GRID, FLIP, QUERY_MODEL)
