"""Construction of the network of an experiment configuration, for encoded examples."""

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
    """Creates networks with random weights, in the precision of the configuration.

    shape: of an encoded example; outputs: number of classes, or 1 for regression; policy:
    names that may be resolved, by default all, as in a user's own simulations.
    """

    recipe: Recipe
    shape: tuple[int, ...]
    outputs: int
    policy: NamePolicy = OWN

    def build(self, generator: torch.Generator) -> nn.Module:
        """Create a network. Raises ValueError for an unknown name or field."""
        spec = self.recipe.model
        model = build_model(
            spec.name, self.shape, self.outputs, generator, self.policy, **spec.fields
        )
        return model.to(DTYPES[self.recipe.dtype])

    def outline(self) -> Layout | None:
        """Return the shapes of a network's weights, without memory for them; None for a
        custom class.
        """
        spec = self.recipe.model
        if ":" in spec.name:
            return None
        return outline_model(spec.name, self.shape, self.outputs, **spec.fields)

    def draw_weights(self, layout: Layout, generator: torch.Generator) -> State:
        """Return the initial weights of a new network as flat vectors."""
        return layout.flatten(self.build(generator), DTYPES[self.recipe.dtype])
