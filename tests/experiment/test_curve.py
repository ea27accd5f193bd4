"""What a curve through a few scores says, and what it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fallow.experiment.curve import FEWEST, Curve, Point, fit_curve

LABELS = (60.0, 160.0, 260.0, 360.0, 460.0, 560.0, 660.0)


def true_error(labels: float) -> float:
    return float(0.05 + 0.4 * (labels / 60) ** -0.8)


def scores(noise: float, seed: int = 0, deviation: float | None = None) -> list[Point]:
    """Scores that scatter about a known curve."""
    draw = np.random.default_rng(seed)
    return [
        Point(n, true_error(n) + noise * float(draw.standard_normal()), deviation)
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
        fit_curve([Point(60, 0.2)] * 9)
    with pytest.raises(ValueError, match="above 0"):
        fit_curve([Point(n, 0.2) for n in (0.0, 1.0, 2.0, 3.0)])


def test_a_flat_curve_is_sure_of_little_gain_and_a_steep_one_of_much() -> None:
    flat = fit_curve([Point(n, 0.1 + 0.0005 * (k % 2)) for k, n in enumerate(LABELS)])
    steep = fit_curve([Point(n, 30 / n) for n in LABELS])
    assert flat.chance_of_less(100, 0.003) > 0.95
    assert steep.chance_of_less(100, 0.003) < 0.5


def test_errors_of_0_and_of_any_unit_make_a_curve() -> None:
    assert math.isfinite(fit_curve([Point(n, 0.0) for n in LABELS]).gain(100).high)
    small = fit_curve(scores(0.005))
    large = fit_curve([Point(p.labels, 1000 * p.error) for p in scores(0.005)])
    assert large.gain(100).middle == pytest.approx(1000 * small.gain(100).middle, rel=0.02)


def test_a_curve_of_one_draw_is_as_its_formula_says() -> None:
    points = (Point(100, 0.5), Point(200, 0.4))
    one = np.ones(1)
    curve = Curve(points, floor=0.1 * one, scale=0.4 * one, exponent=one, scatter=0.0 * one)
    assert curve.error_at(400)[0] == pytest.approx(0.1 + 0.4 / 4)
    assert curve.gain(200).middle == pytest.approx(0.3 - 0.2)
    assert curve.labels_to(0.2).middle == pytest.approx(200)
