"""Standardisation of a user's own table, kept with the model so that predictions follow it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scale:
    """How a table's features were standardised in training; None for raw features.

    mean, std: (d,) of the training rows; a constant column has std 0 and becomes 0.
    """

    mean: Tensor
    std: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        z = (x.double() - self.mean) / torch.where(self.std > 0, self.std, 1.0)
        return torch.where(self.std > 0, z, 0.0).to(x.dtype)

    @staticmethod
    def of(x: Tensor) -> Scale:
        constant = x.amin(0) == x.amax(0)
        return Scale(x.double().mean(0), x.double().std(0, correction=0).masked_fill(constant, 0.0))
