"""An oracle that knows every label, answers at once, and counts."""

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
    """Held-back labels behind a counter; the only holder of hidden labels in a simulation.

    ``hidden``: per site (n,) labels of all its rows.  ``limit``: how many labels may be bought in
    all, per site or (a number) by all sites together; None for no limit.
    """

    hidden: Mapping[SiteId, Tensor]
    limit: Mapping[SiteId, int] | int | None = None
    spent: dict[SiteId, int] = field(default_factory=dict)
    _answers: dict[SiteId, dict[int, float]] = field(default_factory=dict)

    def submit(self, queries: Mapping[SiteId, Tensor]) -> None:
        """Ask for the labels of rows.  Raises when a site would exceed its budget."""
        for site, rows in queries.items():
            left = self._count_left(site)
            if left is not None and len(rows) > left:
                raise ValueError(
                    f"site {site} asks for {len(rows)} labels with {left} of its budget left"
                )
            self.spent[site] = self.spent.get(site, 0) + len(rows)
            answers = self._answers.setdefault(site, {})
            values = self.hidden[site][rows].tolist()
            for row, value in zip(rows.tolist(), values, strict=True):
                answers[row] = float(value)

    def _count_left(self, site: SiteId) -> int | None:
        """How many labels a site may still buy; None: as many as it has rows."""
        if self.limit is None:
            return None
        if isinstance(self.limit, int):
            return self.limit - sum(self.spent.values())
        return self.limit[site] - self.spent.get(site, 0)

    def poll(self) -> dict[SiteId, dict[int, float]]:
        """Answers since the last poll: site -> row -> label."""
        answers = self._answers
        self._answers = {}
        return answers

    def cancel(self, site: SiteId) -> int:
        """Withdraw a site's open questions; returns how many, and gives their budget back."""
        count = len(self._answers.pop(site, {}))
        self.spent[site] = self.spent.get(site, 0) - count
        return count

    def totals(self, site: SiteId, classes: int) -> Tensor:
        """All labels of a site per class (C,): for reports and oracle studies, never a method."""
        return torch.bincount(self.hidden[site].long().clamp_min(0), minlength=classes)
