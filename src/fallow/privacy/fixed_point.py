"""Fixed-point encoding modulo 2^64, in which masks are uniform and cancel exactly."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fallow.core.aggregation import check_contribution
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId

FINEST = 40
"""Fractional bits.  With 40, a variance from two aggregates is accurate to 2e-6, with 24 to 3e-4."""


def bits(bound: float | None, sites: int) -> int:
    """Return the number of fractional bits with which ``sites`` contributions stay below 2^63.

    >>> bits(None, 10), bits(1.0, 10), bits(1e9, 10)
    (40, 40, 29)
    """
    if bound is None:
        return FINEST
    return min(FINEST, math.floor(62.999 - math.log2(sites * bound)))


def limit(bound: float | None, sites: int) -> float:
    """Return the largest absolute value of a contribution of one of ``sites`` sites."""
    if bound is not None:
        return bound
    return 2.0 ** (63 - FINEST) / sites * (1 - 1e-9)


def encode_any(value: Tensor, bound: float, sites: int) -> Tensor:
    """Encode finite numbers of any size as int64 modulo 2^64.

    A number beyond the bound makes the aggregate wrong, without other effects.
    """
    fraction = bits(bound, sites)
    rest = value.double().fmod(2.0 ** (64 - fraction))  # exact, so the multiple is finite
    rest = (rest * 2.0**fraction).round()
    rest = torch.where(rest >= 2.0**63, rest - 2.0**64, rest)
    rest = torch.where(rest < -(2.0**63), rest + 2.0**64, rest)
    return rest.long()


def encode(
    site: SiteId, function: str, name: str, value: Tensor, bound: float | None, sites: int
) -> Tensor:
    """Encode a tensor as int64 of the same shape, rounded to steps of 2^-bits.

    Raises ValueError for a non-finite value, and Refusal for one beyond the limit, with a message
    that may leave the site and does not contain the value.
    """
    value = value.double()
    check_contribution(site, function, name, value, None)
    largest = float(value.abs().max()) if value.numel() else 0.0
    top = limit(bound, sites)
    if largest > top:
        raise Refusal(
            f"site {site}: {name} for {function!r} exceeds {top:.6g}, the limit of each "
            f"of {sites} contributions in secure aggregation: provide features in "
            "smaller units, or raise privacy.bound, for instance to 1000 times "
            "that, in a new study; a larger bound reduces the precision of "
            "aggregates"
        )
    return (value * 2.0 ** bits(bound, sites)).round().long()


def decode(total: Tensor, bound: float | None, sites: int) -> Tensor:
    """Return the aggregate, float64, from the sum modulo 2^64 of encoded contributions.

    >>> import torch
    >>> parts = [
    ...     encode("a", "v", "x", torch.tensor([x]), None, 3) for x in (0.5, -2.25, 1.0)
    ... ]
    >>> decode(parts[0] + parts[1] + parts[2], None, 3)
    tensor([-0.7500], dtype=torch.float64)
    """
    return total.double() / 2.0 ** bits(bound, sites)
