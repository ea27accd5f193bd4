"""Wide fixed point: numbers of any usual size as several whole numbers, for secure aggregation.

Sums of columns are in the units of the data: a cholesterol squared is 60,000, a time in
nanoseconds squared 3e36. One whole number of 64 bits cannot hold both. A wide number has
`PARTS` parts of 32 bits, from 2^-128 to 2^160, so that no bound and no units must be agreed on,
and nothing is revealed about the size of a contribution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.aggregation import check_contribution
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.core.values import LARGEST_WIDE

WIDE = "#wide"
"""Suffix of the name of a field whose last dimension has the parts of each number."""
BITS = 32
PARTS = 9
LOWEST = -128
"""Binary exponent of the last digit."""


def encode_wide(site: SiteId, function: str, name: str, value: Tensor) -> Tensor:
    """Encode finite numbers as parts, (...) -> (..., PARTS) int64.

    Raises ValueError for a number that is not finite, and Refusal for one beyond `LARGEST_WIDE`.

    >>> parts = encode_wide(
    ...     "a", "f", "x", torch.tensor([1.75e18, -0.1], dtype=torch.float64)
    ... )
    >>> decode_wide(parts).tolist()
    [1.75e+18, -0.1]
    """
    value = value.double()
    check_contribution(site, function, name, value, None)
    rest = value.abs()
    if bool((rest >= LARGEST_WIDE).any()):
        raise Refusal(
            f"site {site}: {name} for {function!r} exceeds {LARGEST_WIDE:.3g}, the largest sum in "
            "secure aggregation: provide columns in larger units"
        )
    sign = value.sign()
    parts = torch.empty((*value.shape, PARTS), dtype=torch.int64)
    for part in reversed(range(PARTS)):
        unit = 2.0 ** (LOWEST + BITS * part)
        digits = (rest / unit).floor()  # exact, because units are powers of two
        rest = rest - digits * unit
        parts[..., part] = (sign * digits).long()
    return parts


def decode_wide(parts: Tensor) -> Tensor:
    """Return the numbers of a sum of parts, (..., PARTS) int64 -> (...) float64."""
    units = 2.0 ** (LOWEST + BITS * torch.arange(PARTS, dtype=torch.float64))
    total = torch.zeros(parts.shape[:-1], dtype=torch.float64)
    for part in reversed(range(PARTS)):  # from the largest: differences are exact
        total = total + parts[..., part].double() * units[part]
    return total
