"""Scaling of numbers whose squares would overflow or vanish."""

from __future__ import annotations

import math

import torch
from torch import Tensor

REACH = {torch.float32: 1e12, torch.float64: 1e100}
"""Squares of numbers between 1 / reach and reach, and sums of many, neither overflow nor vanish."""


def within_reach(x: Tensor, kind: torch.dtype) -> Tensor:
    """Divide ``x`` by a power of two, so that the square of its largest number is finite in
    ``kind``.

    x: (m, d), finite.  A power of two causes no rounding: distances are scaled, and their order is
    preserved.  Ordinary numbers are unchanged.

    >>> rows = torch.tensor([[3 * 2.0**700, 0.0]], dtype=torch.float64)
    >>> within_reach(rows, torch.float64)
    tensor([[1.5000, 0.0000]], dtype=torch.float64)
    """
    most = 0.0
    if x.numel():
        most = float(x.abs().max())
    if most == 0 or 1 / REACH[kind] <= most <= REACH[kind]:
        return x
    power = math.frexp(most)[1] - 1
    power = min(max(power, -1000), 1000)  # what a double can hold
    return (x.double() / math.ldexp(1.0, power)).to(x.dtype)
