"""Metrics: pure functions of predictions, labels and learning curves.

All functions take tensors, arrays or lists. Accuracies are fractions in [0, 1]. A class that cannot
be scored is ``None``, never 0. For class imbalance, see `fallow.experiment.metrics_counts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fallow.core.multilabel import UNKNOWN, read_digits
from fallow.core.types import SiteId
from fallow.experiment.metrics_counts import Floats, Numbers, high_classes

if TYPE_CHECKING:
    from fallow.experiment.record import Scores


def accuracy(predicted: Numbers, true: Numbers) -> float:
    """Return the fraction of correct predictions.  predicted, true: (n,) class ids.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    p = np.asarray(predicted, dtype=np.int64)
    y = np.asarray(true, dtype=np.int64)
    return float((p == y).mean())


def per_class_accuracy(
    predicted: Numbers, true: Numbers, classes: int
) -> list[float | None]:
    """Return the accuracy of each class (recall); ``None`` for a class without examples.

    >>> per_class_accuracy([0, 1, 1], [0, 1, 0], classes=3)
    [0.5, 1.0, None]
    """
    p = np.asarray(predicted, dtype=np.int64)
    y = np.asarray(true, dtype=np.int64)
    scores: list[float | None] = []
    for c in range(classes):
        guesses = p[y == c]  # for the examples of this class
        score = None
        if len(guesses):
            score = float((guesses == c).mean())
        scores.append(score)
    return scores


def balanced_accuracy(predicted: Numbers, true: Numbers, classes: int) -> float:
    """Return the mean of the per-class accuracies over classes with examples.

    >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1], classes=3)
    0.5
    """
    per_class = per_class_accuracy(predicted, true, classes)
    scored = [score for score in per_class if score is not None]
    return float(np.mean(scored))


@dataclass(frozen=True)
class AccuracyGap:
    """Mean accuracy of the low- and the high-variance classes, and their gap (low - high)."""

    low: float
    high: float

    @property
    def gap(self) -> float:
        """Difference, positive if the unevenly distributed classes are learned worse."""
        return self.low - self.high


def variance_gap(per_class: Sequence[float | None], sigma: Numbers) -> AccuracyGap | None:
    """Return the accuracy of the classes, split at the median spread in the *partition*
    (`high_classes`).

    per_class: (C,) accuracies, ``None`` if absent (excluded from the mean); sigma: (C,).
    The result is ``None`` if a half has no class with a score.  AHFAL publishes the gap
    without its split.

    >>> round(variance_gap([0.9, 0.5, 0.8, 0.6], [1, 9, 2, 8]).gap, 2)
    0.3
    """
    side = high_classes(sigma)
    low = []
    high = []
    for score, is_high in zip(per_class, side, strict=True):
        if score is None or is_high is None:  # not scored
            continue
        if is_high:
            high.append(score)
        else:
            low.append(score)
    if not low or not high:
        return None
    return AccuracyGap(low=float(np.mean(low)), high=float(np.mean(high)))


def _curve(fractions: Numbers, scores: Numbers) -> tuple[Floats, Floats]:
    return np.asarray(fractions, dtype=np.float64), np.asarray(scores, dtype=np.float64)


def aulc(
    fractions: Numbers, scores: Numbers, within: tuple[float, float] | None = None
) -> float:
    """Return the area under the learning curve by trapezoids, divided by the range of
    fractions.

    The unit is that of the scores: a constant curve has its value as area.  ``fractions``: at
    least two, increasing.  ``within``: the range of fractions, within that of the curve; by default
    all of it.

    >>> round(aulc([0.1, 0.2, 0.4], [0.0, 0.6, 0.6]), 4)
    0.5
    """
    x, y = _curve(fractions, scores)
    low, high = within or (x[0], x[-1])
    inside = np.unique(np.concatenate([[low], x[(x > low) & (x < high)], [high]]))
    return float(np.trapezoid(np.interp(inside, x, y), inside) / (high - low))


def labels_to_reach(fractions: Numbers, scores: Numbers, target: float) -> float | None:
    """Return the smallest labeled fraction at which the linearly interpolated curve reaches
    ``target``.

    The result is ``None`` if it is never reached, and the first fraction if the curve
    starts there.  For errors, negate scores and target.

    >>> round(labels_to_reach([0.1, 0.2, 0.3], [0.5, 0.7, 0.9], target=0.8), 4)
    0.25
    """
    x, y = _curve(fractions, scores)
    if y[0] >= target:
        return float(x[0])
    for i in range(1, len(x)):
        if y[i] >= target:
            part = (target - y[i - 1]) / (y[i] - y[i - 1])
            return float(x[i - 1] + part * (x[i] - x[i - 1]))
    return None


