"""Definition of KAFAL as a paper."""

from __future__ import annotations

from fallow.recipes.papers import Paper
from fallow_papers.kafal import recipes

KAFAL = Paper(
    title="Knowledge-Aware Federated Active Learning with Non-IID Data",
    authors="Cao et al.",
    year=2023,
    recipes=recipes.RECIPES,
)
