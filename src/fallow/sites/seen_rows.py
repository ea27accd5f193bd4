"""Examples in model form: features that are not all in memory, and feature scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from fallow.core.missing import filled
from fallow.core.types import State


class StoredFeatures(Protocol):
    """Features of examples that are not all in memory."""

    def __len__(self) -> int: ...
    def take(self, at: Tensor) -> Tensor: ...  # (k,) positions -> (k, d) float32


Source = Tensor | StoredFeatures
"""Features of examples from an encoder, (n, d)."""


@final
@dataclass(frozen=True)
class SeenRows:
    """Examples with features in a file; ``seen[rows]`` reads only the requested ones.

    at: (n,) positions of the examples in the file. unit: mean (d,) and std (d,), or None.
    """

    source: StoredFeatures
    at: Tensor
    unit: State | None
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Return examples (k, d), selected by positions, a Boolean mask or a slice."""
        z = self.source.take(self.at[rows])
        return in_unit(z, self.unit, self.dtype)


def seen_rows(
    source: Source, at: Tensor | None, unit: State | None, dtype: torch.dtype
) -> Tensor | SeenRows:
    """Return the features at positions ``at`` (None: all), scaled with ``unit``.

    Features in memory are returned as a tensor.
    """
    if isinstance(source, Tensor):
        if at is not None:
            source = source[at]
        return in_unit(source, unit, dtype)
    if at is None:
        at = torch.arange(len(source))
    return SeenRows(source, at, unit, dtype)


def in_unit(x: Tensor, unit: State | None, dtype: torch.dtype) -> Tensor:
    """Standardize examples (n, *shape) with the agreed mean and standard deviation.

    Constant columns become 0, and empty cells are imputed.
    """
    if unit is None:
        return x.to(dtype)
    varies = unit["std"] > 0
    rows = filled(x.double(), unit.get("fill"))
    away = (rows - unit["mean"]) / torch.where(varies, unit["std"], 1.0)
    return torch.where(varies, away, 0.0).to(dtype)
