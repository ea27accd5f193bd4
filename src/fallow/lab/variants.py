"""What a study compares: strategies, each with settings of its own, and upper bounds."""

from __future__ import annotations

from dataclasses import replace

from fallow.lab.recipe import Recipe, with_settings
from fallow.lab.spec import Spec
from fallow.privacy import Privacy

BOUND = "bound:"
SHARED = ("name", "data", "label", "site", "rows", "test_rows", "partition", "sites", "query",
          "queries", "seeds", "reference", "bounds", "published")  # fmt: skip
"""Settings that make strategies comparable: one study has one of each."""


def bounds_of(recipe: Recipe) -> tuple[str, ...]:
    """The upper bounds that a recipe wants, as names of cells.

    >>> bounds_of(Recipe("a", bounds=("pooled",)))
    ('bound:pooled',)
    """
    return tuple(BOUND + name for name in recipe.bounds)


def variant(recipe: Recipe, query: str) -> Recipe:
    """The recipe with another query, or turned into one of the upper bounds.

    ``query@key=value`` changes a setting of the recipe for this strategy alone.
    ``bound:all-labels`` trains once on every label; ``bound:pooled`` is entropy sampling on all
    rows in one place, with the same budget.  Bounds have no privacy to pay for.

    >>> variant(Recipe("a"), "ksas@training=fedprox:mu=0.1").training
    Spec(name='fedprox', fields={'mu': 0.1})
    """
    if query == "bound:all-labels":
        return replace(recipe, query=Spec("random"), initial=1.0, cycles=0, privacy=Privacy())
    if query == "bound:pooled":
        return replace(
            recipe,
            query=Spec("entropy"),
            sites=1,
            partition=Spec("iid"),
            participation=1.0,
            privacy=Privacy(),
            initial=_pooled(recipe.initial, recipe.sites),
            per_cycle=_pooled(recipe.per_cycle, recipe.sites),
        )
    name, *settings = query.split("@")
    if bad := [part for part in settings if "=" not in part]:
        raise ValueError(
            f"{bad[0]!r} in {query!r} is not of the form key=value; write entropy@training=fedprox"
        )
    changed = dict(part.split("=", 1) for part in settings)
    for key in changed:
        if key.split(".")[0] in SHARED:
            raise ValueError(
                f"{query!r} changes {key}, which all strategies of a study share; change it with "
                f"--set {key}={changed[key]}"
            )
    return replace(with_settings(recipe, changed), query=Spec.parse(name))


def _pooled(share: float | int, sites: int) -> float | int:
    return share * sites if isinstance(share, int) else share
