"""Secure aggregation with plausibility checks of the aggregates.

Individual contributions remain hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from fallow.core.ask import Masking
from fallow.core.events import Say
from fallow.core.refusal import Halted
from fallow.core.totals import Implausible
from fallow.core.types import Answer, SiteId
from fallow.transport.cells import are_cells, find_fault_in_cells
from fallow.transport.checks import ResponseCheck
from fallow.transport.plausible import (
    MODELS,
    POOLED,
    ROWS,
    TOGETHER,
    are_losses,
    are_noisy_products,
    are_products,
    does_fit,
    find_fault_in_length,
    find_fault_in_losses,
    find_fault_in_moments,
    find_fault_in_pooled,
    find_fault_in_products,
    find_fault_in_weight,
)
from fallow.transport.tallies import are_tallies, find_fault_in_tallies

ATTEMPTS = 3
"""Number of implausible aggregates before a run stops."""
COUNTED = (
    *(ROWS, "rows", "hits", "class_rows", "class_hits", "one", "reachable", "weight"),
    *("squared", "right", "changed", "log", "pool"),
)
"""Aggregates that are nonnegative except for fixed-point rounding."""
ROUNDED = 0.5
BELOW = 1e-3
"""Rounding error of a zero eigenvalue, relative to the largest square."""


@final
@dataclass
class PlausibleSums:
    """Server side of secure aggregation that rejects impossible aggregates.

    A rejected aggregate is not stored. The sum is repeated with new keys, and after `ATTEMPTS` the
    run stops with an error. ``say`` receives a message about each rejection.

    Notes
    -----
    A site can shift an aggregate within these limits, and the responsible site cannot be
    identified.
    """

    inner: Masking
    border: ResponseCheck
    say: Say
    failed: list[str] = field(default_factory=list)

    def check(self, sites: Sequence[SiteId], verb: str) -> None:
        """Raise Halted if too few sites are left for secure aggregation."""
        self.inner.check(sites, verb)

    def total(
        self, answers: Mapping[SiteId, Answer], verb: str, bound: float | None
    ) -> Answer:
        """Return the aggregates.

        Raises Implausible for impossible aggregates, and Halted after too many attempts.
        """
        result = self.inner.total(answers, verb, bound)
        why = self._find_fault(result, sorted(answers), bound)
        if why is None:
            return result
        self.failed.append(why)
        who = ", ".join(sorted(answers))
        output = f"the secure sum of {verb!r} over {who} cannot be: {why}"
        if len(self.failed) >= ATTEMPTS:
            raise Halted(
                f"{output}; this happened {len(self.failed)} times, and masks hide whose part it "
                "is: ask the sites to check their rows and processes, and start again, or agree "
                "on a study without secure sums or with other sites"
            )
        self.say({"event": "implausible", "why": f"{output}; it is asked for again"})
        raise Implausible(output)

    def _find_fault(
        self, total: Answer, sites: Sequence[SiteId], bound: float | None
    ) -> str | None:
        """Explain why aggregates of these sites are impossible, or return None."""
        values = {
            name: torch.as_tensor(value, dtype=torch.float64)
            for name, value in total.items()
        }
        for name in sorted(values.keys() & set(COUNTED)):
            if bool((values[name] < -ROUNDED).any()):
                return f"{name} is below 0"
        if bound is not None:
            most = bound * len(sites) + ROUNDED
            for name, value in values.items():
                if name != "sites" and bool((value.abs() > most).any()):
                    return f"{name} is beyond {len(sites)} times the bound {bound:g}"
        if are_cells(values):
            missing = self.border.missing
            why = find_fault_in_cells(values, missing, self.border.cells, ROUNDED)
            if why is not None:
                return why
            if why := self._find_too_many_rows(values, sites):
                return why
        if are_tallies(values):
            rows = _total_known(self.border.rows, sites)
            labels = _total_known(self.border.labels, sites)
            return find_fault_in_tallies(values, rows, labels, ROUNDED)
        in_counts = self._find_fault_in_counts(values, sites)
        if in_counts is not None:
            return in_counts
        if are_products(values):
            return self._find_fault_in_products(values, sites)
        if values.keys() - {"sites"} == POOLED:
            rows = _total_known(self.border.rows, sites)
            return find_fault_in_pooled(values, math.inf if rows is None else rows)
        if are_losses(values):
            most = self.border.masses.get(TOGETHER, math.inf)
            return find_fault_in_losses(values, most, BELOW)
        in_moments = find_fault_in_moments(values, BELOW)
        return in_moments or self._find_fault_in_model(values)

    def _find_fault_in_products(
        self, total: Mapping[str, Tensor], sites: Sequence[SiteId]
    ) -> str | None:
        """Check the aggregated products as `ResponseCheck` checks those of each site."""
        n = float(total[ROWS])
        self.border.masses[TOGETHER] = n
        if not self.border.has_weights:
            why = find_fault_in_weight(n, float(total["rows"]), BELOW)
            if why is not None:
                return why
        longest = self.border.find_longest(sites, n)
        why = find_fault_in_length(total, longest)
        return why or find_fault_in_products(total, BELOW)

    def _find_too_many_rows(
        self, total: Mapping[str, Tensor], sites: Sequence[SiteId]
    ) -> str | None:
        known = [self.border.rows.get(site) for site in sites]
        most = sum(rows or 0 for rows in known)
        n = float(total["rows"])
        if None not in known and n > most + ROUNDED:
            return f"rows is {n:g}, and these sites have {most}"
        return None

    def _find_fault_in_counts(
        self, total: Mapping[str, Tensor], sites: Sequence[SiteId]
    ) -> str | None:
        known = [self.border.labels.get(site) for site in sites]
        counted = ROWS
        if are_products(total) or are_noisy_products(total):
            counted = "rows"  # here n is a weight
        if counted in total and None not in known:
            n = float(total[counted])
            most = sum(labels or 0 for labels in known)
            if n > most + ROUNDED:
                return f"{counted} is {n:g}, and these sites can have {most} labels"
        for few, many in (("hits", "rows"), ("class_hits", "class_rows")):
            is_told = few in total and many in total
            if is_told and bool((total[few] > total[many] + ROUNDED).any()):
                return f"{few} is more than {many}"
        return None

    def _find_fault_in_model(self, total: Mapping[str, Tensor]) -> str | None:
        if ROWS not in total:
            return None
        n = max(float(total[ROWS]), 1.0)
        farthest = self.border.bounds.farthest
        for name in sorted(total.keys() & set(MODELS)):
            mean = total[name] / n
            if not does_fit(mean, self.border.dtype):
                return f"{name} cannot be held squared in {self.border.dtype}"
            last = self.border.last.get(name, 0.0)
            usual = max(last, 1.0)
            norm = float(mean.norm())
            if name == "w" and last and norm > farthest * usual:
                return (
                    f"{name} has the norm {norm:.3g}, beyond {farthest:g} times {usual:.3g}, the "
                    "larger of that of the last model and 1 (federation.farthest in study.toml)"
                )
        return None


def _total_known(counts: Mapping[SiteId, int], sites: Sequence[SiteId]) -> float | None:
    """Return the total of registered counts, or None if one is unknown."""
    known = [counts[site] for site in sites if site in counts]
    if len(known) < len(sites):
        return None
    return float(sum(known))
