"""Test the model of Dawid and Skene and the agreement of annotators."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fallow.deployment.annotator_statistics import (
    Annotation,
    estimate_classes,
    fit_dawid_skene,
    krippendorff_alpha,
    measure_agreement,
)

PLANTED = torch.tensor(
    [
        [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]],
        [[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.1, 0.1, 0.8]],
        [[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]],
        [[1.0, 0.0, 0.0], [0.7, 0.3, 0.0], [0.7, 0.0, 0.3]],  # prefers class 0
        [[0.1, 0.9, 0.0], [0.9, 0.1, 0.0], [0.0, 0.1, 0.9]],  # swaps two classes
    ],
    dtype=torch.float64,
)
"""Confusion matrices of five annotators, (m, c, c)."""


def draw_labels(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return classes (n,) and counts of labels (m, n, c) by the planted annotators."""
    draw = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.5, 0.3, 0.2])
    classes = torch.multinomial(shares, n, replacement=True, generator=draw)
    labels = [torch.multinomial(p[classes], 1, generator=draw).squeeze(1) for p in PLANTED]
    counts = torch.nn.functional.one_hot(torch.stack(labels), 3)
    return classes, counts.double()


# -- classes -------------------------------------------------------------------------------


def test_planted_confusion_matrices_are_recovered() -> None:
    classes, counts = draw_labels(3000, seed=0)
    estimate = fit_dawid_skene(counts)
    assert float((estimate.confusion - PLANTED).abs().max()) < 0.06
    assert float((estimate.shares - torch.tensor([0.5, 0.3, 0.2])).abs().max()) < 0.03
    correct = float((estimate.probabilities.argmax(1) == classes).double().mean())
    by_majority = float((counts.sum(0).argmax(1) == classes).double().mean())
    assert correct > by_majority + 0.1
    assert torch.allclose(estimate.confusion.sum(2), torch.ones(5, 3, dtype=torch.float64))


def test_it_is_the_majority_for_annotators_who_differ_in_nothing() -> None:
    """Each annotator has the same share of the labels, whatever the votes of a task."""
    votes: list[tuple[int, ...]] = []
    for vote in product((0, 1), repeat=5):
        times = {5: 8, 4: 2, 3: 1}[max(sum(vote), 5 - sum(vote))]
        votes += times * [vote]
    labels = [
        Annotation(task, str(annotator), value)
        for task, vote in enumerate(votes)
        for annotator, value in enumerate(vote)
    ]
    majority = {task: int(sum(vote) > 2) for task, vote in enumerate(votes)}
    assert estimate_classes(labels, 2) == majority


def test_an_example_without_labels_of_most_annotators_is_estimated() -> None:
    classes, counts = draw_labels(600, seed=1)
    seen = torch.rand(5, 600, 1, generator=torch.Generator().manual_seed(2)) < 0.6
    seen[0] = True  # every example has a label
    labels = [
        Annotation(task, str(annotator), float(counts[annotator, task].argmax()))
        for annotator, task in (seen.squeeze(2)).nonzero().tolist()
    ]
    estimate = estimate_classes(labels, 3)
    hits = [estimate[task] == value for task, value in enumerate(classes.tolist())]
    assert np.mean(hits) > 0.9


# -- agreement -----------------------------------------------------------------------------


def make_labels(values: npt.NDArray[np.float64]) -> list[Annotation]:
    """Return labels from a table (annotators, tasks) with NaN for missing ones."""
    return [
        Annotation(task, f"annotator {annotator}", float(values[annotator, task]))
        for annotator, task in product(*map(range, values.shape))
        if not np.isnan(values[annotator, task])
    ]


@pytest.mark.parametrize("level", ["nominal", "interval"])
@pytest.mark.parametrize("annotators", [2, 4])
def test_alpha_equals_the_reference_implementation(level: str, annotators: int) -> None:
    krippendorff = pytest.importorskip("krippendorff")
    draw = np.random.default_rng(annotators)
    is_interval = level == "interval"
    for _ in range(20):
        truth = draw.integers(0, 4, 30)
        values = np.where(
            draw.random((annotators, 30)) < 0.7, truth, draw.integers(0, 4, 30)
        )
        values = values.astype(float)
        if is_interval:
            values += 1000 + draw.normal(size=values.shape)
        values[draw.random(values.shape) < 0.2] = np.nan
        wanted = krippendorff.alpha(values, level_of_measurement=level)
        agreement = measure_agreement(make_labels(values), is_interval=is_interval)
        assert agreement.alpha == pytest.approx(wanted, abs=1e-10)
        assert agreement.examples == int(((~np.isnan(values)).sum(0) > 1).sum())


def test_what_has_no_coefficient_is_left_out() -> None:
    same = make_labels(np.ones((2, 4)))
    assert krippendorff_alpha(same, is_interval=False) is None
    agreement = measure_agreement(same, is_interval=False)
    assert agreement.describe() == [
        "Agreement of annotators on 4 examples: no coefficient, because all labels are equal."
    ]
    three = make_labels(np.array([[0.0, 1], [0, 1], [1, 1]]))
    agreement = measure_agreement(three, is_interval=False)
    assert agreement.examples == 2
    single = make_labels(np.array([[0.0, 1.0]]))
    assert measure_agreement(single, is_interval=False).describe() == []
