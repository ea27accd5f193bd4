"""Secure aggregation with plausibility checks of the aggregates.

Individual contributions remain hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch

from fallow.core.aggregation import Implausible
from fallow.core.ask import Masking
from fallow.core.events import EventHandler
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId, Values
from fallow.deployment.coordinator.weights import SiteWeights

ATTEMPTS = 3
"""Number of implausible aggregates before a run stops."""
ROUNDED = 0.5
"""Rounding error of an aggregate of fixed-point numbers."""


@final
@dataclass
class PlausibleSums:
    """Server side of secure aggregation that rejects impossible aggregates.

    A rejected aggregate is not stored. The sum is repeated with new keys, and after `ATTEMPTS` the
    run stops with an error. ``notify`` receives a message about each rejection.

    Notes
    -----
    A site can shift an aggregate within these limits, and the responsible site cannot be
    identified.
    """

    inner: Masking
    weights: SiteWeights
    notify: EventHandler
    failed: list[str] = field(default_factory=list)

    def check(self, sites: Sequence[SiteId], function: str) -> None:
        """Raise RunHalted if too few sites are left for secure aggregation."""
        self.inner.check(sites, function)

    def total(
        self,
        replies: Mapping[SiteId, Values],
        owner: str,
        function: str,
        bound: float | None,
    ) -> Values:
        """Return the aggregates.

        Raises Implausible for impossible aggregates, and RunHalted after too many attempts.
        """
        result = self.inner.total(replies, owner, function, bound)
        why = self.find_fault(result, sorted(replies), owner, function, bound)
        if why is None:
            return result
        self.failed.append(why)
        sites = ", ".join(sorted(replies))
        finding = f"the aggregate of {function!r} over {sites} is impossible: {why}"
        if len(self.failed) >= ATTEMPTS:
            raise RunHalted(
                f"{finding}; this happened {len(self.failed)} times, and masks hide "
                "the responsible site: ask the sites to check their examples and "
                "processes, and start again, or agree on a study without secure "
                "aggregation or with other sites"
            )
        self.notify({"event": "implausible", "reason": f"{finding}; it is requested again"})
        raise Implausible(finding)

    def find_fault(
        self,
        total: Values,
        sites: Sequence[SiteId],
        owner: str,
        function: str,
        bound: float | None,
    ) -> str | None:
        """Explain why aggregates of these sites are impossible, or return None."""
        values = {
            name: torch.as_tensor(value, dtype=torch.float64)
            for name, value in total.items()
            if name != "sites"
        }
        if bound is not None:
            limit = bound * len(sites) + ROUNDED
            for name, value in values.items():
                if bool((value.abs() > limit).any()):
                    return f"{name} exceeds {len(sites)} times the bound {bound:g}"
        declaration = self.weights.response_check.find_declaration(owner, function)
        if declaration is None:
            return None
        response_check = self.weights.response_check
        why = response_check.find_fault(declaration, values, sites, room=ROUNDED)
        return why or self.weights.find_far_mean(values, declaration)
