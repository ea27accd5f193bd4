"""Label budget of a study at one site, from the site's own copy of the agreement."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from fallow.deployment.agreement import Agreement
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.building import build_study
from fallow.deployment.site.schedule import InstructionPosition
from fallow.experiment.methods import is_shared
from fallow.experiment.one_pass import is_one_pass
from fallow.settings.budgets import LabelBudget, allocate_budget
from fallow.settings.config import ExperimentConfig

MOST_ROWS = 2**40
"""Upper bound on the number of examples of a federation."""


@final
@dataclass(frozen=True)
class Budget:
    """Labels that the agreement permits at one of ``sites`` sites with ``rows`` examples.

    If the agreement specifies a share of the examples of all sites, the number depends on their
    total, which a site does not receive. The budget then uses ``rows_of_all``, the largest total
    that the first requested number implies (`infer_rows_of_all`). Without that number the budget is
    None.

    Numbers of labels are numbers of examples to label: the budget of the agreement counts
    annotations and is divided by ``plan``.

    ``is_shared``: the query strategy spends one budget of all sites, and numbers apply to all sites
    together.
    """

    config: ExperimentConfig
    sites: int
    rows: int
    is_shared: bool = False
    is_one_pass: bool = False
    rows_of_all: int | None = None
    plan: AnswerPlan = SINGLE

    def of(self, position: InstructionPosition) -> int | None:
        """Return the number of labels that a step may request."""
        config = self.config
        if position.cycle < 0:
            return self.first
        if self.is_one_pass:
            return self._of_one_pass
        a_cycle = self._of_site(config.budget_of(position.cycle))
        if a_cycle is None:
            return None
        parts = config.queries_per_cycle
        part = position.key.part
        of_part = a_cycle * (part + 1) // parts - a_cycle * part // parts
        if self.config.budget_allocation == "proportional" and self.is_shared:
            of_part = a_cycle // parts + self.sites  # every site rounds its own share
        return self._of_all(of_part, config.budget_of(position.cycle))

    @property
    def _of_cycles(self) -> int | None:
        """Return the number of labels of all cycles together."""
        together = 0
        for cycle in range(self.config.cycles):
            share = self.config.budget_of(cycle)
            site = self._of_site(share)
            if site is None:
                return None
            together += self._of_all(site, share)
        return together

    @property
    def _of_one_pass(self) -> int | None:
        """Return the number of labels of the single query of a strategy without a model."""
        before = self.first_by_strategy
        of_cycles = self._of_cycles
        if before is None or of_cycles is None:
            return None
        return of_cycles + before

    @property
    def first(self) -> int | None:
        """Return the size of the initial labeled set of this site, if each site draws its own."""
        if self.config.initial_by == "query":
            return 0
        return self._of_site(self.config.initial, is_shared=False)

    @property
    def first_by_strategy(self) -> int | None:
        """Return the size of the initial labeled set, if the query strategy selects it."""
        if self.config.initial_by != "query":
            return 0
        site = self._of_site(self.config.initial)
        if site is None:
            return None
        return self._of_all(site, self.config.initial)

    @property
    def total(self) -> int | None:
        """Return the number of labels that one run may request from this site."""
        first = self.first
        by_strategy = self.first_by_strategy
        of_cycles = self._of_cycles
        if first is None or by_strategy is None or of_cycles is None:
            return None
        return first + by_strategy + of_cycles

    def infer_rows_of_all(self, position: InstructionPosition, asked: int) -> int | None:
        """Return the largest total number of examples that the requested number implies.

        Returns None if the number does not depend on the total. The number increases with the
        total, so bisection finds it.
        """
        if replace(self, rows_of_all=None).of(position) is not None:
            return None
        low = 0
        high = MOST_ROWS
        while low < high:
            middle = (low + high + 1) // 2
            outcome = replace(self, rows_of_all=middle).of(position)
            if outcome is not None and outcome <= asked:
                low = middle
            else:
                high = middle - 1
        return max(low, self.rows)

    def _of_site(self, share: LabelBudget, is_shared: bool | None = None) -> int | None:
        """Return the number of examples to label at a site."""
        annotations = self._count_annotations(share, is_shared)
        if annotations is None:
            return None
        return self.plan.count_examples(annotations)

    def _count_annotations(self, share: LabelBudget, is_shared: bool | None) -> int | None:
        """Return the budget of a site, as `allocate_budget` computes it.

        With a shared budget and shares of each site's examples, this is the budget of all sites.
        """
        if is_shared is None:
            is_shared = self.is_shared
        allocation = self.config.budget_allocation
        if isinstance(share, int):
            return share
        if allocation == "proportional" and not is_shared:
            return math.ceil(share * self.rows - 1e-9)
        if self.rows_of_all is None:
            return None
        if allocation == "proportional":
            return math.ceil(share * self.rows_of_all) + self.sites
        # the number does not depend on the distribution, so use one site with all examples
        rows = dict.fromkeys(map(str, range(self.sites)), 0)
        rows["0"] = self.rows_of_all
        return allocate_budget(share, allocation, rows)["0"]

    def _of_all(self, of_site: int, share: LabelBudget) -> int:
        """Return the budget of all sites, if they share one."""
        if not self.is_shared:
            return of_site
        if self.config.budget_allocation == "proportional" and isinstance(share, float):
            return of_site  # already the number of all sites
        return of_site * self.sites


class ProposedLimit(NamedTuple):
    """Proposed label limit, with its reason."""

    labels: int
    reason: str


def propose_limit(agreement: Agreement, rows: int, unlabeled: int) -> ProposedLimit:
    """Propose the largest number of annotations of a site over all runs.

    The proposal is what one run requests, at most those of the ``unlabeled`` examples. If the
    agreement refers to the examples of all sites, each site is assumed to have ``rows`` examples.
    """
    config = agreement.config
    sites = len(agreement.sites)
    known = Budget(
        config=config,
        sites=sites,
        rows=rows,
        is_shared=is_shared(build_study(agreement).methods["query"]),
        is_one_pass=is_one_pass(config),
    )
    why = "the number that one run of the study requests"
    asked = known.total
    if asked is None:
        asked = replace(known, rows_of_all=sites * rows).total
        why += " if all sites have as many examples as this one"
    every = agreement.plan.count_annotations(unlabeled)
    if asked is None or asked > every:
        return ProposedLimit(every, "all its unlabeled examples")
    return ProposedLimit(asked, why)
