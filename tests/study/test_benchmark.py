"""Areas, tests and verdicts of the benchmark against worked examples and SciPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fallow.settings.config import ExperimentConfig
from fallow.study.benchmark import (
    COLUMNS,
    area,
    areas,
    judge,
    not_worse,
    read_scores,
    task_lines,
)
from tests.report.conftest import write_study


def frame_of(scores: dict[str, dict[int, list[float]]], labels: list[int]) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for strategy, seeds in scores.items():
        for seed, values in seeds.items():
            for cycle, (n, score) in enumerate(zip(labels, values, strict=False), 1):
                rows.append(
                    ("t", "d", strategy, seed, cycle, n, score, score, score / 2, 7)
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_the_area_is_a_mean_over_the_logarithm_of_labels() -> None:
    # computed by hand: two trapezoids of widths ln 2 and ln 4, which is 2 ln 2
    assert area([10, 20, 80], [0.2, 0.4, 0.8]) == pytest.approx((0.3 + 2 * 0.6) / 3)
    assert area([5, 50], [0.5, 0.5]) == 0.5


@pytest.mark.parametrize("labels", [[10], [0, 10], [10, 10], [20, 10]])
def test_budgets_that_span_nothing_are_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="give at least two budgets, ascending"):
        area(labels, [0.5] * len(labels))


@pytest.mark.parametrize("shift", [-0.01, 0.0, 0.004])
def test_not_worse_is_the_one_sided_t_test(shift: float) -> None:
    d = (np.random.default_rng(1).normal(shift, 0.005, 12)).tolist()
    expected = stats.ttest_1samp(d, -0.003, alternative="greater").pvalue
    assert not_worse(d) == pytest.approx(expected)


def test_equal_differences_have_the_limit() -> None:
    assert not_worse([0.0, 0.0]) == 0.0
    assert not_worse([-0.003, -0.003]) == 1.0
    with pytest.raises(ValueError, match="run at least two seeds"):
        not_worse([0.1])


def test_a_seed_that_is_not_finished_has_no_area() -> None:
    whole = {"a": {0: [0.5, 0.7], 1: [0.5]}, "b": {0: [0.1, 0.1]}}
    assert areas(frame_of(whole, [10, 100])) == {"a": {0: 0.6}, "b": {0: 0.1}}


def test_a_site_may_run_out_of_rows_under_some_seeds() -> None:
    frame = frame_of({"a": {0: [0.5, 0.7], 1: [0.5, 0.7]}}, [10, 100])
    frame.loc[(frame["seed"] == 1) & (frame["cycle"] == 2), "labels"] = 90
    assert set(areas(frame)["a"]) == {0, 1}


SEEDS = range(8)


def simulations(lift: float) -> dict[str, dict[int, list[float]]]:
    """Three strategies over eight seeds; "mine" is about ``lift`` above "margin"."""
    noise = np.random.default_rng(3).normal(0, 0.0005, len(SEEDS))
    base = {seed: 0.6 + 0.01 * seed for seed in SEEDS}
    return {
        "random": {seed: [base[seed] - 0.1, base[seed]] for seed in SEEDS},
        "margin": {seed: [base[seed], base[seed] + 0.1] for seed in SEEDS},
        "mine": {
            seed: [base[seed] + lift + noise[seed], base[seed] + 0.1 + lift + noise[seed]]
            for seed in SEEDS
        },
    }


@pytest.mark.parametrize(
    ("lift", "outcome"),
    [(0.01, "better"), (-0.02, "worse"), (0.0, "not worse")],
)
def test_the_verdict_is_against_the_best_rival(lift: float, outcome: str) -> None:
    result = areas(frame_of(simulations(lift), [10, 1000]))
    verdict = judge("t", result, "mine", ["random", "margin"])
    assert verdict is not None
    assert verdict.rival == "margin"
    assert verdict.outcome == outcome
    assert verdict.difference == pytest.approx(lift, abs=0.001)
    # Holm: twice the exact p against the competitor, the smaller of two equal ones
    if lift > 0:
        assert verdict.holm == pytest.approx(2 * 2 * 0.5**8)


def test_few_seeds_leave_it_open() -> None:
    few = {strategy: {0: s[0], 1: s[1]} for strategy, s in simulations(0.01).items()}
    few["mine"][1] = [0.9, 0.9]
    verdict = judge("t", areas(frame_of(few, [10, 1000])), "mine", ["margin"])
    assert verdict is not None
    assert verdict.outcome == "open"
    assert judge("t", areas(frame_of(few, [10, 1000])), "mine", ["mine"]) is None


def test_the_lines_of_a_task_are_the_best_first() -> None:
    lines = task_lines(frame_of(simulations(0.01), [100, 1000]), "random", classes=10)
    assert [line.strategy for line in lines] == ["mine", "margin", "random"]
    last = lines[-1]
    assert (last.difference, last.holm, last.seeds) == (None, None, 8)
    assert last.few == pytest.approx(0.535)  # 100 labels are 10 per class
    assert last.worst == pytest.approx(last.final / 2)
    assert lines[1].difference == pytest.approx(0.1)


def test_scores_are_read_from_studies_with_what_was_computed(tmp_path: Path) -> None:
    study = write_study(
        tmp_path / "one", strategies=("random", "entropy", "bound:all-labels")
    )
    frame = read_scores([(ExperimentConfig("task"), study)])
    assert tuple(frame.columns) == COLUMNS
    assert set(frame["strategy"]) == {"random", "entropy"}
    assert frame.groupby("strategy")["digest"].nunique().tolist() == [1, 1]
    assert frame["digest"].nunique() == 2
    assert (frame["worst_class"] < frame["accuracy"]).all()
    assert not math.isnan(frame["accuracy"].sum())
