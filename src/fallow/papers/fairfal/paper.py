"""FairFAL, as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.papers.fairfal import recipes
from fallow.report.paper import Paper, Sections


def sections() -> Sections:
    """Which model should choose: its Observation 1 and its selector study."""
    from fallow.papers.fairfal.sections import SECTIONS

    return SECTIONS


FAIRFAL = Paper(
    title="Federated Active Learning Under Extreme Non-IID and Global Class Imbalance",
    authors="Zong & Huang",
    year=2026,
    recipes=recipes.RECIPES,
    published=Path(__file__).parent / "published",
    sections=sections,
)
