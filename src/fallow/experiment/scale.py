"""Units of features and of numbers to predict: what the sites agreed on, kept with the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fallow.core.missing import filled
from fallow.core.types import State
from fallow.data import CATALOG, Dataset
from fallow.settings.recipe import Recipe


@dataclass(frozen=True)
class Scale:
    """How a table's features were standardized in training; None for raw features.

    mean, std: (d,) over the rows of all sites; a constant column has std 0 and becomes 0.
    fill: (d,) what empty cells become, before that; None where training knew none.
    """

    mean: Tensor
    std: Tensor
    fill: Tensor | None = None

    @property
    def state(self) -> State:
        """As a file keeps it."""
        result = {"mean": self.mean, "std": self.std}
        if self.fill is not None:
            result["fill"] = self.fill
        return result

    def __call__(self, x: Tensor) -> Tensor:
        """Features in these units, in their own type: (n, d) -> (n, d)."""
        varies = self.std > 0
        centered = filled(x.double(), self.fill) - self.mean
        z = centered / torch.where(varies, self.std, 1.0)
        return torch.where(varies, z, 0.0).to(x.dtype)


def is_standardized(recipe: Recipe, found: Dataset) -> bool:
    """Whether the sites agree on units of features first: for a table that nobody standardized, and
    for what an encoder makes of rows."""
    if recipe.encoder is not None:
        return recipe.standardize != "none"
    if found.x.ndim != 2 or recipe.standardize != "auto":
        return found.x.ndim == 2 and recipe.standardize == "federated"
    is_own = bool(found.columns) and recipe.data not in CATALOG
    return is_own or found.task == "regression"


def in_units(outputs: Tensor, targets: State | None) -> Tensor:
    """Predictions in the units of the data, from those of a model trained on scaled numbers."""
    if targets is None:
        return outputs
    return outputs.double() * targets["std"] + targets["mean"]
