"""Plausibility of a site's numbers and weights in comparison with other sites.

A single finite number can end a study: 1e300 is infinite in float32, and a model with such numbers
stops every later round, also after restarts. Replies are therefore checked in the data type in
which they are used and against the replies of the other sites, before they count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fallow.core.client import Declaration
from fallow.core.messages import Request
from fallow.core.types import Answer, SiteId
from fallow.core.values import Kind, Model
from fallow.core.weights import cap_weights, lower_median

TOGETHER = ""
"""Place of a site's name for the aggregate of all sites."""


@dataclass(frozen=True)
class Bounds:
    """Limits on the deviation of one site from the others.

    Parameters
    ----------
    farthest
        Largest norm of a site's model, in units of the larger of the median over sites and the last
        model. The limit for other numbers, which may be squares, is its square.
    largest_share, largest_ratio
        Largest weight of a site in an average of models: as a share of the total, and in units of
        the median over sites. A larger weight is clipped. These limits apply from three sites on,
        because with two sites neither is the outlier.
    """

    farthest: float = 1000.0
    largest_share: float = 0.5
    largest_ratio: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("farthest", 1.0), ("largest_ratio", 1.0)):
            value = getattr(self, name)
            if not value >= least:  # infinite: no bound
                raise ValueError(
                    f"federation.{name} is {value}; it must be {least:g} or more, or inf for no "
                    "bound"
                )
        if not 0 < self.largest_share <= 1:
            raise ValueError(
                f"federation.largest_share is {self.largest_share}; it must be above 0 and at "
                "most 1, which is no bound"
            )


# -- how large --------------------------------------------------------------------------------


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


def find_too_far(
    answers: Mapping[SiteId, Answer],
    requests: Mapping[SiteId, Request],
    dtype: torch.dtype,
    bounds: Bounds,
    declaration: Declaration | None = None,
) -> dict[SiteId, str]:
    """Return the sites whose numbers are unusable or far beyond those of the others.

    ``dtype`` is the type of models. Replies have the same form (`alike.find_odd`) and finite
    numbers.
    """
    refused: dict[SiteId, str] = {}
    sizes: dict[str, dict[SiteId, float]] = {}
    models: dict[str, Kind] = {}
    if declaration is not None:
        models = declaration.models
    for site in sorted(answers):
        try:
            for name, value in _convert_used(answers[site], declaration).items():
                measured = _measure(name, value, dtype if name in models else None)
                sizes.setdefault(name, {})[site] = measured
        except ValueError as error:
            refused[site] = str(error)
    for name, too_far in sizes.items():
        last_norms = [_find_last_norm(requests[site], name) for site in too_far]
        last = max(last_norms, default=0.0)
        for site, why in _find_beyond(
            name, models.get(name), too_far, last, bounds
        ).items():
            refused.setdefault(site, why)
    return refused


def _convert_used(answer: Answer, declaration: Declaration | None) -> dict[str, Tensor]:
    """Return the numbers of a reply as the server side uses them.

    A model that was multiplied by its number of rows is divided by that number.
    """
    numbers: dict[str, Tensor] = {}
    for name, value in answer.items():
        is_row = isinstance(value, Tensor) and value.is_floating_point() and value.numel()
        if is_row or isinstance(value, float):
            numbers[name] = torch.as_tensor(value, dtype=torch.float64)
    # not multiplied by the number of rows
    if declaration is None or declaration.operation != "sum" or not declaration.weight:
        return numbers
    weight = declaration.weight
    n = number_of(answer[weight])
    for name in declaration.models:
        if name not in numbers or n is None:
            continue
        if n == 0 and bool((numbers[name] != 0).any()):
            raise ValueError(
                f"{name} is not 0 although {weight} is 0: a site without labels adds nothing"
            )
        numbers[name] = numbers[name] / max(n, 1.0)
    return numbers


def number_of(value: object) -> float | None:
    """Return a scalar number, or None for any other value."""
    if isinstance(value, Tensor) and value.ndim == 0:
        return float(value)
    if isinstance(value, float | int):
        return float(value)
    return None


def _measure(name: str, value: Tensor, dtype: torch.dtype | None) -> float:
    """Return the norm of a model of this type, or the largest absolute value of other numbers.

    Raises ValueError if it or its square is not finite in the type in which it is used.
    """
    if dtype is None:
        if not does_fit(value, torch.float64):
            raise ValueError(
                f"{name} has values up to {float(value.abs().max()):.3g}, whose squares no number "
                "can hold: check the site's rows"
            )
        return float(value.abs().max())
    if not does_fit(value, dtype):
        raise ValueError(
            f"{name} has the norm {float(value.norm()):.3g}, which {dtype} cannot hold squared: "
            "training diverged or the answer is wrong; lower the learning rate or check the site"
        )
    return float(value.norm())


