"""Scores of remote sites, computed from counts on each site's test examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

import torch

from fallow.core.aggregation import number_of
from fallow.core.types import SiteId, Value, Values
from fallow.core.wording import is_small
from fallow.experiment.measuring import add_up
from fallow.experiment.metrics import UNSCORED, worst_tenth

if TYPE_CHECKING:
    from fallow.experiment.record import Scores


def score_counts(replies: Mapping[SiteId, Values], variance: float | None = None) -> Scores:
    """Compute scores from the counts of each site.

    The counts are ``rows`` and ``hits``, per class ``class_rows`` and ``class_hits`` (C,), for
    several labels ``label_rows`` and ``label_hits`` (L,), or for regression ``rows`` and
    ``squares``. ``accuracy`` is the unweighted mean over sites. ``accuracy_weighted`` and per-class
    scores weight every example equally. The mean squared error is in units of ``variance``. In
    ``per_site`` and ``per_class``, None stands for a score over no example or over so few that
    people are not shown it (`is_small`).

    >>> scores = score_counts({"a": {"rows": 10, "hits": 9}, "b": {"rows": 5, "hits": 3}})
    >>> scores["accuracy"], scores["accuracy_weighted"], scores["per_site"]
    (0.75, 0.8, {'a': 0.9, 'b': 0.6})
    """
    if variance is not None:
        errors = _ratios(replies, "squares")
        in_units = {site: _divide(error, variance) for site, error in errors.items()}
        shown = _hide_small(in_units, replies)
        return {**UNSCORED, "mse": _mean(in_units.values()), "per_site": shown}

    if any("label_rows" in reply for reply in replies.values()):
        shares = {site: _mean(_score_labels(reply)) for site, reply in replies.items()}
    else:
        shares = _ratios(replies, "hits")
    known = [share for share in shares.values() if share is not None]
    per_site = _hide_small(shares, replies)
    if not known:
        return {**UNSCORED, "per_site": per_site}
    percent = [100 * share for share in known]
    return {
        **score_totals(add_up(replies)),
        "accuracy": fmean(known),
        "per_site": per_site,
        "variance": pvariance(percent),
        "worst_tenth": worst_tenth(known),
    }


def score_totals(total: Values, variance: float | None = None) -> Scores:
    """Compute scores from aggregates over sites, as secure aggregation provides them.

    >>> score_totals({"rows": 10.0, "hits": 9.0})["accuracy"]
    0.9
    """
    if variance is not None:
        error = _ratio(total["squares"], total["rows"])
        return {**UNSCORED, "mse": _divide(error, variance)}

    if "label_rows" in total:
        per_label = _score_labels(total)
        rows_of_labels = torch.as_tensor(total["label_rows"]).tolist()
        shown = [
            None if is_small(rows) else share
            for share, rows in zip(per_label, rows_of_labels, strict=True)
        ]
        mean = _mean(per_label)
        return {
            **UNSCORED,
            "accuracy": mean,
            "accuracy_weighted": mean,
            "per_class": shown,
        }
    weighted = _ratio(total["hits"], total["rows"])
    totals: Scores = {**UNSCORED, "accuracy": weighted, "accuracy_weighted": weighted}
    if "class_rows" not in total:
        return totals
    hits = torch.as_tensor(total["class_hits"]).tolist()  # (C,)
    rows = torch.as_tensor(total["class_rows"]).tolist()  # (C,)
    per_class = [_ratio(hit, row) for hit, row in zip(hits, rows, strict=True)]
    totals["balanced_accuracy"] = _mean(per_class)
    totals["per_class"] = [
        None if is_small(row) else share for share, row in zip(per_class, rows, strict=True)
    ]
    return totals


def _score_labels(counts: Values) -> list[float | None]:
    """Return the share of right answers to each label; None without a known one."""
    hits = torch.as_tensor(counts["label_hits"]).tolist()  # (L,)
    rows = torch.as_tensor(counts["label_rows"]).tolist()  # (L,)
    return [_ratio(hit, row) for hit, row in zip(hits, rows, strict=True)]


def _hide_small(
    scores: Mapping[SiteId, float | None], replies: Mapping[SiteId, Values]
) -> dict[SiteId, float | None]:
    """Replace scores over few test examples by None."""
    rows = {site: number_of(reply["rows"]) or 0 for site, reply in replies.items()}
    return {site: None if is_small(rows[site]) else scores[site] for site in scores}


def _ratios(replies: Mapping[SiteId, Values], name: str) -> dict[SiteId, float | None]:
    """Return for each site the count under a name, divided by its number of examples."""
    return {site: _ratio(reply[name], reply["rows"]) for site, reply in replies.items()}


def _ratio(counted: Value, rows: Value) -> float | None:
    """Return a count divided by the number of examples, or None if there are none."""
    n = number_of(rows)
    part = number_of(counted)
    if not n or part is None:
        return None
    return part / n


def _divide(value: float | None, unit: float) -> float | None:
    if value is None:
        return None
    return value / unit


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return fmean(known)
