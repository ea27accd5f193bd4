"""KAFAL, as a paper."""

from __future__ import annotations

from fallow.papers.kafal import recipes
from fallow.report.paper import Paper

KAFAL = Paper(
    title="Knowledge-Aware Federated Active Learning with Non-IID Data",
    authors="Cao et al.",
    year=2023,
    recipes=recipes.RECIPES,
)
