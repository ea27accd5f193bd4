"""Definition of FairFAL as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper
from fallow.report.section import Sections


def sections() -> Sections:
    """Return the report sections: Observation 1 and the study of query models."""
    from fallow_papers.fairfal.sections import SECTIONS

    return SECTIONS


FAIRFAL = Paper(
    title="Federated Active Learning Under Extreme Non-IID and Global Class Imbalance",
    authors="Zong & Huang",
    year=2026,
    folder=Path(__file__).parent,
    sections=sections,
)