def _find_last_norm(request: Request, name: str) -> float:
    """Return the norm of the model in an exchange's request, or 0 without a model."""
    largest = 0.0
    for step in request.steps:
        part = step.args.get(name)
        if step.kind == "fit" and isinstance(part, Tensor):
            largest = max(largest, float(part.double().norm()))
    return largest


def find_last_norms(requests: Iterable[Request]) -> dict[str, float]:
    """Return the norms of the models in an exchange's requests, as maximum over sites."""
    largest: dict[str, float] = {}
    for request in requests:
        for step in request.steps:
            for name in step.args:
                norm = _find_last_norm(request, name)
                largest[name] = max(norm, largest.get(name, 0.0))
    return largest


def _find_beyond(
    name: str,
    kind: Kind | None,
    sizes: Mapping[SiteId, float],
    last: float,
    bounds: Bounds,
) -> dict[SiteId, str]:
    """Return the sites beyond the limit that follows from all sites and the last model."""
    usual = max(lower_median(sizes.values()), last, 1.0)
    factor = bounds.farthest**2
    if isinstance(kind, Model):  # statistics include variances
        factor = bounds.farthest
    what = "values up to" if kind is None else "the norm"
    refused: dict[SiteId, str] = {}
    for site, size in sizes.items():
        if size > factor * usual:
            refused[site] = (
                f"{name} has {what} {size:.3g}, beyond {factor:g} times {usual:.3g}, the largest "
                "of the median over sites, the last model and 1: its training diverged, its rows "
                "have other units, or the answer is wrong (federation.farthest in study.toml says "
                "how far it may be)"
            )
    return refused


# -- how much ---------------------------------------------------------------------------------


def cut_weights(
    answers: Mapping[SiteId, Answer], declaration: Declaration | None, bounds: Bounds
) -> tuple[dict[SiteId, Answer], dict[SiteId, str]]:
    """Clip the weights of sites to the limits, and describe each clipped one.

    Only replies with models and their weight are affected. All fields of a sum are scaled by the
    same factor, so that the site's model does not change.
    """
    if declaration is None or declaration.weight is None:
        return dict(answers), {}
    weights: dict[SiteId, float] = {}
    for site, answer in answers.items():
        n = number_of(answer[declaration.weight])
        if n is not None:
            weights[site] = n
    limits = cap_weights(list(weights.values()), bounds.largest_share, bounds.largest_ratio)

    result: dict[SiteId, Answer] = dict(answers)
    words: dict[SiteId, str] = {}
    for (site, n), most in zip(weights.items(), limits, strict=True):
        if most >= n:
            continue
        names = {declaration.weight}
        if declaration.operation == "sum":
            names = set(answers[site])
        result[site] = _scale(answers[site], names, most / n)
        words[site] = _describe_cut(site, n, most, bounds)
    return result, words


def cut_sums(
    answers: Mapping[SiteId, Answer], registered: Mapping[SiteId, int], bounds: Bounds
) -> tuple[dict[SiteId, Answer], dict[SiteId, str]]:
    """Clip contributions that grow with a site's rows to the limits.

    ``registered`` is the registered number of rows or labels of each site. Different sums over the
    same rows are scaled by the same factor, because that number does not change.
    """
    weights = {site: float(registered[site]) for site in answers}
    limits = cap_weights(list(weights.values()), bounds.largest_share, bounds.largest_ratio)

    result: dict[SiteId, Answer] = dict(answers)
    words: dict[SiteId, str] = {}
    for (site, n), most in zip(weights.items(), limits, strict=True):
        if most >= n:
            continue
        result[site] = _scale(answers[site], set(answers[site]), most / n)
        words[site] = _describe_cut(site, n, most, bounds)
    return result, words


def _scale(answer: Answer, names: set[str], factor: float) -> Answer:
    """Multiply the named numeric fields of a reply by a factor."""
    scaled = dict(answer)
    for name in names:
        scaled[name] = answer[name] * factor  # type: ignore[operator]
    return scaled


def _describe_cut(site: SiteId, n: float, allowed: float, bounds: Bounds) -> str:
    return (
        f"site {site} weighs by {n:g} rows and counts as {allowed:g}: more than "
        f"{bounds.largest_share:g} of all or {bounds.largest_ratio:g} times the median site "
        "(federation.largest_share and largest_ratio in study.toml)"
    )
