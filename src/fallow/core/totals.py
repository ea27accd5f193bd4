"""Aggregation of replies, and errors that identify invalid ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fallow.core.types import Answer, SiteId


class Implausible(ValueError):
    """An aggregate that cannot result from valid contributions, which are hidden."""


def sum_whole(answers: Mapping[SiteId, Answer], name: str) -> int:
    """Sum an integer over all replies; other values are rejected."""
    result = 0
    for site, answer in answers.items():
        value = answer.get(name)
        if not isinstance(value, int):
            raise ValueError(
                f"site {site} replied to {name} with {value!r}, which is not a whole number"
            )
        result += value
    return result


def align_answers(
    answers: Mapping[SiteId, Answer], verb: str, dtype: torch.dtype = torch.float64
) -> dict[SiteId, dict[str, Tensor]]:
    """Convert replies to tensors, with sites in sorted order.

    Raises ValueError unless all have the same fields and shapes.
    """
    parts: dict[SiteId, dict[str, Tensor]] = {}
    for site in sorted(answers):
        fields = answers[site].items()
        parts[site] = {name: torch.as_tensor(value, dtype=dtype) for name, value in fields}
        first = next(iter(parts.values()))
        if parts[site].keys() != first.keys():
            raise ValueError(
                f"site {site} replied to {verb!r} with {sorted(parts[site])}, others with "
                f"{sorted(first)}: all sites must run the same version"
            )
        for name, value in parts[site].items():
            if value.shape != first[name].shape:
                raise ValueError(
                    f"site {site} replied to {verb!r} with {name} of shape "
                    f"{tuple(value.shape)}, others with {tuple(first[name].shape)}: all "
                    "sites must use the same model"
                )
    return parts


def sum_answers(answers: Mapping[SiteId, Answer], verb: str, bound: float | None) -> Answer:
    """Sum replies by key in float64, with sites in sorted order; invalid ones raise an error."""
    result: dict[str, Tensor] = {}
    parts = align_answers(answers, verb)
    for site, fields in parts.items():
        for name, addend in fields.items():
            check_addend(site, verb, name, addend, bound)
            if name in result:
                addend = result[name] + addend
            result[name] = addend
    n_sites = torch.tensor(float(len(parts)), dtype=torch.float64)
    return {**result, "sites": n_sites}


def are_finite(values: Tensor) -> bool:
    """Return whether no number is NaN or infinite.

    A finite sum implies finite terms, and takes a thirtieth of the time of a check of each.

    >>> huge = torch.tensor([1e308, 1e308], dtype=torch.float64)  # their sum is not finite
    >>> are_finite(huge), are_finite(torch.tensor([1.0, torch.inf]))
    (True, False)
    """
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def check_addend(
    site: SiteId, verb: str, name: str, value: Tensor, bound: float | None
) -> None:
    """Raise ValueError for a contribution that is not finite or exceeds its bound."""
    if not are_finite(value):
        raise ValueError(
            f"site {site} replied to {verb!r} with {name} that is NaN or infinite: its "
            "training diverged or its data is damaged; lower the learning rate, "
            "standardize the features or check the site's examples"
        )
    if bound is not None and bool((value.abs() > bound).any()):
        raise ValueError(
            f"site {site} replied to {verb!r} with {name} beyond the bound {bound}; "
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
