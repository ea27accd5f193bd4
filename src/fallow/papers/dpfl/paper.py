"""DPFL, as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.papers.dpfl import recipes
from fallow.papers.dpfl.labels import field_words
from fallow.report.paper import Paper, Sections
from fallow.study.known import Labels


def sections() -> Sections:
    """Who learns from whom."""
    from fallow.papers.dpfl.sections import SECTIONS

    return SECTIONS


DPFL = Paper(
    title="Decentralized Personalized Federated Learning",
    authors="Kharrat, Canini & Horvath",
    year=2025,
    recipes=recipes.RECIPES,
    published=Path(__file__).parent / "published",
    labels=Labels(field=field_words),
    sections=sections,
)
