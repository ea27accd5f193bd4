"""How many labels a study may ask of one site, by the site's own copy of the agreement."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from fallow.experiment.methods import is_shared
from fallow.experiment.one_pass import is_one_pass
from fallow.federation.agreement import Agreement
from fallow.federation.building import build_study
from fallow.federation.site.schedule import OrderPlace
from fallow.settings.budgets import Share, budgets
from fallow.settings.recipe import Recipe

MOST_ROWS = 2**40
"""More rows than a federation has."""


@final
@dataclass(frozen=True)
class Budget:
    """What the recipe lets one of so many ``sites`` be asked, a site that has ``rows`` rows.

    Where the agreement says a share of the rows of all sites, the number follows from how many
    these are, which a site is never told.  So it goes by ``rows_of_all``: the most rows that the
    first number it was asked for speaks of (`infer_rows_of_all`).  Without such a number it
    is unknown, None.

    is_shared: the query spends one budget of all sites; then numbers are of all of them.
    """

    recipe: Recipe
    sites: int
    rows: int
    is_shared: bool = False
    is_one_pass: bool = False
    rows_of_all: int | None = None

    def of(self, place: OrderPlace) -> int | None:
        """Labels that the step at a place may ask for."""
        recipe = self.recipe
        if place.cycle < 0:
            return self.first
        if self.is_one_pass:
            return self._of_one_pass
        a_cycle = self._of_site(recipe.share_of(place.cycle))
        if a_cycle is None:
            return None
        parts = recipe.queries_per_cycle
        part = place.part
        of_part = a_cycle * (part + 1) // parts - a_cycle * part // parts
        if self.recipe.budget == "proportional" and self.is_shared:
            of_part = a_cycle // parts + self.sites  # every site rounds its own part
        return self._of_all(of_part, recipe.share_of(place.cycle))

    @property
    def _of_cycles(self) -> int | None:
        """Labels that all cycles may ask for together."""
        together = 0
        for cycle in range(self.recipe.cycles):
            share = self.recipe.share_of(cycle)
            site = self._of_site(share)
            if site is None:
                return None
            together += self._of_all(site, share)
        return together

    @property
    def _of_one_pass(self) -> int | None:
        """Labels of the one query that chooses from nothing."""
        before = self.first_by_strategy
        of_cycles = self._of_cycles
        if before is None or of_cycles is None:
            return None
        return of_cycles + before

    @property
    def first(self) -> int | None:
        """The first labels, where the query does not choose them: each site has its own number."""
        if self.recipe.initial_by == "query":
            return 0
        return self._of_site(self.recipe.initial, is_shared=False)

    @property
    def first_by_strategy(self) -> int | None:
        """The first labels, where the query chooses them with all others."""
        if self.recipe.initial_by != "query":
            return 0
        site = self._of_site(self.recipe.initial)
        if site is None:
            return None
        return self._of_all(site, self.recipe.initial)

    @property
    def total(self) -> int | None:
        """Labels that one run may ask of this site in all."""
        first = self.first
        by_strategy = self.first_by_strategy
        of_cycles = self._of_cycles
        if first is None or by_strategy is None or of_cycles is None:
            return None
        return first + by_strategy + of_cycles

    def infer_rows_of_all(self, place: OrderPlace, asked: int) -> int | None:
        """The most rows that all sites can have together, where so many labels are asked for; None
        where the number does not depend on that.  It grows with the rows, so halving finds it."""
        if replace(self, rows_of_all=None).of(place) is not None:
            return None
        low = 0
        high = MOST_ROWS
        while low < high:
            middle = (low + high + 1) // 2
            outcome = replace(self, rows_of_all=middle).of(place)
            if outcome is not None and outcome <= asked:
                low = middle
            else:
                high = middle - 1
        return max(low, self.rows)

    def _of_site(self, share: Share, is_shared: bool | None = None) -> int | None:
        """A site's number, as `settings.budgets` has it; with one budget for all sites and shares of
        each one's rows: the number of all."""
        if is_shared is None:
            is_shared = self.is_shared
        policy = self.recipe.budget
        if isinstance(share, int):
            return share
        if policy == "proportional" and not is_shared:
            return math.ceil(share * self.rows - 1e-9)
        if self.rows_of_all is None:
            return None
        if policy == "proportional":
            return math.ceil(share * self.rows_of_all) + self.sites
        # the number is the same wherever the rows are: so all of them at one site
        rows = dict.fromkeys(map(str, range(self.sites)), 0)
        rows["0"] = self.rows_of_all
        return budgets(policy, share, rows)["0"]

    def _of_all(self, of_site: int, share: Share) -> int:
        """The number of all sites, where they share one budget."""
        if not self.is_shared:
            return of_site
        if self.recipe.budget == "proportional" and isinstance(share, float):
            return of_site  # which is the number of all already
        return of_site * self.sites


class Proposal(NamedTuple):
    """A limit of labels, and a clause that says where it comes from."""

    labels: int
    why: str


def propose_limit(agreement: Agreement, rows: int, unlabeled: int) -> Proposal:
    """How many labels a site may give at most, over all runs, where people choose no other number:
    what one run asks of it, and no more than it has ``unlabeled`` examples.

    Where the agreement speaks of the examples of all sites, all are taken to have as many ``rows``
    as this one.
    """
    recipe = agreement.recipe
    sites = len(agreement.sites)
    known = Budget(
        recipe=recipe,
        sites=sites,
        rows=rows,
        is_shared=is_shared(build_study(agreement).methods["query"]),
        is_one_pass=is_one_pass(recipe),
    )
    why = "what one run of the study asks for"
    asked = known.total
    if asked is None:
        asked = replace(known, rows_of_all=sites * rows).total
        why += " if all sites have as many examples as this one"
    if asked is None or asked > unlabeled:
        return Proposal(unlabeled, "all its unlabeled examples")
    return Proposal(asked, why)
