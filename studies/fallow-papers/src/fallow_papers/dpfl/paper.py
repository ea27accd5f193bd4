"""Definition of DPFL as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper
from fallow.report.section import Sections
from fallow.study.known import Labels
from fallow_papers.dpfl.labels import field_words


def sections() -> Sections:
    """Return the report sections on collaboration graphs."""
    from fallow_papers.dpfl.sections import SECTIONS

    return SECTIONS


DPFL = Paper(
    title="Decentralized Personalized Federated Learning",
    authors="Kharrat, Canini & Horvath",
    year=2025,
    folder=Path(__file__).parent,
    labels=Labels(field=field_words),
    sections=sections,
)