def labels_saved(
    curve: Mapping[float, float], baseline: Mapping[float, float]
) -> float | None:
    """Return the fraction of labels saved to reach the baseline's final score: 1 - f /
    f_baseline.

    Both curves map labeled fraction to score, and both f are `labels_to_reach` of the last
    score of ``baseline``.  It is negative if more labels are needed, and ``None`` if the
    score is never reached, or if the baseline has it from the first: its f is then unknown.

    >>> round(labels_saved({0.1: 0.5, 0.2: 0.9}, baseline={0.1: 0.5, 0.2: 0.7}), 4)
    0.25
    """
    target = baseline[max(baseline)]
    needed = labels_to_reach(list(curve), list(curve.values()), target)
    needed_by_baseline = labels_to_reach(list(baseline), list(baseline.values()), target)
    if needed is None or needed_by_baseline in (None, min(baseline)):
        return None
    return 1 - needed / needed_by_baseline


UNSCORED: Scores = {
    "accuracy": None,
    "balanced_accuracy": None,
    "per_class": None,
    "mse": None,
    "per_site": None,
    "accuracy_weighted": None,
    "variance": None,
    "worst_tenth": None,
}
"""Scores without any test counts."""


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


def label_accuracies(outputs: Tensor, true: Tensor) -> list[float | None]:
    """Return the accuracy of each label over examples with a known answer; ``None`` without any.

    outputs: (n, L) log-odds; true: (n,) numbers of `fallow.core.multilabel`.

    >>> label_accuracies(torch.tensor([[2.0, -1.0], [1.0, 3.0]]), torch.tensor([1, 6]))
    [0.5, 1.0]
    """
    digits = read_digits(true, outputs.shape[1])
    is_known = digits != UNKNOWN
    is_right = (outputs > 0).long() == digits
    n_right = (is_right & is_known).sum(0).double()
    n_known = is_known.sum(0)
    shares = (n_right / n_known.clamp_min(1)).tolist()
    known = n_known.tolist()
    return [share if n else None for share, n in zip(shares, known, strict=True)]


def of_answers(outputs: Mapping[SiteId, Tensor], true: Mapping[SiteId, Tensor]) -> Scores:
    """Return the scores of predictions of several labels, by site, as `of_accuracy` does.

    outputs: (m_k, L) log-odds; true: (m_k,) numbers of `fallow.core.multilabel`.  Accuracies are
    means over labels; ``balanced_accuracy`` averages both answers of each label first.
    """
    per_site: dict[SiteId, float | None] = {}
    for name, of_site in outputs.items():
        per_site[name] = _mean_of(label_accuracies(of_site, true[name]))
    scores = [score for score in per_site.values() if score is not None]
    together = torch.cat([*outputs.values()])
    all_true = torch.cat([*true.values()])
    per_label = label_accuracies(together, all_true)
    return {
        **UNSCORED,
        "accuracy": fmean(scores),
        "balanced_accuracy": balance_answers(together, all_true),
        "per_class": per_label,
        "per_site": per_site,
        "accuracy_weighted": _mean_of(per_label),
        "variance": pvariance([100 * score for score in scores]),
        "worst_tenth": worst_tenth(scores),
    }


def balance_answers(outputs: Tensor, true: Tensor) -> float | None:
    """Return the mean over labels of the mean accuracy of present and of absent answers."""
    digits = read_digits(true, outputs.shape[1])
    of_labels: list[float | None] = []
    for label in range(outputs.shape[1]):
        is_known = digits[:, label] != UNKNOWN
        guess = (outputs[is_known, label] > 0).long()
        truth = digits[is_known, label]
        score = balanced_accuracy(guess, truth, 2) if len(truth) else None
        of_labels.append(score)
    return _mean_of(of_labels)


def _mean_of(scores: Sequence[float | None]) -> float | None:
    """Return the mean of the known scores; ``None`` without any."""
    known = [score for score in scores if score is not None]
    return fmean(known) if known else None


def worst_tenth(scores: Sequence[float]) -> float:
    """Return the mean of the lowest tenth of the scores, at least one site.

    >>> worst_tenth([0.9, 0.5, 0.7, 0.8]), worst_tenth([0.1, 0.3, *[1.0] * 9])
    (0.5, 0.2)
    """
    return fmean(sorted(scores)[: math.ceil(len(scores) / 10)])
