"""Test which scores of real sites people are shown."""

from __future__ import annotations

import torch

from fallow.core.types import Values
from fallow.deployment.coordinator.scores import score_counts


def test_a_score_over_fewer_than_five_examples_counts_and_is_not_shown() -> None:
    replies: dict[str, Values] = {
        "basel": {
            "rows": 4.0,
            "hits": 1.0,
            "class_rows": torch.tensor([3.0, 1.0]),
            "class_hits": torch.tensor([1.0, 0.0]),
        },
        "bern": {
            "rows": 8.0,
            "hits": 6.0,
            "class_rows": torch.tensor([5.0, 3.0]),
            "class_hits": torch.tensor([4.0, 2.0]),
        },
    }
    scores = score_counts(replies)
    assert scores["per_site"] == {"basel": None, "bern": 0.75}
    assert scores["accuracy"] == 0.5
    assert scores["per_class"] == [5 / 8, None]
    assert scores["balanced_accuracy"] == (5 / 8 + 2 / 4) / 2


def test_an_error_over_fewer_than_five_examples_counts_and_is_not_shown() -> None:
    replies: dict[str, Values] = {
        "basel": {"rows": 4.0, "squares": 8.0},
        "bern": {"rows": 5.0, "squares": 5.0},
    }
    scores = score_counts(replies, variance=2.0)
    assert scores["per_site"] == {"basel": None, "bern": 0.5}
    assert scores["mse"] == 0.75
