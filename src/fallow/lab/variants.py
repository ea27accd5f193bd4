"""What a study runs beside its strategies: upper bounds made from the same recipe."""

from __future__ import annotations

from dataclasses import replace

from fallow.lab.recipe import Recipe
from fallow.lab.spec import Spec

BOUND = "bound:"


def bounds_of(recipe: Recipe) -> tuple[str, ...]:
    """The upper bounds that a recipe wants, as names of cells.

    >>> bounds_of(Recipe("a", bounds=("pooled",)))
    ('bound:pooled',)
    """
    return tuple(BOUND + name for name in recipe.bounds)


def variant(recipe: Recipe, query: str) -> Recipe:
    """The recipe with another query, or turned into one of the upper bounds.

    ``bound:all-labels`` trains once on every label; ``bound:pooled`` is entropy sampling on all
    rows in one place, with the same budget.
    """
    if query == "bound:all-labels":
        return replace(recipe, query=Spec("random"), initial=1.0, cycles=0)
    if query == "bound:pooled":
        return replace(
            recipe,
            query=Spec("entropy"),
            sites=1,
            partition=Spec("iid"),
            participation=1.0,
            initial=_pooled(recipe.initial, recipe.sites),
            per_cycle=_pooled(recipe.per_cycle, recipe.sites),
        )
    return replace(recipe, query=Spec.parse(query))


def _pooled(share: float | int, sites: int) -> float | int:
    return share * sites if isinstance(share, int) else share
