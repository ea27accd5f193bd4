"""Oracle that has every label, answers immediately, and counts the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from fallow.core.types import SiteId


@final
@dataclass
class Simulated:
    """Hidden labels of a simulation, with a counter.

    ``hidden``: labels of all examples of each site, (n,). ``limit``: maximum number of labels, per
    site or (as a number) for all sites together; None for no limit.
    """

    hidden: Mapping[SiteId, Tensor]
    limit: Mapping[SiteId, int] | int | None = None
    spent: dict[SiteId, int] = field(default_factory=dict)
    _answers: dict[SiteId, dict[int, float]] = field(default_factory=dict)

    def submit(self, queries: Mapping[SiteId, Tensor]) -> None:
        """Request the labels of examples.

        Raises ValueError if a site would exceed its label budget.
        """
        for site, rows in queries.items():
            left = self._count_left(site)
            if left is not None and len(rows) > left:
                raise ValueError(
                    f"site {site} requests {len(rows)} labels, but its label budget "
                    f"has {left} left"
                )
            self.spent[site] = self.spent.get(site, 0) + len(rows)
            answers = self._answers.setdefault(site, {})
            values = self.hidden[site][rows].tolist()
            for row, value in zip(rows.tolist(), values, strict=True):
                answers[row] = float(value)

    def _count_left(self, site: SiteId) -> int | None:
        """Return how many labels a site may still request; None for no limit."""
        if self.limit is None:
            return None
        if isinstance(self.limit, int):
            return self.limit - sum(self.spent.values())
        return self.limit[site] - self.spent.get(site, 0)

    def poll(self) -> dict[SiteId, dict[int, float]]:
        """Return the labels since the last call: site -> position -> label."""
        answers = self._answers
        self._answers = {}
        return answers

    def cancel(self, site: SiteId) -> int:
        """Cancel a site's open labeling tasks, refund their budget, and return their number."""
        count = len(self._answers.pop(site, {}))
        self.spent[site] = self.spent.get(site, 0) - count
        return count

    def totals(self, site: SiteId, classes: int) -> Tensor:
        """Return the number of labels of each class at a site, (C,), for reports and upper bounds
        only."""
        return torch.bincount(self.hidden[site].long().clamp_min(0), minlength=classes)
