"""Forecasts of a study as numbers, text and plot."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fallow.experiment.curve import Curve, CurvePoint
from fallow.experiment.record import Record
from fallow.report.figures.study import draw_forecast
from fallow.study.forecast import Forecast, Gain, forecast_runs


def run_of(scores: list[float], name: str = "accuracy", **more: object) -> list[Record]:
    """Return a run whose cycles have these scores, with 100 more labels in each."""
    values = []
    for cycle, score in enumerate(scores):
        record: Record = {"cycle": cycle, "labeled": 100 * (cycle + 1)}
        record.update({"accuracy": None, "mse": None, **more, name: score})  # type: ignore[typeddict-item]
        values.append(record)
    return values


def certain(higher_is_better: bool = True) -> Forecast:
    """Return a forecast by the single curve 0.1 + 0.4 (n / 100)^-1 at 200 labels."""
    points = (CurvePoint(100, 0.5), CurvePoint(200, 0.3))
    one = np.ones(1)
    curve = Curve(points, 0.1 * one, 0.4 * one, one, 0 * one)
    return Forecast("random", "test", points, curve, higher_is_better)


RISING = [0.6, 0.75, 0.81, 0.845, 0.868, 0.884]


def test_a_gain_and_labels_to_a_target_in_words() -> None:
    assert certain().sentences(200, 0.8) == (
        "Another 200 labels: +10.0 points [10.0, 10.0] (95 %, by test examples).",
        "To reach 80 %: 200 more labels [200, 200].",
    )


def test_errors_fall_and_are_no_points() -> None:
    (gain, reach) = certain(higher_is_better=False).sentences(200, 0.2)
    assert gain.startswith(
        "Another 200 labels: −0.1 in the mean squared error [−0.1, −0.1]"
    )
    assert reach == "To reach 0.2: 200 more labels [200, 200]."


def test_the_bounds_of_a_change_of_an_error_ascend() -> None:
    errors = [0.6, 0.42, 0.33, 0.27, 0.24, 0.22]
    records = [run_of(errors, name="mse")]
    forecast = forecast_runs("random", records, higher_is_better=False)
    sentence = forecast.sentences(200)[0].replace("−", "-")
    low, high = map(float, sentence.partition("[")[2].partition("]")[0].split(","))
    gain = forecast.gain(200)
    assert gain is not None and low < high
    assert (low, high) == pytest.approx((-gain.high, -gain.low), rel=0.01)


def test_what_is_reached_already_or_never() -> None:
    assert certain().sentences(1, 0.6)[1] == "60 % is already reached."
    assert certain().sentences(1, 0.95)[1] == "To reach 95 %: not within 5,000 labels."
    far = certain().sentences(1, 0.8999)[1]
    assert far == "To reach 89.99 %: not within 5,000 labels."


def test_an_end_beyond_what_anybody_labels_is_no_number() -> None:
    forecast = forecast_runs("random", [run_of([0.6, 0.75, 0.79, 0.84, 0.86, 0.885])])
    (_, reach) = forecast.sentences(200, 0.93)
    assert "not within 5,000]" in reach
    result = forecast.reach(0.93)
    assert result is not None
    assert result.high == math.inf


def test_too_few_cycles_are_said_to_be_too_few() -> None:
    few = forecast_runs("random", [run_of(RISING[:3])])
    assert few.sentences() == (
        "Too few scores for a forecast: 3 so far (on test examples), and at least 4 cycles are needed.",
    )
    assert (few.gain(), few.reach(0.9), draw_forecast(few)) == (None, None, None)
    none = forecast_runs("random", [run_of(RISING)], "evaluation")
    assert none.sentences()[0].startswith("There is no score on the evaluation set yet")


def test_a_score_before_the_first_label_is_no_point_of_the_curve() -> None:
    records = run_of([0.1, *RISING])
    records[0]["labeled"] = 0
    forecast = forecast_runs("random", [records])
    assert [point.labels for point in forecast.points] == [200, 300, 400, 500, 600, 700]
    assert forecast.curve is not None


def test_scores_that_cannot_tell_are_said_not_to() -> None:
    wild = forecast_runs("random", [run_of([0.5, 0.9, 0.4, 0.8, 0.5])])
    assert "are inconclusive; any change within [−" in wild.sentences()[0]
    assert not Gain(200, 0.1, -0.3, 0.5).is_told
    assert Gain(200, 0.01, -0.001, 0.02).is_told


def test_left_out_rows_come_with_a_warning_of_their_bias() -> None:
    run = run_of(RISING)
    for record, score in zip(run, RISING, strict=True):
        record["left_out"] = score
        record["accuracy"] = None
    forecast = forecast_runs("margin", [run])
    assert forecast.by == "left-out"
    assert "if the strategy prefers hard examples" in forecast.sentences()[-1]


def test_seeds_are_averaged_as_far_as_all_have_come() -> None:
    runs = [run_of(RISING), run_of([score + 0.02 for score in RISING[:5]])]
    forecast = forecast_runs("random", runs)
    assert len(forecast.points) == 5
    assert forecast.points[0].error == pytest.approx(1 - 0.61)


def test_a_target_that_no_score_can_be_is_refused() -> None:
    for target in (1.5, -0.1, 0.0):
        with pytest.raises(ValueError, match="an accuracy is above 0 and at most 1"):
            certain().reach(target)
    with pytest.raises(ValueError, match="an error is at least 0"):
        certain(higher_is_better=False).reach(-1.0)


def test_a_picture_has_every_score_and_reaches_as_far_as_was_asked() -> None:
    forecast = forecast_runs("random", [run_of(RISING)])
    figure = draw_forecast(forecast, 300, 0.95)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_ylabel() == "Accuracy, %"
    drawn = [
        line for line in axes.lines if line.get_marker() == "o" and line.get_alpha() != 0
    ]
    shown = [float(line.get_ydata()[0]) for line in drawn]  # type: ignore[index,arg-type]
    assert shown == pytest.approx([100 * score for score in RISING])
    ends = [float(np.max(np.asarray(line.get_xdata(), float))) for line in axes.lines]
    assert max(ends) == 900
