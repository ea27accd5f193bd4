"""Statistics of several annotations per example: classes and agreement."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value", bound=Hashable)
SMOOTHING = 0.01
"""Added to each count of a confusion matrix, so that no probability is zero."""
ITERATIONS = 200
"""Largest number of EM iterations."""
CONVERGED = 1e-8
"""Largest change of a probability at the end of the iterations."""
TIE = 1e-6
"""Difference between probabilities up to which two classes are a tie."""


class Annotation(NamedTuple):
    """Label of an example by one annotator."""

    task: int
    who: str
    value: float


class Estimate(NamedTuple):
    """Estimate of the model of Dawid and Skene.

    ``probabilities`` (n, c) of the classes of each example, ``shares`` (c,) of the classes, and
    ``confusion`` (m, c, c): for each annotator, the probability of a label (last axis) given the
    class.
    """

    probabilities: Tensor
    shares: Tensor
    confusion: Tensor


def fit_dawid_skene(counts: Tensor) -> Estimate:
    """Estimate classes and confusion matrices of annotators by expectation maximization.

    A. P. Dawid and A. M. Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM
    Algorithm", Journal of the Royal Statistical Society C 28 (1), 1979, pages 20 to 28, equations
    (2.3) to (2.5).

    ``counts`` (m, n, c): how often each of m annotators gave each of n examples each of c labels.
    Every example needs a label. The iterations start with the shares of the labels of each example.
    """
    counts = counts.double()
    votes = counts.sum(0)  # (n, c)
    probabilities = votes / votes.sum(1, keepdim=True)
    for _ in range(ITERATIONS):
        confusion = torch.einsum("nc,mnl->mcl", probabilities, counts) + SMOOTHING  # (2.3)
        confusion /= confusion.sum(2, keepdim=True)
        shares = probabilities.mean(0)  # (2.4)
        scores = torch.einsum("mnl,mcl->nc", counts, confusion.log()) + shares.log()
        before = probabilities
        probabilities = scores.softmax(1)  # (2.5)
        if float((probabilities - before).abs().max()) < CONVERGED:
            break
    return Estimate(probabilities, shares, confusion)


def estimate_classes(
    annotations: Sequence[Annotation], classes: int
) -> dict[int, int | None]:
    """Return the most probable class of each task (`fit_dawid_skene`), or None for a tie.

    >>> labels = [Annotation(0, "ann", 1), Annotation(0, "bob", 1), Annotation(0, "cy", 0)]
    >>> estimate_classes(labels, 2), estimate_classes(labels[1:], 2)
    ({0: 1}, {0: None})
    """
    tasks = _number(label.task for label in annotations)
    annotators = _number(label.who for label in annotations)
    counts = torch.zeros(len(annotators), len(tasks), classes)
    for label in annotations:
        counts[annotators[label.who], tasks[label.task], int(label.value)] += 1
    best = fit_dawid_skene(counts).probabilities.topk(2, dim=1)
    estimated: dict[int, int | None] = {}
    for task, value, (first, second) in zip(
        tasks, best.indices[:, 0].tolist(), best.values.tolist(), strict=True
    ):
        estimated[task] = value
        if first - second < TIE:
            estimated[task] = None
    return estimated


def _number(values: Iterable[Value]) -> dict[Value, int]:
    """Return the position of each value, in the order of first occurrences."""
    return {value: position for position, value in enumerate(dict.fromkeys(values))}
