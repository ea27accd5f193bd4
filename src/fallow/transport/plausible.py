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

from fallow.core.messages import Request
from fallow.core.types import Answer, SiteId
from fallow.core.weights import cap_weights, lower_median

MODELS = ("w", "stats", "body")
"""Fields with a model or a part of one, multiplied by the rows ``n`` in a sum."""
ROWS = "n"
"""Field with the weight of a reply in an average of models."""
BY_ROWS = {
    *(("scaling", verb) for verb in ("columns", "cells", "spread")),
    ("filling", "cells"),
    *(("encoder", verb) for verb in ("moments", "contrast", "patches", "colors")),
}
BY_LABELS = {
    *(("scaling", verb) for verb in ("labeled", "deviation")),
    *(("training", verb) for verb in ("center", "columns", "normal")),
}
"""Sums over all rows or all labeled rows of a site, by owner and client function: statistics for
encoders, standardization of columns and targets, and least squares at the server."""


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
) -> dict[SiteId, str]:
    """Return the sites whose numbers are unusable or far beyond those of the others.

    ``dtype`` is the type of models. Replies have the same form (`alike.find_odd`) and finite
    numbers.
    """
    refused: dict[SiteId, str] = {}
    sizes: dict[str, dict[SiteId, float]] = {}
    for site in sorted(answers):
        try:
            for name, value in _convert_used(answers[site], requests[site]).items():
                measured = _measure(name, value, dtype)
                sizes.setdefault(name, {})[site] = measured
        except ValueError as error:
            refused[site] = str(error)
    for name, too_far in sizes.items():
        last_norms = [_find_last_norm(requests[site], name) for site in too_far]
        last = max(last_norms, default=0.0)
        for site, why in _find_beyond(name, too_far, last, bounds).items():
            refused.setdefault(site, why)
    return refused


