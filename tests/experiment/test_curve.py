"""Learning curves fitted to a few scores, and their limits."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fallow.core.events import Event
from fallow.experiment.curve import (
    FEWEST,
    Curve,
    CurvePoint,
    choose_source,
    decide_stop,
    fit_curve,
    mean_scores,
    scores_of,
)
from fallow.experiment.event_log import EventLog
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.stopping import StopRule, parse_stop
from tests.measurements.test_evaluation_set import places

LABELS = (60.0, 160.0, 260.0, 360.0, 460.0, 560.0, 660.0)


def true_error(labels: float) -> float:
    return float(0.05 + 0.4 * (labels / 60) ** -0.8)


def scores(noise: float, seed: int = 0, deviation: float | None = None) -> list[CurvePoint]:
    """Return scores with noise around a known curve."""
    draw = np.random.default_rng(seed)
    return [
        CurvePoint(n, true_error(n) + noise * float(draw.standard_normal()), deviation)
        for n in LABELS
    ]


def test_scores_on_a_curve_find_it_again() -> None:
    curve = fit_curve(scores(0.0))
    gain = curve.gain(400)
    assert gain.middle == pytest.approx(true_error(660) - true_error(1060), abs=0.004)
    assert gain.low < gain.middle < gain.high
    needed = 60 * (0.4 / (0.09 - 0.05)) ** (1 / 0.8) - 660  # solved by hand
    assert curve.labels_to(0.09).middle == pytest.approx(needed, rel=0.3)


def test_a_curve_goes_through_what_was_seen() -> None:
    curve = fit_curve(scores(0.0))
    for point in curve.points[1:]:
        assert curve.error(point.labels).middle == pytest.approx(point.error, abs=0.01)


@pytest.mark.parametrize("deviation", [None, 0.01])
def test_intervals_hold_the_expected_gain_of_most_runs(deviation: float | None) -> None:
    inside = []
    for seed in range(60):
        curve = fit_curve(scores(0.01, seed, deviation))
        gain = curve.gain(200)
        inside.append(gain.low <= true_error(660) - true_error(860) <= gain.high)
    assert np.mean(inside) >= 0.93


def test_the_more_scores_scatter_the_less_is_known() -> None:
    sure = fit_curve(scores(0.001)).gain(200)
    unsure = fit_curve(scores(0.03)).gain(200)
    assert unsure.high - unsure.low > 3 * (sure.high - sure.low)


def test_a_deviation_that_is_known_widens_what_looks_smooth_by_chance() -> None:
    smooth = fit_curve(scores(0.0)).error(660)
    few = fit_curve(scores(0.0, deviation=0.05)).error(660)
    assert few.high - few.low > 2 * (smooth.high - smooth.low)


def test_the_same_scores_say_the_same_again_in_any_order() -> None:
    points = scores(0.01)
    one = fit_curve(points).gain(100)
    assert fit_curve(points[::-1]).gain(100) == one


def test_labels_for_an_error_that_is_reached_already_or_never_are_0_or_infinite() -> None:
    curve = fit_curve(scores(0.0))
    assert curve.labels_to(0.9).high == 0
    assert curve.labels_to(0.0).middle == math.inf
    nearer = curve.labels_to(0.1).middle
    assert nearer < curve.labels_to(0.08).middle


def test_fewer_scores_than_a_curve_needs_are_refused() -> None:
    with pytest.raises(ValueError, match=f"3 scores .* at least {FEWEST} are needed"):
        fit_curve(scores(0.0)[:3])
    with pytest.raises(ValueError, match="1 scores after different numbers"):
        fit_curve([CurvePoint(60, 0.2)] * 9)
    with pytest.raises(ValueError, match="above 0"):
        fit_curve([CurvePoint(n, 0.2) for n in (0.0, 1.0, 2.0, 3.0)])


def test_a_flat_curve_is_sure_of_little_gain_and_a_steep_one_of_much() -> None:
    flat = fit_curve([CurvePoint(n, 0.1 + 0.0005 * (k % 2)) for k, n in enumerate(LABELS)])
    steep = fit_curve([CurvePoint(n, 30 / n) for n in LABELS])
    assert flat.chance_of_less(100, 0.003) > 0.95
    assert steep.chance_of_less(100, 0.003) < 0.5


def test_errors_of_0_and_of_any_unit_make_a_curve() -> None:
    assert math.isfinite(fit_curve([CurvePoint(n, 0.0) for n in LABELS]).gain(100).high)
    small = fit_curve(scores(0.005))
    large = fit_curve([CurvePoint(p.labels, 1000 * p.error) for p in scores(0.005)])
    assert large.gain(100).middle == pytest.approx(1000 * small.gain(100).middle, rel=0.02)


def test_a_curve_of_one_draw_is_as_its_formula_says() -> None:
    points = (CurvePoint(100, 0.5), CurvePoint(200, 0.4))
    one = np.ones(1)
    curve = Curve(points, floor=0.1 * one, scale=0.4 * one, exponent=one, scatter=0.0 * one)
    assert curve.error_at(400)[0] == pytest.approx(0.1 + 0.4 / 4)
    assert curve.gain(200).middle == pytest.approx(0.3 - 0.2)
    assert curve.labels_to(0.2).middle == pytest.approx(200)


SOON = "when another 5 labels bring less than 50 points with 90 % confidence"
NEVER = "when another 50 labels bring less than 0.001 points with 99 % confidence"
EXPERIMENT = ExperimentConfig(
    "stopping",
    partition=Spec("iid"),
    sites=3,
    strategy=Spec("margin"),
    initial=2,
    budget=2,
    cycles=6,
    rounds=1,
    score_rounds=1,
    bounds=(),
    evaluation_fraction=0.4,
    stop=SOON,
)


def record(cycle: int, **more: object) -> Record:
    result: Record = {
        "cycle": cycle,
        "labeled": 60 + 100 * cycle,
        "accuracy": None,
        "mse": None,
        "final": True,
    }
    result.update(more)  # type: ignore[typeddict-item]
    return result


def run_of(config: ExperimentConfig, event_log: EventLog | None = None) -> ExperimentRun:
    event_log = event_log or EventLog()
    return ExperimentRun(environment_of(config, 0, places(), event_log), event_log)


def test_a_run_stops_after_the_first_scores_that_make_a_curve_and_says_why() -> None:
    output: list[Event] = []
    run = run_of(EXPERIMENT)
    run.notify = output.append
    records = run.go()
    assert [record["cycle"] for record in records] == [0, 1, 2, 3]
    assert "stopped" not in records[2]
    why = records[3]["stopped"]
    assert why.startswith(
        "another 5 labels bring less than 50 points with 100 % confidence"
    )
    assert "by 4 scores on test examples up to 24 labels; the criterion is 90 %" in why
    assert [event["reason"] for event in output if event["event"] == "enough"] == [why]
    step = run.event_log.load_step("3/stop")
    assert step is not None
    assert (step["is_over"], step["reason"]) == (True, why)
    waiting = run.event_log.load_step("0/stop")
    assert waiting is not None
    assert waiting["reason"] == "1 scores so far, and a forecast needs 4"


@pytest.mark.long
def test_a_rule_that_never_holds_changes_nothing() -> None:
    stopped = run_of(replace(EXPERIMENT, stop=NEVER)).go()
    usual = run_of(replace(EXPERIMENT, stop=None)).go()
    assert [item["accuracy"] for item in stopped] == [
        record["accuracy"] for record in usual
    ]
    assert len(usual) == 7
    assert all("stopped" not in record for record in [*stopped, *usual])


def test_what_was_decided_holds_after_a_restart(tmp_path: Path) -> None:
    """Check that a decision persists even if the rule would now decide differently."""
    event_log = EventLog(tmp_path / "event_log.sqlite")
    first = run_of(EXPERIMENT, event_log).go()
    again = run_of(replace(EXPERIMENT, stop=NEVER), event_log).go()
    assert len(again) == len(first) == 4
    assert again[-1]["stopped"] == first[-1]["stopped"]


def test_no_label_is_bought_after_a_stop() -> None:
    run = run_of(EXPERIMENT)
    records = run.go()
    assert records[-1]["labeled"] == 3 * (2 + 3 * 2)
    sites = run.simulation.members.values()  # type: ignore[attr-defined]
    assert sum(len(site.labels) for site in sites) == 24


def test_without_test_rows_audits_decide_and_without_these_left_out_rows() -> None:
    evaluation = {
        "score": 0.9,
        "low": 0.8,
        "high": 1.0,
        "drawn": 9,
        "chosen": 9,
        "rows": 90,
    }
    rule = parse_stop(SOON)
    by_evaluation = [record(k, evaluation_set=evaluation, left_out=0.5) for k in range(5)]
    assert "the evaluation set" in decide_stop(rule, by_evaluation)["reason"]
    by_rows = [record(k, left_out=0.5) for k in range(5)]
    assert "leave-one-out" in decide_stop(rule, by_rows)["reason"]
    assert "0 scores so far" in decide_stop(rule, [record(k) for k in range(5)])["reason"]


def test_it_stops_where_the_curve_is_flat_and_goes_on_where_it_is_steep() -> None:
    rule = StopRule(100, 0.003, 0.9)
    flat = [record(k, accuracy=0.95 + 0.0002 * (k % 2)) for k in range(8)]
    steep = [record(k, accuracy=1 - 30 / (60 + 100 * k)) for k in range(8)]
    assert decide_stop(rule, flat)["is_over"]
    result = decide_stop(rule, steep)
    assert not result["is_over"]
    assert result["chance"] is not None
    assert result["chance"] < 0.5


def test_scores_of_several_rounds_and_of_several_runs_are_means() -> None:
    rounds = [record(0, accuracy=0.5), record(0, accuracy=0.7), record(1, accuracy=0.9)]
    rounds[1]["labeled"] = rounds[0]["labeled"]
    (first, second) = scores_of(rounds, "test")
    assert [first.error, second.error] == pytest.approx([0.4, 0.1])
    other = [record(0, accuracy=0.8), record(1, accuracy=0.9), record(2, accuracy=1.0)]
    means = mean_scores([rounds, other], "test")
    assert [point.error for point in means] == [pytest.approx(0.3), pytest.approx(0.1)]
    retained = [record(0, accuracy=0.1), record(0, accuracy=0.9)]
    retained[0]["final"] = False
    assert scores_of(retained, "test")[0].error == pytest.approx(0.1)


def test_errors_of_numbers_are_taken_as_they_are() -> None:
    (point,) = scores_of([record(0, mse=0.25)], "test")
    assert point.error == 0.25
    evaluation = {
        "score": 2.0,
        "low": 1.0,
        "high": 3.0,
        "drawn": 9,
        "chosen": 0,
        "rows": 90,
    }
    (drawn,) = scores_of([record(0, mse=0.25, evaluation_set=evaluation)], "evaluation")
    assert drawn.error == 2.0
    # t with 8 degrees of freedom, from a table
    assert drawn.deviation == pytest.approx(1.0 / 2.306, rel=1e-3)


def test_the_first_scores_that_make_a_curve_are_taken() -> None:
    few = scores_of([record(0, accuracy=0.5)], "test")
    many = scores_of([record(k, left_out=0.5) for k in range(4)], "left-out")
    assert choose_source({"test": few, "evaluation": [], "left-out": many}) == "left-out"
    assert choose_source({"test": few, "evaluation": [], "left-out": []}) == "test"
    assert choose_source({"test": [], "evaluation": [], "left-out": []}) == "test"


def test_a_budget_that_is_chosen_from_nothing_has_no_cycle_to_stop_after() -> None:
    with pytest.raises(ValueError, match="there is no cycle to stop after"):
        is_one_pass(ExperimentConfig("a", strategy=Spec("fale"), stop=SOON))


def test_a_record_without_its_labels_or_its_score_is_no_point_of_a_curve() -> None:
    whole = record(0, accuracy=0.5)
    assert len(scores_of([whole], "test")) == 1
    assert scores_of([record(0, accuracy=0.5, labeled=None)], "test") == []
    scoreless = record(0)
    del scoreless["mse"]
    assert scores_of([scoreless], "test") == []
