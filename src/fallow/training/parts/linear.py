"""The linear model of all sites: columns of length 1 over labelled rows, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.view import View

EPS = torch.finfo(torch.float64).eps


class Scaled(NamedTuple):
    """How columns are centred, (d,), and scaled to length 1 over the labelled rows, (k,): constant
    ones by 0.  k is d + 1 with an intercept, the last one."""

    mean: Tensor
    unit: Tensor

    def model(self, theta: Tensor, size: int) -> Tensor:
        """The weights of the linear model, (size,): one for each column, then the bias if any."""
        d = len(self.mean)
        slope = (self.unit * theta)[:d]
        bias = (self.unit * theta)[d:].sum() - self.mean @ slope
        return torch.cat([slope, bias[None]])[:size]


def scaled(total: Tensor, squares: Tensor, weight: Tensor, intercept: bool) -> Scaled:
    """Columns of length 1, from weighted totals (d,) and squares (d,) of columns, and the weight of
    all rows ()."""
    mean = total / weight * intercept
    length = squares - mean * total
    is_seen = length > 100 * EPS * squares  # else the column is constant, or its spread is lost
    unit = torch.where(is_seen, length.clamp_min(0).rsqrt(), 0.0)
    return Scaled(mean, torch.cat([unit, weight.rsqrt().expand(int(intercept))]))


def coordinates(x: Tensor, mean: Tensor | None, basis: Tensor | None) -> Tensor:
    """Rows with a 1 behind each, or in the coordinates asked for.  (b, *shape) -> (b, k)"""
    z = x.flatten(1).double()
    if mean is None or basis is None:
        return torch.cat([z, torch.ones_like(z[:, :1])], 1)
    return (z - mean) @ basis[: len(mean)] + basis[len(mean) :].sum(0)


def check_linear(view: View, x: Tensor, name: str, intercept: bool) -> None:
    """Raise ValueError unless the model is linear in rows ``x`` and predicts one number."""
    d = x.flatten(1).shape[1]
    if view.classes:
        raise ValueError(
            f"{name} fits numbers and the data has classes; use fedavg, or a data set with numbers "
            "to predict"
        )
    weight, bias = ("head.weight", (1, d)), ("head.bias", (1,))
    if view.layout.params not in ((weight, bias), (weight,)):
        found = ", ".join(layer for layer, _ in view.layout.params)
        raise ValueError(
            f"{name} solves for a linear model and this one has {found}; set model=linear"
        )
    if intercept and len(view.layout.params) == 1:
        raise ValueError(
            f"{name} has an intercept and the model no bias; leave out model.bias=false, or use "
            f"{name}:intercept=false"
        )
