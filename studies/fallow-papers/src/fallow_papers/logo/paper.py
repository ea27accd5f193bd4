"""Definition of LoGo as a paper."""

from __future__ import annotations

from fallow.recipes.papers import Paper
from fallow_papers.logo import recipes

LOGO = Paper(
    title="Re-thinking Federated Active Learning Based on Inter-class Diversity",
    authors="Kim et al.",
    year=2023,
    recipes=recipes.RECIPES,
)
