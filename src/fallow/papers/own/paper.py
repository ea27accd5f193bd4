"""Studies of our own, as a paper."""

from __future__ import annotations

from fallow.papers.own import (
    closed_form,
    demo,
    few_labels,
    personal_al,
    pivotal,
    strategies,
)
from fallow.report.paper import Paper, Sections


def sections() -> Sections:
    """Whether choosing rows and training belong together."""
    from fallow.papers.own.sections import SECTIONS

    return SECTIONS


OWN = Paper(
    title="Fallow's own studies",
    recipes=(
        *demo.RECIPES,
        *strategies.RECIPES,
        *closed_form.RECIPES,
        *personal_al.RECIPES,
        *pivotal.RECIPES,
        *few_labels.RECIPES,
    ),
    sections=sections,
)
