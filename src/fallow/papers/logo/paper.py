"""LoGo, as a paper."""

from __future__ import annotations

from fallow.papers.logo import recipes
from fallow.report.paper import Paper

LOGO = Paper(
    title="Re-thinking Federated Active Learning Based on Inter-class Diversity",
    authors="Kim et al.",
    year=2023,
    recipes=recipes.RECIPES,
)
