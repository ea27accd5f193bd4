"""Laplace mechanism (Dwork, McSherry, Nissim, Smith, 2006) and its discrete form.

In a simulation, noise comes from a named random stream, so a run can be repeated.  In a federation,
it comes from the operating system through OpenDP, whose samplers prevent leaks through
floating-point bits (Mironov, 2012).  The discrete form is the two-sided geometric mechanism (Ghosh,
Roughgarden, Sundararajan, 2009).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from fallow.core.optional import NOISE, import_privacy

Mechanism = Literal["laplace", "discrete_laplace"]
NUDGE = 2.0**-50
"""OpenDP rounds the ε of a scale up in its last bits; the scale is increased until ε is within the
privacy budget."""


def draw_seeded(
    counts: Tensor, scale: float, mechanism: Mechanism, draw: torch.Generator
) -> Tensor:
    """Add noise from a random stream to counts, for simulation.  (C,) -> (C,) float64.

    >>> draw_seeded(
    ...     torch.zeros(2), 2.0, "discrete_laplace", torch.Generator().manual_seed(0)
    ... )
    tensor([ 6., -3.], dtype=torch.float64)
    """
    u = torch.rand((2, *counts.shape), generator=draw, dtype=torch.float64)
    e = -torch.log1p(-u)  # exponential with mean 1, never infinite: u < 1
    if mechanism == "discrete_laplace":  # floor of an exponential is geometric
        whole = (e * scale).floor()  # (2, C)
        return whole_counts(counts) + whole[0] - whole[1]
    # a difference of exponentials is Laplace
    return counts.double() + scale * (e[0] - e[1])


def draw_from_os(
    counts: Tensor, *, sensitivity: float, epsilon: float, mechanism: Mechanism
) -> Tensor:
    """Add noise from the operating system to counts with OpenDP, in a federation.

    counts: (C,) -> (C,) float64.  OpenDP samples both forms in exact arithmetic, the continuous one
    on a grid finer than any float, and rounds once. The last bits of a noisy number therefore
    disclose nothing about the exact one (see the attack of Mironov, 2012).  Raises RuntimeError unless
    OpenDP proves that an L1 change of ``sensitivity`` costs at most ``epsilon``.
    """
    dp = import_privacy("opendp.prelude", NOISE)
    dp.enable_features("contrib")
    atom: Any  # untyped in OpenDP
    change: float
    if mechanism == "discrete_laplace":
        atom = dp.atom_domain(T=int)
        metric = dp.l1_distance(T=int)
        change = math.ceil(sensitivity)
        values = whole_counts(counts).long().tolist()
    else:
        atom = dp.atom_domain(T=float, nan=False)
        metric = dp.l1_distance(T=float)
        change = float(sensitivity)
        values = counts.double().tolist()

    scale = sensitivity / epsilon
    growth = NUDGE
    release = dp.m.make_laplace(dp.vector_domain(atom), metric, scale=scale)
    while release.map(change) > epsilon and growth < 2**-40:
        scale *= 1 + growth
        growth *= 2
        release = dp.m.make_laplace(dp.vector_domain(atom), metric, scale=scale)
    cost = release.map(change)
    if cost > epsilon:
        raise RuntimeError(
            f"noise of scale {scale} costs epsilon {cost}, more than permitted"
        )
    return torch.tensor(release(values), dtype=torch.float64)


def whole_counts(counts: Tensor) -> Tensor:
    """Return the counts in float64; ValueError unless they are integers."""
    counts = counts.double()
    if not bool((counts == counts.round()).all()):
        raise ValueError(
            "privacy.mechanism='discrete_laplace' adds noise to whole numbers, but "
            "the algorithm releases fractions; use privacy.mechanism='laplace'"
        )
    return counts
