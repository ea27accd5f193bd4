"""Definition of FALE as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper
from fallow.report.section import Sections
from fallow.study.known import Labels
from fallow_papers.fale.labels import name_strategy


def sections() -> Sections:
    """Return the report sections: Table 2, and the effect of FALE's parts."""
    from fallow_papers.fale.sections import SECTIONS

    return SECTIONS


FALE = Paper(
    title="Efficient Heterogeneity-Aware Federated Active Data Selection",
    authors="Tang et al.",
    year=2025,
    folder=Path(__file__).parent,
    labels=Labels(strategy=name_strategy),
    sections=sections,
)
