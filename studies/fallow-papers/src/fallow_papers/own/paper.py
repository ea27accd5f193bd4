"""Definition of our own studies as a paper."""

from __future__ import annotations

from pathlib import Path

from fallow.configs.papers import Paper
from fallow.report.section import Sections

HERE = Path(__file__).parent


def sections() -> Sections:
    """Return the report section on the interaction of query strategy and training
    algorithm.
    """
    from fallow_papers.own.sections import SECTIONS

    return SECTIONS


CLOSED_FORM = Paper(
    "Closed-form models of persons and hospitals", folder=HERE / "closed-form"
)
PERSONAL_AL = Paper(
    "Active learning for personalized models",
    folder=HERE / "personal-al",
    sections=sections,
)
PIVOTAL = Paper("Pivotal selection for regression", folder=HERE / "pivotal")
