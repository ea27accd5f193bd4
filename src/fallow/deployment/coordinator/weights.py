"""Robust weighting: limits on the distance between sites' replies and on the weight of a site.

A single finite number can end a study: 1e300 is infinite in float32, and a model with such numbers
stops every later round, also after restarts. Replies are therefore compared with each other, in the
data type in which they are used, before they count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import torch
from torch import Tensor

from fallow.core.aggregation import FEW, cap_weights, does_fit, lower_median, number_of
from fallow.core.client import Declaration
from fallow.core.messages import Request
from fallow.core.types import SiteId, Values
from fallow.core.values import Kind, Model, NonNegative, Real
from fallow.deployment.agreement import Bounds
from fallow.transport.checks import ResponseCheck
from fallow.transport.remote import NoteStore

LONGEST = 2.0
"""Largest mean squared length of a row. It is 1 after standardization, except for later rows and
rounding, and 2 before it, when candidates of an encoder are compared."""
FARTHEST_MEAN = 10.0
"""Largest ratio of the mean of a column at a site to its size at the median site.  On six tables,
divided unevenly between 3 and 10 sites, honest means of at most 0.3 % of the columns exceed it."""
FARTHEST_SQUARES = 10_000.0
"""Largest ratio of mean squares.  Honest sites differ by more than 100, where a category is rare."""
ROUNDING = 1e-6
"""Relative error of sums."""
NORMS = "norms"
"""Event log: norms of the model that was sent last."""


@final
@dataclass
class SiteWeights:
    """Comparison of the replies of an exchange, and limits on the weight of a site.

    Attributes
    ----------
    response_check
        Registered rows and labels of the sites, and declarations of client functions.
    bounds
        Limits on unusual replies.
    dtype
        Data type of models.
    last
        Norms of the parts of the model that was sent last.
    shared
        Labeling tasks that all sites may create together in the open step.

    Notes
    -----
    Weights are limited here, for remote sites, and not in the algorithms. In a simulation, a site
    with most of the rows is not an attack.
    """

    response_check: ResponseCheck
    bounds: Bounds = Bounds()
    dtype: torch.dtype = torch.float32
    last: dict[str, float] = field(default_factory=dict)
    shared: int | None = None

    def note_sent(self, requests: Iterable[Request], event_log: NoteStore) -> None:
        """Store the norms of the models that are sent to sites.

        With secure aggregation, a model is sent in the exchange before the sum, and a restart may
        be in between.
        """
        brought: dict[str, float] = {}
        for name, norm in find_last_norms(requests).items():
            if norm:
                brought[name] = norm
        if brought:
            self.last = brought
            event_log.note(NORMS, json.dumps(brought))
        elif not self.last:
            self.last = json.loads(event_log.read_note(NORMS) or "{}")

    def find_outliers(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> dict[SiteId, str]:
        """Return the sites whose reply does not count because of the other replies, and why.

        Replies have the same form. A reply may be too large for the server side, lie far beyond the
        others, or exceed a total.
        """
        if any(request.owner == "annotators" for request in requests.values()):
            return (
                self._find_over_budget(requests, replies)
                | _find_far_scores(requests, replies, self.bounds)
                | _find_far_rows(requests, replies, self.bounds)
            )
        declaration = self.response_check.find_common(requests)
        return find_too_far(replies, requests, self.bounds, declaration)

    def limit(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> tuple[dict[SiteId, Values], dict[SiteId, str]]:
        """Return the replies with limited weights, and what is limited or unusual at each site."""
        if any(request.steps[-1].masked for request in requests.values()):
            return dict(replies), {}
        declaration = self.response_check.find_common(requests)
        if declaration is None:
            return dict(replies), {}
        registered: dict[SiteId, int] = {}
        if declaration.weighted_by == "rows":
            registered = self.response_check.rows
        elif declaration.weighted_by == "labels":
            registered = self.response_check.labels
        if not registered.keys() >= replies.keys():
            registered = {}
        examples = registered or self.response_check.rows
        unusual = find_unusual_sizes(replies, declaration, examples)
        usual, far = replace_far_means(replies, declaration, registered)
        counted, heavy = cut_weights(usual, declaration, self.bounds, registered)
        words = unusual | far
        for site, why in heavy.items():
            words[site] = f"{words[site]}; {why}" if site in words else why
        return counted, words

    def find_far_mean(
        self, total: Mapping[str, Tensor], declaration: Declaration
    ) -> str | None:
        """Explain why an aggregate of models has no plausible mean, or return None."""
        if declaration.weight is None:
            return None
        n = max(number_of(total[declaration.weight]) or 0.0, 1.0)
        farthest = self.bounds.farthest
        for name, kind in sorted(declaration.models.items()):
            mean = total[name] / n
            if not does_fit(mean, self.dtype):
                return f"the square of {name} is not finite in {self.dtype}"
            last = self.last.get(name, 0.0)
            usual = max(last, 1.0)
            norm = float(mean.norm())
            if kind == Model() and last and norm > farthest * usual:
                return (
                    f"{name} has the norm {norm:.3g}, more than {farthest:g} times "
                    f"{usual:.3g}, the larger of that of the last model and 1 "
                    "(federation.farthest in study.toml)"
                )
        return None

    def _find_over_budget(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> dict[SiteId, str]:
        """Return the sites that exceed a shared label budget together.

        The sites with the most labeling tasks are returned, until the others fit. The coordinator
        does not wait for their tasks, but their labels still count.
        """
        asked: dict[SiteId, int] = {}
        for site, reply in replies.items():
            if requests[site].steps[-1].function == "ask":
                asked[site] = int(reply["asked"])  # type: ignore[arg-type]
        refused: dict[SiteId, str] = {}
        while self.shared is not None and sum(asked.values()) > self.shared:
            site = max(sorted(asked), key=lambda name: asked[name])
            refused[site] = (
                f"asked is {asked.pop(site)}, but all sites together may create "
                f"{self.shared} labeling tasks"
            )
        return refused


# -- norms ------------------------------------------------------------------------------------


def find_too_far(
    replies: Mapping[SiteId, Values],
    requests: Mapping[SiteId, Request],
    bounds: Bounds,
    declaration: Declaration | None = None,
) -> dict[SiteId, str]:
    """Return the sites whose numbers are unusable or far beyond those of the others.

    Replies have the same form (`find_inconsistent`) and finite numbers, and models fit in float32.
    """
    refused: dict[SiteId, str] = {}
    sizes: dict[str, dict[SiteId, float]] = {}
    models: dict[str, Kind] = {}
    if declaration is not None:
        models = declaration.models
    for site in sorted(replies):
        try:
            for name, value in _convert_used(replies[site], declaration).items():
                measured = float(value.norm()) if name in models else _measure(name, value)
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


def _convert_used(reply: Values, declaration: Declaration | None) -> dict[str, Tensor]:
    """Return the numbers of a reply as the server side uses them.

    A model that was multiplied by its number of rows is divided by that number.
    """
    numbers: dict[str, Tensor] = {}
    for name, value in reply.items():
        is_row = isinstance(value, Tensor) and value.is_floating_point() and value.numel()
        if is_row or isinstance(value, float):
            numbers[name] = torch.as_tensor(value, dtype=torch.float64)
    # not multiplied by the number of rows
    if declaration is None or declaration.operation != "sum" or not declaration.weight:
        return numbers
    weight = declaration.weight
    n = number_of(reply[weight])
    for name in declaration.models:
        if name not in numbers or n is None:
            continue
        if n == 0 and bool((numbers[name] != 0).any()):
            raise ValueError(
                f"{name} is not 0 although {weight} is 0: a site without labels "
                "contributes nothing"
            )
        numbers[name] = numbers[name] / max(n, 1.0)
    return numbers


def _measure(name: str, value: Tensor) -> float:
    """Return the largest absolute value of numbers. Raises ValueError if a square is not finite."""
    largest = float(value.abs().max())
    if not does_fit(value, torch.float64):
        raise ValueError(
            f"{name} has values up to {largest:.3g}, whose squares are not finite: check the "
            "site's examples"
        )
    return largest


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
                f"{name} has {what} {size:.3g}, more than {factor:g} times "
                f"{usual:.3g}, the largest of the median over sites, the last model "
                "and 1: its training diverged, its features have other units, or "
                "the reply is wrong (the factor is federation.farthest in "
                "study.toml)"
            )
    return refused


# -- weights ----------------------------------------------------------------------------------


def cut_weights(
    replies: Mapping[SiteId, Values],
    declaration: Declaration,
    bounds: Bounds,
    registered: Mapping[SiteId, int],
) -> tuple[dict[SiteId, Values], dict[SiteId, str]]:
    """Clip the weights of sites to the limits, and describe each clipped one.

    ``registered`` is the number of rows or labels by which a contribution grows. Without it, only
    replies with models and their weight are affected. All fields of a sum are scaled by the same
    factor, so that the site's model does not change.
    """
    weights: dict[SiteId, float] = {}
    for site, reply in replies.items():
        n: float | None = registered.get(site)
        if n is None and declaration.weight is not None:
            n = number_of(reply[declaration.weight])
        if n is not None:
            weights[site] = float(n)
    limits = cap_weights(list(weights.values()), bounds.largest_share, bounds.largest_ratio)

    result: dict[SiteId, Values] = dict(replies)
    words: dict[SiteId, str] = {}
    for (site, n), limit in zip(weights.items(), limits, strict=True):
        if limit >= n:
            continue
        names = set(replies[site])
        if not registered and declaration.operation != "sum":
            names = {str(declaration.weight)}
        result[site] = _scale(replies[site], names, limit / n)
        words[site] = _describe_cut(site, n, limit, bounds)
    return result, words


def replace_far_means(
    replies: Mapping[SiteId, Values],
    declaration: Declaration,
    registered: Mapping[SiteId, int],
) -> tuple[dict[SiteId, Values], dict[SiteId, str]]:
    """Replace sums of columns that are far beyond those of the median site, and say which.

    ``registered`` is the number of rows or labels of each site. A single wrong number would set the
    units of the column for all sites, so the mean of the median site counts instead. Where squares are
    sent as well, a mean may have any size that the site's squares allow, since that of an honest column
    may be near 0 at the median site. Class columns are not compared, because a site may have one class
    only. With secure aggregation, nobody sees the means of a site.
    """
    result: dict[SiteId, Values] = dict(replies)
    words: dict[SiteId, str] = {}
    if declaration.operation != "sum" or len(replies) < FEW or not registered:
        return result, words
    sites = sorted(replies)
    rows = torch.tensor([max(float(registered[site]), 1.0) for site in sites])[:, None]
    kinds = {name: declaration.kinds[name] for name in declaration.wide_fields}
    squares = [name for name, kind in kinds.items() if isinstance(kind, NonNegative)]
    own_size: Tensor | None = None  # (s, d) root of the mean square at each site
    for name in sorted(kinds, key=lambda name: (name not in squares, name)):
        sums = _stack_sums(replies, name)
        means = sums / rows  # (s, d)
        limit = _find_limit(kinds[name], means, own_size)
        is_far = means.abs() > limit.sizes
        at_median = _find_median(means).expand_as(means)
        counted = torch.where(is_far, at_median.clamp(-limit.sizes, limit.sizes), means)
        if name in squares:
            own_size = counted.clamp(min=0).sqrt()
        for at, site in enumerate(sites):
            if not bool(is_far[at].any()):
                continue
            shape = torch.as_tensor(replies[site][name]).shape
            total = torch.where(is_far[at], counted[at] * rows[at], sums[at])
            result[site] = {**result[site], name: total.reshape(shape)}
            column = int(is_far[at].nonzero()[0])
            words[site] = (
                f"{name} of site {site} counts as at the median site in "
                f"{int(is_far[at].sum())} columns: the mean of column {column} is "
                f"{float(means[at, column]):.3g}, more than {limit.reason} "
                f"{float(limit.usual[column]):.3g}; check the units of its columns"
            )
    return result, words


def find_unusual_sizes(
    replies: Mapping[SiteId, Values],
    declaration: Declaration,
    examples: Mapping[SiteId, int],
) -> dict[SiteId, str]:
    """Describe the sites whose columns are far larger than those of the median site.

    ``examples`` is the largest number of examples of each site. The size of a column is the root of
    its mean square, or its mean where no squares are sent. A column may be as large at an honest site
    where a category is rare, so it counts as far as `replace_far_means` allows: on six tables, divided
    unevenly (Dirichlet 0.1) between 3 and 10 sites, 0.6 % of the columns of honest sites are named.
    """
    words: dict[SiteId, str] = {}
    is_compared = declaration.operation == "sum" and len(replies) >= FEW
    if not is_compared or not examples.keys() >= replies.keys():
        return words
    kinds = {name: declaration.kinds[name] for name in declaration.wide_fields}
    squares = [name for name, kind in kinds.items() if isinstance(kind, NonNegative)]
    sites = sorted(replies)
    numbers: list[float] = []
    for site in sites:
        own = number_of(replies[site].get("rows", 0.0))
        numbers.append(max(own or float(examples[site]), 1.0))
    for name in sorted(squares or kinds):
        sizes = (_stack_sums(replies, name) / torch.tensor(numbers)[:, None]).abs()
        size = "the mean of column"
        if squares:
            sizes = sizes.sqrt()
            size = "the root mean square of column"
        usual = _find_usual(kinds[name], sizes)
        is_far = (usual > 0) & (sizes > FARTHEST_MEAN * usual)
        for at, site in enumerate(sites):
            if not bool(is_far[at].any()):
                continue
            column = int(is_far[at].nonzero()[0])
            words[site] = (
                f"{name} of site {site} are unusual in {int(is_far[at].sum())} columns and "
                f"count as sent: {size} {column} is "
                f"{float(sizes[at, column]):.3g}, more than {FARTHEST_MEAN:g} times that at "
                f"the median site, {float(usual[column]):.3g}; check the units of this column, unless "
                "its values are rare at other sites"
            )
    return words


def _stack_sums(replies: Mapping[SiteId, Values], name: str) -> Tensor:
    """Return a field of the replies, in the order of sites.  (s, d)"""
    rows = [torch.as_tensor(replies[site][name]).double() for site in sorted(replies)]
    return torch.stack([row.reshape(-1) for row in rows])


class _Limit(NamedTuple):
    """Largest plausible means (s, d), their size at the median site (d,), and the reason."""

    sizes: Tensor
    usual: Tensor
    reason: str


def _find_limit(kind: Kind, means: Tensor, own_size: Tensor | None) -> _Limit:
    """Return the limit of means (s, d); own_size: root of the mean squares, if they are known."""
    if own_size is not None:
        usual = _find_median(own_size)
        reason = "its squares allow; its size at the median site is"
        return _Limit(own_size * (1 + ROUNDING), usual, reason)
    usual = _find_usual(kind, means.abs())
    factor = FARTHEST_MEAN
    if isinstance(kind, NonNegative):  # squares
        factor = FARTHEST_SQUARES
    sizes = torch.where(usual > 0, factor * usual, torch.inf).expand_as(means)
    return _Limit(sizes, usual, f"{factor:g} times its size at the median site,")


def _find_usual(kind: Kind, sizes: Tensor) -> Tensor:
    """Return the size of each column (d,) at the median site, from those of all sites (s, d)."""
    usual = _find_median(sizes)
    if isinstance(kind, Real) and kind.have_one_unit:
        usual = usual.clamp(min=float(usual.median()))
    return usual


def _find_median(values: Tensor) -> Tensor:
    """Return the value of each column (d,) at the median site, from those of all sites (s, d)."""
    return torch.tensor([lower_median(column) for column in values.T.tolist()]).double()


def _scale(reply: Values, names: set[str], factor: float) -> Values:
    """Multiply the named numeric fields of a reply by a factor."""
    scaled = dict(reply)
    for name in names:
        scaled[name] = reply[name] * factor  # type: ignore[operator]
    return scaled


def _describe_cut(site: SiteId, n: float, allowed: float, bounds: Bounds) -> str:
    return (
        f"the weight of site {site}, {n:g} examples, is limited to {allowed:g}: it "
        f"exceeds {bounds.largest_share:g} of all or {bounds.largest_ratio:g} times "
        "the median site (federation.largest_share and largest_ratio in study.toml)"
    )


# -- labeling tasks and test scores -----------------------------------------------------------


def _find_far_scores(
    requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values], bounds: Bounds
) -> dict[SiteId, str]:
    """Return sites with test errors far beyond the others, which would dominate the mean."""
    errors: dict[SiteId, Values] = {}
    for site, reply in replies.items():
        is_score = requests[site].steps[-1].function == "score"
        if is_score and "squares" in reply and reply["rows"]:
            squares = float(reply["squares"])  # type: ignore[arg-type]  # contributions by now
            rows = float(reply["rows"])
            errors[site] = {"squares": squares / rows}
    return find_too_far(errors, requests, bounds)


def _find_far_rows(
    requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values], bounds: Bounds
) -> dict[SiteId, str]:
    """Return sites that register far more rows than others, because budgets depend on rows."""
    rows: dict[SiteId, float] = {}
    for site, reply in replies.items():
        if requests[site].steps[-1].function == "hello":
            rows[site] = float(reply["rows"])  # type: ignore[arg-type]  # whole by now
    limit = bounds.farthest * lower_median(rows.values())
    refused: dict[SiteId, str] = {}
    for site, n in rows.items():
        if n > limit:
            refused[site] = (
                f"rows is {n:g}, more than {bounds.farthest:g} times the median site "
                "(federation.farthest in study.toml)"
            )
    return refused


# -- length of rows -----------------------------------------------------------------------------


def find_longest(
    rows: Mapping[SiteId, int], sites: Sequence[SiteId], bounds: Bounds
) -> float:
    """Return the largest possible Σ |z|² over the labeled rows of these sites.

    ``rows`` are the registered rows of all sites. Standardization uses aggregates over all rows, in
    which a site may be counted with fewer rows than it has (`SiteWeights.limit`). Its own rows may
    then have a mean length above 1.
    """
    names = sorted(rows)
    registered = [float(rows[name]) for name in names]
    counted = cap_weights(registered, bounds.largest_share, bounds.largest_ratio)
    together = 0.0
    for name, own, weight in zip(names, registered, counted, strict=True):
        if name in sites and weight:
            together = max(together, sum(counted) * own / weight)
    return LONGEST * together
