"""Predictions on a device, for evaluation and for queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

from torch import Generator, Tensor, nn

from fallow.core.banks import Layout
from fallow.core.types import State
from fallow.engine.dropout import draw_on_processor
from fallow.engine.forward import forward
from fallow.engine.held import HeldRows
from fallow.engine.loop import look, predict
from fallow.engine.placement import Placement


@final
@dataclass(frozen=True)
class Passes:
    """Forward passes in evaluation mode on a device, in full precision.

    Results are on the CPU, where all selections are made.
    """

    model: nn.Module
    layout: Layout
    placement: Placement

    @cached_property
    def there(self) -> nn.Module:
        """Model on the device; created once."""
        return draw_on_processor(self.model).to(self.placement.device)

    @cached_property
    def cache(self) -> HeldRows:
        """Test examples on the device."""
        return HeldRows(self.placement.device)

    def predict(self, state: State, x: Tensor) -> Tensor:
        """Return outputs (n, c) for examples x (n, *shape) that are used repeatedly."""
        with self.placement.computing():
            rows = self.cache.copy_of_tests(x)
            return predict(self.there, self.layout, self._place(state), rows).cpu()

    def look(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (n, h) and outputs (n, c)."""
        with self.placement.computing():
            rows = x.to(self.placement.device)
            features, outputs = look(self.there, self.layout, self._place(state), rows)
            return features.cpu(), outputs.cpu()

    def forward(self, state: State, x: Tensor, draw: Generator | None = None) -> Tensor:
        """Return outputs (n, c), differentiable in ``x`` if it requires a gradient.

        Dropout draws from ``draw``, on the CPU.
        """
        with self.placement.computing():
            rows = x.to(self.placement.device)
            there = self._place(state)
            return forward(self.there, self.layout, there, rows, draw).cpu()

    def _place(self, state: State) -> State:
        return {name: state[name].to(self.placement.device) for name in ("w", "stats")}
