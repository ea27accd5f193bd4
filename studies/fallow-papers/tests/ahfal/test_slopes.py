from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.experiment.metrics_counts import count_variation
from fallow.study.records import StudyRecords
from fallow_papers.ahfal.families import Family
from fallow_papers.ahfal.slopes import least_squares, slopes
from tests.report.conftest import rewrite
from tests.report.reading import read_study

FALL = {"entropy": -10.0, "logo": -20.0}


@pytest.fixture
def falling(make_study: Callable[..., Path]) -> Callable[[int], StudyRecords]:
    """Return noisy class accuracies 90 - 10 CV (local model) and 90 - 20 CV (both)."""

    def accuracies(row: dict[str, Any], folder: Path) -> dict[str, list[float]]:
        cv = count_variation(json.loads((folder / "partition.json").read_text())["matrix"])
        noise = np.random.default_rng(row["seed"]).normal(0, 0.3, len(cv))
        points = []
        for spread, error in zip(cv, noise, strict=True):
            assert spread is not None
            points.append(90 + FALL[row["strategy"]] * spread + error)
        return {"per_class": [point / 100 for point in points]}

    def make(seeds: int) -> StudyRecords:
        root = make_study(
            strategies=("entropy", "logo"), reference="entropy", seeds=seeds, cycles=1
        )
        rewrite(root, accuracies)
        return read_study(root)

    return make


def test_the_line_is_numpys_least_squares() -> None:
    gen = np.random.default_rng(0)
    x = gen.random(30)
    y = gen.random(30)
    assert least_squares(x, y) == pytest.approx(tuple(np.polyfit(x, y, 1)))


def test_equal_spreads_have_no_slope() -> None:
    slope, intercept = least_squares(np.full(3, 0.1), np.array([1.0, 2.0, 3.0]))
    assert slope == 0.0 and intercept == pytest.approx(2)


def test_known_slopes_are_found_and_their_intervals_hold_them(
    falling: Callable[[int], StudyRecords],
) -> None:
    fitted = slopes([falling(8)])
    assert fitted is not None
    expected: dict[Family, float] = {"local": -10, "both": -20}
    for kind, slope in expected.items():
        line = fitted.lines[kind]
        assert line.slope == pytest.approx(slope, abs=0.5)
        assert line.interval is not None
        assert line.interval.low <= line.slope <= line.interval.high
        assert line.interval.high - line.interval.low < 2
        assert line.points == 8 * 4
    steeper, interval = fitted.steeper["both"]
    # the noise is equal in both and cancels
    assert steeper == pytest.approx(-10, abs=1e-6)
    assert interval is not None
    assert interval.low == pytest.approx(-10, abs=1e-6) == interval.high


def test_the_same_records_give_the_same_interval(
    falling: Callable[[int], StudyRecords],
) -> None:
    study = falling(6)
    assert slopes([study]) == slopes([study])


def test_few_runs_have_slopes_without_an_interval(
    falling: Callable[[int], StudyRecords],
) -> None:
    fitted = slopes([falling(4)])
    assert fitted is not None
    assert fitted.lines["local"].interval is None
    assert fitted.steeper["both"][1] is None


def test_a_seed_that_one_family_lacks_is_in_no_line(
    falling: Callable[[int], StudyRecords],
) -> None:
    study = falling(6)
    cells = tuple(c for c in study.cells if (c.strategy, c.seed) != ("logo", 2))
    outcome = slopes([type(study)(study.path, study.study, cells)])
    assert outcome is not None and outcome.runs == 5
    assert outcome.lines["local"].points == 5 * 4
