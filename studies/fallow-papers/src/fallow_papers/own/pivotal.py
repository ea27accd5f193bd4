"""Pivotal samples, random sampling and FALE on nine regression tables with one solver.

Every budget of 300, 600, ..., 3,000 labels is a separate selection from scratch. All models
are weighted least squares on the server side with the same ridge. Budgets are proportional
to the examples of a site, so that random sampling represents the whole federation and not
its smaller sites.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

FEWEST = 300  # labels of the first budget
TRAINED = 0.8  # of all examples; the others are the test set
SETS = {  # name: (data, title, examples)
    "protein": ("protein", "Protein structure", 45_730),
    "kegg": ("kegg", "Metabolic networks", 63_608),
    "diamonds": ("diamonds_onehot", "Prices of diamonds", 53_940),
    "kin40k": ("kin40k", "Forward kinematics", 40_000),
    "california": ("california", "Houses in California", 20_640),
    "bike": ("bike", "Bicycles for hire", 17_379),
    "elevators": ("elevators", "Elevators of an aircraft", 16_599),
    "pol": ("pol", "Telecommunication", 15_000),
    "sarcos": ("sarcos", "A robot's arm, few rows", 4_449),
}
COMMON = Recipe(
    name="pivotal/protein",
    title="Protein structure: pivotal samples",
    data="protein",
    resplit=True,
    partition=Spec("target-dirichlet", {"alpha": 5.0}),
    sites=10,
    model=Spec("linear"),
    training=Spec("server-solve", {"ridge": 1e-4}),
    rounds=1,
    initial=0,
    protocol="one_pass",
    budget_allocation="proportional",
    cycles=10,
    score_rounds=1,
    dtype="float64",
    strategies=(
        "random",
        "random@budget_allocation=equal",
        "fale",
        "pivotal",
        "pivotal:tree=false",
    ),
    reference="random",
    bounds=("all-labels",),
)


def of(name: str) -> Recipe:
    """Return the configuration of one table.

    >>> of("pol").title, of("pol").cycles
    ('Telecommunication: pivotal samples', 10)
    """
    data, words, rows = SETS[name]
    return replace(
        COMMON,
        name=f"pivotal/{name}",
        title=f"{words}: pivotal samples",
        data=data,
        budget=FEWEST / (TRAINED * rows),
    )


def mini(name: str) -> Recipe:
    """Return the configuration with 1,000, 2,000 and 3,000 labels."""
    recipe = of(name)
    _, _, rows = SETS[name]
    return replace(
        recipe,
        name=f"{recipe.name}-mini",
        title=f"{recipe.title}, three budgets",
        budget=1000 / (TRAINED * rows),
        cycles=3,
    )


RECIPES = (*map(of, SETS), *map(mini, SETS))
