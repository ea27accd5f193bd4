"""A first look: handwritten digits that come with scikit-learn, ten sites, skewed classes."""

from __future__ import annotations

from fallow.core.plan import Optimiser, Plan, Segment
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

DEMO = Recipe(
    name="demo",
    title="Ten sites choose which digits to have labelled",
    data="digits",
    model=Spec("mlp"),
    plan=Plan((Segment(5),), 16, Optimiser(lr=0.05, momentum=0.9)),
    initial=0.05,
    per_cycle=0.05,
    rounds=15,
    cycles=4,
    queries=("random", "entropy", "ahfal"),
    query=Spec("ahfal"),
    reference="ahfal",
    seeds=8,
)

RECIPES = (DEMO,)
