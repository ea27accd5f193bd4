"""Scaling of features and regression targets, computed over sites and stored with the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fallow import encoders
from fallow.catalog import is_named
from fallow.core.build import find, is_built_in
from fallow.core.missing import filled
from fallow.core.types import State
from fallow.data import Dataset
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec


@dataclass(frozen=True)
class Scale:
    """Standardization of tabular features.

    Attributes
    ----------
    mean, std : Tensor of shape (d,)
        Mean and standard deviation over all sites.  A constant column has std 0 and becomes 0.
    fill : Tensor of shape (d,) or None
        Replacement of empty cells before scaling; None if training had no empty cells.
    """

    mean: Tensor
    std: Tensor
    fill: Tensor | None = None

    @property
    def state(self) -> State:
        """Tensors to store in a file."""
        result = {"mean": self.mean, "std": self.std}
        if self.fill is not None:
            result["fill"] = self.fill
        return result

    def __call__(self, x: Tensor) -> Tensor:
        """Standardize features, keeping their type: (n, d) -> (n, d)."""
        varies = self.std > 0
        centered = filled(x.double(), self.fill) - self.mean
        z = centered / torch.where(varies, self.std, 1.0)
        return torch.where(varies, z, 0.0).to(x.dtype)


def is_standardized(config: ExperimentConfig, dataset: Dataset) -> bool:
    """Return whether sites scale features first: unscaled tables and encoder outputs."""
    if config.encoder is not None:
        if config.standardize == "auto":
            return not is_scaled(config.encoder)
        return config.standardize != "none"
    if dataset.x.ndim != 2 or config.standardize != "auto":
        return dataset.x.ndim == 2 and config.standardize in ("federated", "ranges")
    is_own = dataset.reading is not None or not is_named(config.data)
    return (is_own and bool(dataset.columns)) or dataset.task == "regression"


def is_scaled(encoder: Spec) -> bool:
    """Return whether features of an encoder have weights that scaling would change."""
    if not is_built_in(encoders, encoder.name):
        return False
    return getattr(find(encoders, encoder.name), "is_scaled", False)


def find_variance(targets: State) -> float:
    """Return the variance of regression targets, the unit of squared errors."""
    return float(targets["std"]) ** 2


def in_units(outputs: Tensor, targets: State | None) -> Tensor:
    """Convert predictions of a model trained on scaled targets to units of the data."""
    if targets is None:
        return outputs
    return outputs.double() * targets["std"] + targets["mean"]
