"""Models of a recipe: the network that it names, for rows as they are seen after its encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from fallow.core.banks import Layout
from fallow.core.names import OWN, NamePolicy
from fallow.core.types import DTYPES, State
from fallow.models import build_model, outline_model
from fallow.settings.recipe import Recipe


@dataclass(frozen=True)
class ModelMaker:
    """Makes networks with weights that are drawn, in the recipe's precision.

    shape: of a row as models see it; outputs: classes, or 1 for a number to predict; policy: which
    names resolve, by default all, as in a person's own simulations.
    """

    recipe: Recipe
    shape: tuple[int, ...]
    outputs: int
    policy: NamePolicy = OWN

    def build(self, generator: torch.Generator) -> nn.Module:
        """A new network.  Raises ValueError for an unknown name or field."""
        spec = self.recipe.model
        model = build_model(
            spec.name, self.shape, self.outputs, generator, self.policy, **spec.fields
        )
        return model.to(DTYPES[self.recipe.dtype])

    def outline(self) -> Layout | None:
        """The shapes of a network's weights, which fill no memory however wide it is; None for a
        class of a person's own, which may not do without."""
        spec = self.recipe.model
        if ":" in spec.name:
            return None
        return outline_model(spec.name, self.shape, self.outputs, **spec.fields)

    def draw_weights(self, layout: Layout, generator: torch.Generator) -> State:
        """The weights of a new network as flat vectors."""
        return layout.flatten(self.build(generator), DTYPES[self.recipe.dtype])