def _convert_used(answer: Answer, request: Request) -> dict[str, Tensor]:
    """Return the numbers of a reply as the server side uses them.

    A model that was multiplied by its number of rows is divided by that number.
    """
    numbers: dict[str, Tensor] = {}
    for name, value in answer.items():
        is_row = isinstance(value, Tensor) and value.is_floating_point() and value.numel()
        if is_row or isinstance(value, float):
            numbers[name] = torch.as_tensor(value, dtype=torch.float64)
    # not multiplied by the number of rows
    if request.steps[-1].kind != "sum" or ROWS not in answer:
        return numbers
    n = number_of(answer[ROWS])
    for name in MODELS:
        if name not in numbers or n is None:
            continue
        if n == 0 and bool((numbers[name] != 0).any()):
            raise ValueError(
                f"{name} is not 0 although {ROWS} is 0: a site without labels adds nothing"
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


def _measure(name: str, value: Tensor, dtype: torch.dtype) -> float:
    """Return the norm of a model, or the largest absolute value of other numbers.

    Raises ValueError if it or its square is not finite in the type in which it is used.
    """
    if name not in MODELS:
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
        if isinstance(part, Tensor):
            largest = max(largest, float(part.double().norm()))
    return largest


def find_last_norms(requests: Iterable[Request]) -> dict[str, float]:
    """Return the norms of the models in an exchange's requests, as maximum over sites."""
    every = list(requests)
    largest: dict[str, float] = {}
    for name in MODELS:
        norms = [_find_last_norm(request, name) for request in every]
        largest[name] = max(norms, default=0.0)
    return largest


def _find_beyond(
    name: str, sizes: Mapping[SiteId, float], last: float, bounds: Bounds
) -> dict[SiteId, str]:
    """Return the sites beyond the limit that follows from all sites and the last model."""
    usual = max(lower_median(sizes.values()), last, 1.0)
    factor = bounds.farthest**2
    if name in ("w", "body"):  # statistics include variances
        factor = bounds.farthest
    what = "values up to"
    if name in MODELS:
        what = "the norm"
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


# -- products of rows -------------------------------------------------------------------------

PRODUCTS = frozenset({"n", "rows", "features", "answers", "products", "cross", "squares"})
"""Fields of a reply with products of labeled rows, for a closed-form classifier."""
NOISY = frozenset({"rows", "noisy"})
"""Fields of a reply with such products and Gaussian noise."""
BELOW = 1e-6  # relative to the largest square: rounding error of a zero eigenvalue
LONGEST = 2.0
"""Largest mean squared length of a row. It is 1 after standardization, except for later rows and
rounding, and 2 before it, when candidates of an encoder are compared."""


def are_products(answer: Mapping[str, object]) -> bool:
    """Return whether a reply has products of labeled rows."""
    return answer.keys() >= PRODUCTS


def are_noisy_products(answer: Mapping[str, object]) -> bool:
    """Return whether a reply has noisy products of labeled rows and their number."""
    return answer.keys() >= NOISY


def is_weighted(answer: Mapping[str, object]) -> bool:
    """Return whether ``n`` in a reply is a weight of labeled rows, not a count."""
    return are_products(answer) or answer.keys() == {ROWS, "features"}


def find_fault_in_products(
    answer: Mapping[str, object], tolerance: float = BELOW
) -> str | None:
    """Explain why Σ s (1, z, y) (1, z, y)' is impossible, or return None if it is possible.

    Such a matrix has no negative eigenvalue. For classes, y is one-hot, so that its own block is
    the diagonal matrix of ``answers``. For regression, it is ``squares``.
    """
    parts = {name: torch.as_tensor(answer[name], dtype=torch.float64) for name in PRODUCTS}
    features = parts["features"]
    answers = parts["answers"]
    if features.ndim != 1 or answers.ndim != 1:
        return "features and answers are no rows of numbers"
    size = len(features)
    outputs = len(answers)
    is_whole = parts["products"].shape == (size * (size + 1) // 2,)
    if not is_whole or parts["cross"].shape != (size, outputs):
        return f"products and cross do not have the shapes of {size} features"

    upper = torch.zeros(size, size, dtype=torch.float64)
    upper[torch.ones(size, size, dtype=torch.bool).triu()] = parts["products"]
    own = torch.diag(answers)  # one-hot labels
    if outputs == 1:
        own = parts["squares"].reshape(1, 1)
    # the matrix by blocks, of 1, z and y; k = size + outputs
    with_one = torch.cat([parts["n"].reshape(1), features, answers])  # (1 + k,)
    with_features = torch.cat([upper + upper.triu(1).T, parts["cross"]], dim=1)
    with_answers = torch.cat([parts["cross"].T, own], dim=1)
    others = torch.cat([with_features, with_answers])  # (k, k)
    below = torch.cat([with_one[1:, None], others], dim=1)  # (k, 1 + k)
    matrix = torch.cat([with_one[None], below])

    room = tolerance * float(matrix.diagonal().abs().max().clamp_min(1))
    lifted = matrix + room * torch.eye(len(matrix), dtype=torch.float64)
    _, failed = torch.linalg.cholesky_ex(lifted)
    if bool(failed):
        return "products have a negative eigenvalue, which those of rows never have"
    return None


POOLED = frozenset({"pool", "features", "products"})
"""Fields of a reply with products of unlabeled rows."""


def find_fault_in_pooled(answer: Mapping[str, object], rows: float) -> str | None:
    """Explain why these are no products of at most ``rows`` unlabeled rows, or return None."""
    n = float(torch.as_tensor(answer["pool"]))
    if not 0 <= n <= rows + BELOW * max(rows, 1.0):
        return f"pool is {n:g}, and there are {rows:g} rows"
    size = torch.as_tensor(answer["features"]).numel()
    without_targets = {
        **answer,
        "n": n,
        "rows": n,
        "answers": torch.zeros(1),
        "cross": torch.zeros(size, 1),
        "squares": 0.0,
    }
    return find_fault_in_products(without_targets)


def find_fault_in_weight(n: float, rows: float, tolerance: float = BELOW) -> str | None:
    """Explain why rows with weight 1 cannot have a total weight ``n``, or return None."""
    if abs(n - rows) <= tolerance * max(rows, 1.0):
        return None
    return (
        f"{ROWS} is {n:g}, and each of {rows:g} labeled rows weighs 1 in this study: they weigh "
        f"{rows:g}"
    )


def find_fault_in_length(answer: Mapping[str, object], longest: float) -> str | None:
    """Explain why the rows in these products are too long, or return None.

    ``longest`` is the largest possible Σ s |z|² after standardization.
    """
    size = torch.as_tensor(answer["features"]).numel()
    products = torch.as_tensor(answer["products"], dtype=torch.float64)
    if products.shape != (size * (size + 1) // 2,):
        return None  # another check reports this fault
    places = torch.arange(size)
    on_diagonal = (
        places * size - places * (places - 1) // 2
    )  # positions of the diagonal in a packed triangle
    length = float(products[on_diagonal].sum())
    if length <= longest * (1 + BELOW):
        return None
    return (
        f"products are of rows whose squared lengths are {length:.6g} together, and in the units of "
        f"this study those of all rows are {longest:.6g} at most"
    )


# -- leave-one-out losses ----------------------------------------------------------------------

LOSSES = frozenset({"squared", "right", "changed", "log"})
"""Fields of a reply with losses on labeled rows. Regression has the first only."""
FARTHEST = 10.0
"""Largest distance between an output and its target after clipping (`ridge.MOST_AWAY`)."""
HOTTEST = 1000.0  # largest temperature of the grid
TOGETHER = ""  # in place of a site's name: the aggregate of all sites


def are_losses(answer: Mapping[str, object]) -> bool:
    """Return whether a reply has losses on labeled rows and the fields of a sum only."""
    return "right" in answer and answer.keys() - {"sites"} <= LOSSES


def find_fault_in_losses(
    answer: Mapping[str, object], mass: float, tolerance: float = BELOW
) -> str | None:
    """Explain why rows of total weight ``mass`` cannot have these losses, or return None.

    The weight of correct predictions does not exceed that of all rows. With a grid of penalties,
    outputs are clipped to a distance of 10 from the target, so that no row has a loss above 21,000
    at any temperature.
    """
    room = mass * (1 + tolerance) + tolerance
    right = torch.as_tensor(answer["right"], dtype=torch.float64)
    if bool((right > room).any()):
        return (
            f"right is {float(right.max()):g}, and the labeled rows weigh {mass:g} together"
        )
    changed = torch.as_tensor(answer.get("changed", 0.0), dtype=torch.float64)
    if bool((changed > room).any()):
        return (
            f"changed is {float(changed.max()):g}, and the labeled rows weigh {mass:g} "
            "together"
        )
    if right.ndim and "log" in answer:
        log = torch.as_tensor(answer["log"], dtype=torch.float64)
        most = 2 * FARTHEST * HOTTEST + HOTTEST
        if bool((log > room * most).any()):
            return (
                f"log is {float(log.max()):g}, and no row loses more than {most:g}: rows of "
                f"weight {mass:g} lose {most * mass:g} at most"
            )
    return None


# -- statistics for fitting encoders -----------------------------------------------------------

PATCHES = frozenset({"rows", "patches", "moments"})
"""Fields of a reply with the mean and second moments of image patches."""
COLUMNS = frozenset({"rows", "columns", "squares"})
"""Fields of a reply with column sums and sums of squares."""


def find_fault_in_moments(
    answer: Mapping[str, object], tolerance: float = BELOW
) -> str | None:
    """Explain why first and second moments are impossible, or return None.

    Returns None as well for a reply without moments. Patches are normalized: a vector of d numbers
    has a squared length of at most d.
    """
    names = answer.keys() - {"sites"}
    if names == COLUMNS:
        rows, first, second = _read_moments(answer, "columns", "squares")
        if rows.ndim:
            return "rows is no single number"
        if first.shape != second.shape:
            return "columns and squares are not of one shape"
        room = tolerance * (1 + rows * second.abs())
        if bool((rows * second < first.square() - room).any()):
            return "squares are less than those of the mean, which no rows have"
    if names == PATCHES:
        rows, first, upper = _read_moments(answer, "patches", "moments")
        if rows.ndim:
            return "rows is no single number"
        size = first.numel()
        if first.ndim != 1 or upper.shape != (size * (size + 1) // 2,):
            return f"moments do not have the shape of {size} numbers in a patch"
        at = torch.triu_indices(size, size)
        second = torch.zeros(size, size, dtype=torch.float64)
        second[at[0], at[1]] = upper
        room = tolerance * (1 + rows * size)
        if float(second.trace()) > rows * size + room:
            return "moments are of longer patches than there are, once their contrast is normalized"
        with_one = torch.cat([torch.as_tensor(rows).reshape(1), first])
        below = torch.cat([first[:, None], second + second.triu(1).T], dim=1)
        lifted = torch.cat([with_one[None], below]) + room * torch.eye(
            size + 1, dtype=torch.float64
        )
        _, failed = torch.linalg.cholesky_ex(lifted)
        if bool(failed):
            return "moments have a negative eigenvalue, which those of patches never have"
    return None


def _read_moments(
    answer: Mapping[str, object], first: str, second: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of rows and two tensors of a reply, in float64."""
    names = ("rows", first, second)
    rows, one, two = (torch.as_tensor(answer[name], dtype=torch.float64) for name in names)
    return rows, one, two


# -- how much ---------------------------------------------------------------------------------


def cut_weights(
    answers: Mapping[SiteId, Answer], requests: Mapping[SiteId, Request], bounds: Bounds
) -> tuple[dict[SiteId, Answer], dict[SiteId, str]]:
    """Clip the weights of sites to the limits, and describe each clipped one.

    Only replies with models and their number of rows ``n`` are affected. All fields of a sum are
    scaled by the same factor, so that the site's model does not change.
    """
    weights: dict[SiteId, float] = {}
    for site, answer in answers.items():
        if not _is_model(answer):
            continue
        n = number_of(answer[ROWS])
        if n is not None:
            weights[site] = n
    limits = cap_weights(list(weights.values()), bounds.largest_share, bounds.largest_ratio)

    result: dict[SiteId, Answer] = dict(answers)
    words: dict[SiteId, str] = {}
    for (site, n), most in zip(weights.items(), limits, strict=True):
        if most >= n:
            continue
        names = {ROWS}
        if requests[site].steps[-1].kind == "sum":
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


def _is_model(answer: Answer) -> bool:
    names = set(answer)
    return ROWS in names and len(names) > 1 and names <= {ROWS, *MODELS}
