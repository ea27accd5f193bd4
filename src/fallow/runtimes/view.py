"""The view of a site that a verb works with.  It holds no way to a hidden label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from fallow.core.types import SiteId, State
from fallow.core.view import Rows
from fallow.engine.loop import embed, predict

if TYPE_CHECKING:
    from fallow.runtimes.site import Site


@final
class SiteView:
    """Predictions are computed when a verb first asks for them, in evaluation mode, once."""

    def __init__(self, site: Site, cycle: int) -> None:
        self._site = site
        self._cache: dict[tuple[str, str, str], Tensor] = {}
        self.site: SiteId = site.id
        self.cycle = cycle
        self.classes = site.parts.classes
        self.memory: Mapping[str, State] = site.memory

    @property
    def pool(self) -> int:
        return len(self._site.pool)

    @property
    def labels(self) -> Tensor:
        return self._site.labels

    @property
    def weights(self) -> Tensor:
        return self._site.weight[self._site.labelled]

    @property
    def counts(self) -> Tensor:
        return torch.bincount(self.labels, minlength=self.classes).double()

    def rows(self, which: Rows = "pool") -> Tensor:
        return self._site.x[self._site.pool if which == "pool" else self._site.labelled]

    def model(self, name: str) -> State:
        """A remembered model; a site without labels has no local one and uses the global."""
        if name == "local" and len(self._site.labelled) == 0:
            name = "global"
        if name not in self.memory:
            raise ValueError(f"site {self.site} has no model {name!r}; it remembers "
                             f"{sorted(self.memory) or 'nothing'}")  # fmt: skip
        return self.memory[name]

    def logits(self, model: str, which: Rows = "pool") -> Tensor:
        return self._cached("logits", model, which)

    def embed(self, model: str, which: Rows = "pool") -> Tensor:
        return self._cached("embed", model, which)

    def _cached(self, what: str, model: str, which: Rows) -> Tensor:
        key = (what, model, which)
        if key not in self._cache:
            parts, compute = self._site.parts, predict if what == "logits" else embed
            self._cache[key] = compute(
                parts.model, parts.layout, self.model(model), self.rows(which)
            )
        return self._cache[key]

    def forward(self, state: State, rows: Tensor) -> Tensor:
        return predict(self._site.parts.model, self._site.parts.layout, state, rows)

    def stream(self, purpose: str) -> torch.Generator:
        return self._site.streams(purpose, self.cycle)
