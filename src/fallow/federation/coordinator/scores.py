"""Scores of real sites: what each counted on its own test rows, as one row of results."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, pvariance
from typing import Any

import torch
from torch import Tensor

from fallow.core.types import Answer, SiteId
from fallow.experiment.over_sites import NOT_BY_SITE, worst_tenth
from fallow.experiment.record import Scores

UNSCORED: Scores = {
    "accuracy": None,
    "balanced_accuracy": None,
    "per_class": None,
    "mse": None,
    **NOT_BY_SITE,
}


def of_counts(answers: Mapping[SiteId, Answer], variance: float | None = None) -> Scores:
    """Scores from what every site counted: ``rows`` and ``hits``, by class ``class_rows`` and
    ``class_hits`` (C,), or for numbers to predict ``rows`` and ``squares``.

    ``accuracy`` is the mean over sites that have test rows enough to tell, each counting the same;
    ``accuracy_weighted`` counts each row the same, as scores by class do.  The mean squared error
    is in units of ``variance``.  A site that told nothing has None.

    >>> found = of_counts({"a": {"rows": 10, "hits": 9}, "b": {"rows": 5, "hits": 3}})
    >>> found["accuracy"], found["accuracy_weighted"], found["per_site"]
    (0.75, 0.8, {'a': 0.9, 'b': 0.6})
    """
    total = added(answers)
    if variance is not None:
        per_site = {
            s: None if error is None else error / variance
            for s, a in answers.items()
            for error in [_share(a["squares"], a["rows"])]
        }
        known = [error for error in per_site.values() if error is not None]
        return UNSCORED | {"mse": fmean(known) if known else None, "per_site": per_site}
    shares = {s: _share(a["hits"], a["rows"]) for s, a in answers.items()}
    known = [share for share in shares.values() if share is not None]
    if not known:
        return UNSCORED | {"per_site": shares}
    return of_totals(total) | {
        "accuracy": fmean(known),
        "per_site": shares,
        "variance": pvariance([100 * share for share in known]),
        "worst_tenth": worst_tenth(known),
    }


def of_totals(total: Answer, variance: float | None = None) -> Scores:
    """Scores from totals over sites, which is all that secure sums show."""
    if variance is not None:
        error = _share(total["squares"], total["rows"])
        return UNSCORED | {"mse": None if error is None else error / variance}
    weighted = _share(total["hits"], total["rows"])
    found = UNSCORED | {"accuracy": weighted, "accuracy_weighted": weighted}
    if "class_rows" not in total:
        return found
    pairs = zip(_list(total["class_hits"]), _list(total["class_rows"]), strict=True)
    per_class = [_share(hits, n) for hits, n in pairs]
    known = [share for share in per_class if share is not None]
    return found | {
        "per_class": per_class,
        "balanced_accuracy": fmean(known) if known else None,
    }


def added(answers: Mapping[SiteId, Answer]) -> Answer:
    """Key-wise totals."""
    total: dict[str, Tensor] = {}
    for answer in answers.values():
        for name, value in answer.items():
            addend = torch.as_tensor(value, dtype=torch.float64)
            total[name] = total[name] + addend if name in total else addend
    return dict(total)


def _share(hits: Any, rows: Any) -> float | None:
    """Of what was counted over so many rows; None for no rows."""
    return float(hits) / float(rows) if float(rows) else None


def _list(counts: Any) -> list[float]:
    found: list[float] = torch.as_tensor(counts).tolist()
    return found
