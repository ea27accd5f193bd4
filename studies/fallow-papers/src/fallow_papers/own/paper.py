"""Definition of our own studies as a paper."""

from __future__ import annotations

from fallow.recipes.papers import Paper
from fallow.report.section import Sections
from fallow_papers.own import closed_form, personal_al, pivotal


def sections() -> Sections:
    """Return the report section on the interaction of query strategy and training
    algorithm.
    """
    from fallow_papers.own.sections import SECTIONS

    return SECTIONS


CLOSED_FORM = Paper(
    "Closed-form models of persons and hospitals", recipes=closed_form.RECIPES
)
PERSONAL_AL = Paper(
    "Active learning for personalized models",
    recipes=personal_al.RECIPES,
    sections=sections,
)
PIVOTAL = Paper("Pivotal selection for regression", recipes=pivotal.RECIPES)
