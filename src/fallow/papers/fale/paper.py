"""FALE, as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.papers.fale import recipes
from fallow.papers.fale.labels import call
from fallow.report.paper import Paper, Sections
from fallow.study.known import Labels


def sections() -> Sections:
    """Its Table 2, and what its parts are worth."""
    from fallow.papers.fale.sections import SECTIONS

    return SECTIONS


FALE = Paper(
    title="Efficient Heterogeneity-Aware Federated Active Data Selection",
    authors="Tang et al.",
    year=2025,
    recipes=tuple(recipes.RECIPES),
    published=Path(__file__).parent / "published",
    labels=Labels(strategy=call),
    sections=sections,
)
