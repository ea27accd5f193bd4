"""Aggregation of scores over sites: mean, spread and worst sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fallow.core.types import SiteId
from fallow.experiment.metrics import accuracy, balanced_accuracy, per_class_accuracy

if TYPE_CHECKING:
    from fallow.experiment.record import Scores, SiteScores

NOT_BY_SITE: SiteScores = {
    "per_site": None,
    "accuracy_weighted": None,
    "variance": None,
    "worst_tenth": None,
}
"""Metrics of one model on common test examples."""


def of_accuracy(
    guess: Mapping[SiteId, Tensor], true: Mapping[SiteId, Tensor], classes: int
) -> Scores:
    """Return the scores of the class predictions ``guess`` against ``true``, both (m_k,) per site.

    ``accuracy`` is the unweighted mean over sites with test examples.  ``accuracy_weighted``
    weights each example equally, as scores by class do.  ``variance`` is the population variance,
    in percent².
    """
    per_site: dict[SiteId, float | None] = {}
    for name, predicted in guess.items():
        per_site[name] = None
        if len(predicted):
            per_site[name] = accuracy(predicted, true[name])
    scores = [score for score in per_site.values() if score is not None]
    p = torch.cat([*guess.values()])
    y = torch.cat([*true.values()])
    return {
        "accuracy": fmean(scores),
        "balanced_accuracy": balanced_accuracy(p, y, classes),
        "per_class": per_class_accuracy(p, y, classes),
        "mse": None,
        "per_site": per_site,
        "accuracy_weighted": accuracy(p, y),
        "variance": pvariance([100 * score for score in scores]),
        "worst_tenth": worst_tenth(scores),
    }


def worst_tenth(scores: Sequence[float]) -> float:
    """Return the mean of the lowest tenth of the scores, at least one site.

    >>> worst_tenth([0.9, 0.5, 0.7, 0.8]), worst_tenth([0.1, 0.3, *[1.0] * 9])
    (0.5, 0.2)
    """
    return fmean(sorted(scores)[: math.ceil(len(scores) / 10)])
