"""Linear model of all sites, with columns scaled to length 1 over labeled examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.core.view import View

EPS = torch.finfo(torch.float64).eps
TINY = 1e-12  # a column with a smaller relative variation is constant


class Scaled(NamedTuple):
    """Center and scale of the columns, to length 1 over the labeled examples."""

    mean: Tensor  # (d,) subtracted from each column
    unit: Tensor  # (k,) factor of each column, 0 for a constant one; k is d + 1
    # with an intercept, which is last, else d

    def model(self, theta: Tensor, size: int) -> Tensor:
        """Return the parameters of the linear model, (size,): weights, then the bias if any."""
        d = len(self.mean)
        slope = (self.unit * theta)[:d]
        bias = (self.unit * theta)[d:].sum() - self.mean @ slope
        return torch.cat([slope, bias[None]])[:size]


def scale_columns(
    center: Tensor, total: Tensor, squares: Tensor, weight: Tensor, intercept: bool
) -> Scaled:
    """Scale columns to length 1, from weighted sums (d,) and sums of squares (d,).

    Both are about a ``center`` (d,) near the mean, for numerical stability.  weight: of all
    examples ().
    """
    rest = total / weight * intercept  # from the center to the mean, (d,)
    mean = center + rest
    length = squares - rest * total  # squared, about the mean

    # the length of a constant column is its rounding error
    is_above_rounding = length > 100 * EPS * squares
    varies = length > weight * (TINY * mean).square()
    unit = torch.where(is_above_rounding & varies, length.clamp_min(0).rsqrt(), 0.0)

    of_intercept = weight.rsqrt().expand(int(intercept))  # (1,) or (0,)
    return Scaled(mean, torch.cat([unit, of_intercept]))


def column_means(total: Mapping[str, Tensor], intercept: bool) -> Tensor:
    """Return the weighted mean of columns, (d,); 0 without an intercept."""
    return total["columns"] / total["weight"] * intercept


def coordinates(x: Tensor, mean: Tensor, basis: Tensor | None = None) -> Tensor:
    """Return examples minus ``mean`` (d,) with a 1 appended, or their product with a basis (k, r).

    (b, *shape) -> (b, d + 1) or (b, r)
    """
    z = x.flatten(1).double() - mean
    if basis is None:
        return torch.cat([z, torch.ones_like(z[:, :1])], 1)
    return z @ basis[: len(mean)] + basis[len(mean) :].sum(0)


def check_linear(view: View, x: Tensor, name: str, intercept: bool) -> None:
    """Raise ValueError unless the model is linear in examples ``x`` and predicts one number."""
    d = x.flatten(1).shape[1]
    weight = ("head.weight", (1, d))
    bias = ("head.bias", (1,))
    if view.layout.params not in ((weight, bias), (weight,)):
        linear = ", ".join(layer for layer, _ in view.layout.params)
        raise ValueError(
            f"{name} trains a linear model and this one has {linear}; set model=linear"
        )
    if intercept and len(view.layout.params) == 1:
        raise ValueError(
            f"{name} has an intercept and the model no bias; omit model.bias=false, or "
            f"use {name}:intercept=false"
        )
