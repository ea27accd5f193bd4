"""Aggregation of replies, errors that identify invalid ones, and bounded weights of sites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from fallow.core.types import SiteId, Values


class Implausible(ValueError):
    """An aggregate that cannot result from valid contributions, which are hidden."""


def sum_whole(replies: Mapping[SiteId, Values], name: str) -> int:
    """Sum an integer over all replies, each of which was checked on arrival."""
    return sum(cast(int, reply[name]) for reply in replies.values())


def align_replies(
    replies: Mapping[SiteId, Values], function: str, dtype: torch.dtype = torch.float64
) -> dict[SiteId, dict[str, Tensor]]:
    """Convert replies to tensors, with sites in sorted order.

    Raises ValueError unless all have the same fields and shapes.
    """
    parts: dict[SiteId, dict[str, Tensor]] = {}
    for site in sorted(replies):
        fields = replies[site].items()
        parts[site] = {name: torch.as_tensor(value, dtype=dtype) for name, value in fields}
        first = next(iter(parts.values()))
        if parts[site].keys() != first.keys():
            raise ValueError(
                f"site {site} replied to {function!r} with {sorted(parts[site])}, others with "
                f"{sorted(first)}: all sites must run the same version"
            )
        for name, value in parts[site].items():
            if value.shape != first[name].shape:
                raise ValueError(
                    f"site {site} replied to {function!r} with {name} of shape "
                    f"{tuple(value.shape)}, others with {tuple(first[name].shape)}: all "
                    "sites must use the same model"
                )
    return parts


def sum_replies(
    replies: Mapping[SiteId, Values], function: str, bound: float | None
) -> Values:
    """Sum replies by key in float64, with sites in sorted order; invalid ones raise an error."""
    result: dict[str, Tensor] = {}
    parts = align_replies(replies, function)
    for site, fields in parts.items():
        for name, contribution in fields.items():
            check_contribution(site, function, name, contribution, bound)
            if name in result:
                result[name] += contribution  # in place, on our own copy
            else:
                result[name] = contribution.clone()
    n_sites = torch.tensor(float(len(parts)), dtype=torch.float64)
    return {**result, "sites": n_sites}


def are_finite(values: Tensor) -> bool:
    """Return whether no number is NaN or infinite.

    A finite sum implies finite terms, and computing it is 30 times faster than checking each term.

    >>> huge = torch.tensor([1e308, 1e308], dtype=torch.float64)  # their sum is not finite
    >>> are_finite(huge), are_finite(torch.tensor([1.0, torch.inf]))
    (True, False)
    """
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def check_contribution(
    site: SiteId, function: str, name: str, value: Tensor, bound: float | None
) -> None:
    """Raise ValueError for a contribution that is not finite or exceeds its bound."""
    if not are_finite(value):
        raise ValueError(
            f"site {site} replied to {function!r} with {name} that is NaN or infinite: its "
            "training diverged or its data is damaged; lower the learning rate, "
            "standardize the features or check the site's examples"
        )
    if bound is not None and bool((value.abs() > bound).any()):
        raise ValueError(
            f"site {site} replied to {function!r} with {name} beyond the bound {bound}; "
            "check the site's examples"
        )


def does_fit(value: Tensor, dtype: torch.dtype) -> bool:
    """Return whether numbers, their squares and the sum of squares are finite in a type.

    >>> (
    ...     does_fit(torch.tensor([1e18]), torch.float32),
    ...     does_fit(torch.tensor([5e40], dtype=torch.float64), torch.float32),
    ... )
    (True, False)
    """
    used = value.to(dtype)
    return bool(used.isfinite().all()) and bool(used.square().sum().isfinite())


def number_of(value: object) -> float | None:
    """Return a scalar number, or None for any other value."""
    if isinstance(value, Tensor) and value.ndim == 0:
        return float(value)
    if isinstance(value, float | int):
        return float(value)
    return None


FEW = 3
"""Minimum number of sites for the detection of outliers."""


def lower_median(values: Iterable[float]) -> float:
    """Return the lower median of the positive values; 0 if there are none.

    >>> lower_median([0.0, 9.0, 1.0]), lower_median([])
    (1.0, 0.0)
    """
    result = sorted(value for value in values if value > 0)
    if not result:
        return 0.0
    return result[(len(result) - 1) // 2]


def cap_weights(weights: Sequence[float], share: float, ratio: float) -> list[float]:
    """Cap weights at a ``share`` of the total and at ``ratio`` times the median.

    Weights of 0 and those of two sites are unchanged.

    >>> cap_weights([4.0, 4.0, 1000.0], 0.5, 10.0), cap_weights([4.0, 1000.0], 0.5, 10.0)
    ([4.0, 4.0, 8.0], [4.0, 1000.0])
    >>> cap_weights([1.0, 2.0, 3.0], 0.25, 10.0)
    [1.0, 1.0, 1.0]
    """
    counted = sorted(weight for weight in weights if weight > 0)
    if len(counted) < FEW:
        return list(weights)
    limit = ratio * lower_median(counted)
    limit = min(limit, _most_by_share([min(n, limit) for n in counted], share))
    return [min(weight, limit) for weight in weights]


def _most_by_share(ascending: Sequence[float], share: float) -> float:
    """Return the cap so that no weight exceeds a share of the new total.

    It is the smallest weight if there are too few sites for such a share.
    """
    for larger in range(len(ascending)):  # number of capped sites
        left = 1.0 - larger * share
        if left <= 0:
            break
        rest = math.fsum(ascending[: len(ascending) - larger])
        limit = share * rest / left  # solution of most = share * (rest + larger * most)
        if limit >= ascending[-1 - larger]:
            return limit
    return ascending[0]
