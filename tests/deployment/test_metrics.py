"""Test which sums of additional metrics are disclosed (values: `test_equal.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.deployment.test_counts import (
    count_bins_of_many,
    count_hits,
    count_scores_of_many,
    sum_errors,
)
from fallow.engine.score_metrics import BINS, count_scores


def _draw(rows_of: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    true = torch.repeat_interleave(torch.arange(len(rows_of)), torch.tensor(rows_of))
    return torch.randn(len(true), len(rows_of), generator=generator), true


def test_a_class_with_few_examples_has_an_empty_histogram() -> None:
    outputs, true = _draw([9, 6, 2])
    counts = count_scores_of_many(outputs, true, 5)
    assert counts.flatten(1).sum(1).tolist() == [17.0, 0.0, 0.0]
    assert torch.equal(counts[0], count_scores(outputs, true)[0].double())


def test_a_class_that_nearly_all_examples_have_is_not_shown_either() -> None:
    outputs, true = _draw([12, 2])
    assert count_scores_of_many(outputs, true, 5).sum() == 0
    assert count_scores_of_many(outputs, true, 2).shape == (2, 2, 2, BINS)


def test_too_few_examples_have_no_sums() -> None:
    values = torch.arange(4.0)
    sums = sum_errors(values + 1, values, 5, has_metrics=True)
    assert all(not torch.as_tensor(value).any() for value in sums.values())
    assert sum_errors(values + 1, values, 4, has_metrics=True)["squares"] == 4.0


def test_too_few_examples_have_no_counts_for_prediction_sets_and_small_classes_count() -> (
    None
):
    outputs, true = _draw([9, 6, 2])
    for least, expected in ((17, 17.0), (18, 0.0)):
        hits = count_hits(outputs.argmax(1), true, 3, least)
        assert (
            count_bins_of_many(hits, outputs, true, False).sum() == expected == hits["rows"]
        )
