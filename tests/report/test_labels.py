from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fallow.experiment.record import Record
from fallow.report import labels
from tests.report.conftest import rewrite
from tests.report.reading import read_study

ROW = {"labeled_per_class": [6, 2], "labeled_per_site": {"a": [6, 0], "b": [0, 2]}}
BY_HAND = {
    "Rarer classes, %": 25.0,
    "Entropy": 0.811278,
    "Gini": 0.25,
    "KL, nats": (np.log(8 / 6) + np.log(8 / 2)) / 2,
    "Total variation": (1 / 4 + 3 / 4) / 2,
    "Empty cells": 2.0,
}


def test_the_balance_of_labels_by_hand() -> None:
    assert labels.measure_balance(cast(Record, ROW)) == pytest.approx(BY_HAND, abs=1e-6)
    assert list(labels.DIGITS) == list(BY_HAND)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"labeled_per_class": None, "labeled_per_site": {"a": [8]}},
        {"labeled_per_class": [0, 0], "labeled_per_site": {"a": [0, 0]}},
    ],
)
def test_what_was_not_measured_has_no_balance(row: dict[str, Any]) -> None:
    assert labels.measure_balance(cast(Record, row)) == {}


def label_shares(root: Path, share: Callable[[str], int]) -> None:
    """Write each query's labels: ``share(query)`` percent of the rarer of two classes."""

    def labeled(row: dict[str, Any], folder: Path) -> dict[str, Any]:
        return {"labeled_per_class": [100 - share(row["strategy"]), share(row["strategy"])]}

    rewrite(root, labeled)


def test_minority_share_and_score_correlate_over_strategies(
    make_study: Callable[..., Path],
) -> None:
    strategies = ("random", "entropy", "ahfal", "logo", "random@training=kcfu")
    root = make_study(strategies=strategies, seeds=3)
    shares = {"ahfal": 40, "entropy": 30, "logo": 20, "random": 10}
    label_shares(root, lambda q: shares.get(q, 50))
    correlation = labels.minority_and_score(read_study(root))
    assert correlation is not None
    assert (
        correlation.strategies == 4
    )  # a strategy with another training algorithm is excluded
    assert correlation.spearman == pytest.approx(1)
    assert correlation.pearson > 0.9
    assert len(correlation.by_seed) == 3


def test_equal_shares_and_few_strategies_have_no_correlation(
    make_study: Callable[..., Path], study_dir: Path
) -> None:
    root = make_study(strategies=("random", "entropy", "ahfal", "logo"), seeds=2)
    label_shares(root, lambda q: 30)
    assert labels.minority_and_score(read_study(root)) is None
    assert labels.minority_and_score(read_study(study_dir)) is None
