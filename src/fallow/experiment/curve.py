"""Learning curves: scores of past cycles, their extrapolation, and the stopping criterion.

The error is modeled as a power law of the number of labels, e(n) = e0 + b (n / n1)^-c, with a floor e0
that more labels do not lower.  The accuracy is 1 - e(n).

Notes
-----
A few scores do not determine three parameters.  The fit is therefore Bayesian: each curve of a grid of
floors and exponents is weighted by its likelihood, integrated over b and the noise.  If scores are
uninformative, curves of all kinds remain and intervals are wide.  Resampling a best fit would hide
this, since it passes through any three points.

Scores on evaluation sets, which differ between cycles, have a known standard deviation, a lower
bound of the noise.  The noise of scores on the test set, which is the same in each cycle, is
estimated from the residuals.  The power law may change with the number of labels.  The variance of
old scores therefore grows with the number of labels in between.  `FUTURE`, the deviation of later
models from the curve, was measured on MNIST only; studies/forecast.md evaluates it on other
datasets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np
import numpy.typing as npt

from fallow.core.streams import seed_of
from fallow.experiment.finished import FinishedStop
from fallow.measurements.evaluation_set import deviation_of
from fallow.settings.stopping import StopRule

if TYPE_CHECKING:
    from fallow.experiment.record import Record

Array = npt.NDArray[np.float64]

FEWEST = 4
"""Minimum number of scores for a curve. Fewer do not determine its curvature."""
DRAWS = 4000  # number of sampled curves
EXPONENTS = np.geomspace(0.1, 2.5, 28)  # c
# e0, in units of the smallest error
FLOORS = np.concatenate([[0.0], np.linspace(0.02, 0.98, 33)])
NOISES = np.geomspace(0.003, 0.3, 15)  # standard deviations, in units of the largest error
ABOVE = np.geomspace(0.8, 2.5, 8)  # the same, in units of the deviation of a score
FUTURE = 1.2  # deviation of a model from its curve, in units of the noise of scores
SCATTER = 0.03  # the same as a share of the error, if scores do not determine it


@dataclass(frozen=True)
class CurvePoint:
    """Error (above 0) after a number of labels, with its standard deviation if known."""

    labels: float
    error: float
    deviation: float | None = None


@dataclass(frozen=True)
class ExpectedValue:
    """Expected value with its interval; for errors, negative changes are improvements."""

    middle: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Curve:
    """Posterior sample of learning curves.

    Attributes
    ----------
    floor, scale, exponent : ndarray of shape (draws,)
        Parameters of e0 + b (n / first)^-c.
    scatter : ndarray of shape (draws,)
        Standard deviation of a model around its curve.

    >>> points = [CurvePoint(100.0 * k, 0.1 + 0.2 * k**-1.0) for k in range(1, 9)]
    >>> curve = fit_curve(points)
    >>> 0.01 < curve.gain(800).middle < 0.015
    True
    """

    points: tuple[CurvePoint, ...]
    floor: Array
    scale: Array
    exponent: Array
    scatter: Array

    @property
    def labels(self) -> float:
        """Current number of labels."""
        return self.points[-1].labels

    def error_at(self, labels: float) -> Array:
        """Return the error of each curve after a number of labels, (draws,)."""
        ratio = labels / self.points[0].labels
        result: Array = self.floor + self.scale * ratio ** (-self.exponent)
        return result

    @cached_property
    def _off(self) -> Array:
        """Sample the deviation of a later model from its curve, (draws,)."""
        draw = np.random.default_rng(seed_of(0, "off the curve"))
        result: Array = draw.standard_normal(len(self.floor))
        return self.scatter * result

    def gain_on_curve(self, more: float) -> Array:
        """Return the reduction of the error by ``more`` labels on each curve, (draws,)."""
        result: Array = self.error_at(self.labels) - self.error_at(self.labels + more)
        return result

    def gain(self, more: float, level: float = 0.95) -> ExpectedValue:
        """Return the reduction of the error of this model by ``more`` labels, noise included."""
        return _interval(self.gain_on_curve(more) + self._off, level)

    def error(self, labels: float, level: float = 0.95) -> ExpectedValue:
        """Return the error after a number of labels."""
        return _interval(self.error_at(labels) + self._off, level)

    def chance_of_less(self, more: float, gain: float) -> float:
        """Return the probability that ``more`` labels reduce the error by less than ``gain``."""
        return float((self.gain_on_curve(more) < gain).mean())

    def labels_to(self, error: float, level: float = 0.95) -> ExpectedValue:
        """Return the number of additional labels to reach ``error``.

        It is infinite if the error is never reached, and 0 if it has been reached.
        """
        # the deviation of a score from its curve shifts all later scores
        above = error - self.floor - self._off
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            times = (self.scale / above) ** (1 / self.exponent)
        first = self.points[0].labels
        needed = np.where(above > 0, times * first - self.labels, np.inf)
        return _interval(np.maximum(needed, 0.0), level)


def fit_curve(points: Sequence[CurvePoint]) -> Curve:
    """Fit learning curves to scores.

    ``points`` are sorted by labels, at least `FEWEST` with different numbers of labels.  Raises
    ValueError for fewer.
    """
    ordered = tuple(sorted(points, key=lambda point: point.labels))
    numbers = {point.labels for point in ordered}
    if len(numbers) < FEWEST or min(numbers) <= 0:
        raise ValueError(
            f"{len(numbers)} scores after different numbers of labels, above 0, are too "
            f"few for a curve; at least {FEWEST} are needed"
        )
    y = np.array([max(point.error, 0.0) for point in ordered])  # (t,)
    n = np.array([point.labels for point in ordered])
    is_known = all(point.deviation is not None for point in ordered)
    if is_known:
        base = np.array([max(point.deviation or 0.0, 1e-6) for point in ordered])  # (t,)
        noises = ABOVE  # (g,)
    else:
        base = np.sqrt(n[-1] / n)
        noises = NOISES * max(float(y.max()), 1e-6)
    floors = FLOORS * max(float(y.min()), 1e-6)  # (f,)

    x = (n / n[0])[:, None] ** -EXPONENTS  # (t, c)
    weight = base**-2  # (t,) of scores, where the noise is 1
    xx = weight @ x**2  # (c,)
    z = y[:, None] - floors  # (t, f)
    xz = (weight[:, None] * x).T @ z  # (c, f)
    zz = weight @ z**2  # (f,)
    best = xz / xx[:, None]  # (c, f): b
    lost = np.maximum(zz - xz * best, 0.0)  # (c, f): squares that are left
    # b has a flat prior above 0: a normal distribution cut there is summed over
    spread = noises[:, None] / np.sqrt(xx)  # (g, c) of b
    # (g, c, f)
    likely = (
        -lost / (2 * noises[:, None, None] ** 2)
        - len(y) * np.log(noises)[:, None, None]
        + np.log(spread)[:, :, None]
        + _log_normal(best / spread[:, :, None])
    )

    draw = np.random.default_rng(seed_of(0, "curves"))
    share = np.exp(likely - likely.max())
    cells = draw.choice(share.size, size=DRAWS, p=(share / share.sum()).ravel())
    g, c, f = np.unravel_index(cells, share.shape)
    scatter = FUTURE * noises[g]
    if is_known:
        scatter = np.full(DRAWS, SCATTER * float(y[-1]))
    return Curve(
        points=ordered,
        floor=floors[f],
        scale=_draw_above_0(best[c, f], spread[g, c], draw),
        exponent=EXPONENTS[c],
        scatter=scatter,
    )


def _log_normal(x: Array) -> Array:
    """Return the logarithm of the standard normal distribution function."""
    from scipy.special import log_ndtr

    result: Array = log_ndtr(x)
    return result


def _draw_above_0(mean: Array, spread: Array, draw: np.random.Generator) -> Array:
    """Sample from a normal distribution truncated to positive values, by inversion."""
    from scipy.special import ndtr, ndtri

    below = ndtr(-mean / spread)
    at = below + (1 - below) * draw.random(len(mean))
    above_0: Array = mean + spread * ndtri(np.clip(at, 1e-300, 1 - 1e-16))
    return np.maximum(above_0, 0.0)


def _interval(values: Array, level: float) -> ExpectedValue:
    """Return the median and the central interval with probability ``level``."""
    ends = [0.5, (1 - level) / 2, (1 + level) / 2]
    # infinite values are not averaged: one of them is used
    middle, low, high = np.quantile(values, ends, method="closest_observation")
    return ExpectedValue(middle=float(middle), low=float(low), high=float(high))


Source = Literal["test", "evaluation", "left-out"]
"""Examples on which a score is measured."""
SOURCES: tuple[Source, ...] = get_args(Source)
WORDS: dict[Source, str] = {
    "test": "test examples",
    "evaluation": "the evaluation set",
    "left-out": "labeled examples (leave-one-out)",
}


def scores_of(records: Sequence[Record], source: Source) -> list[CurvePoint]:
    """Return the points of one run, one for each cycle with a score.

    If several rounds of a cycle count, their mean is used.
    """
    by_cycle: dict[int, list[Record]] = {}
    for record in records:
        if record.get("final", True):
            by_cycle.setdefault(record["cycle"], []).append(record)
    points = []
    for cycle in sorted(by_cycle):
        point = _score_of(by_cycle[cycle], source)
        if point is not None:
            points.append(point)
    return points


def mean_scores(runs: Iterable[Sequence[Record]], source: Source) -> list[CurvePoint]:
    """Return the mean points of several runs of one strategy, for cycles that all runs reached."""
    all_points = [scores_of(records, source) for records in runs]
    all_points = [points for points in all_points if points]
    if not all_points:
        return []
    cycles = min(len(points) for points in all_points)
    means = []
    for at in range(cycles):
        points = [points[at] for points in all_points]
        deviations = [point.deviation for point in points]
        deviation = None
        known = [sd for sd in deviations if sd is not None]
        if len(known) == len(points):
            deviation = math.sqrt(sum(sd**2 for sd in known)) / len(points)
        means.append(
            CurvePoint(
                labels=fmean(point.labels for point in points),
                error=fmean(point.error for point in points),
                deviation=deviation,
            )
        )
    return means


def choose_source(points: Mapping[Source, Sequence[CurvePoint]]) -> Source:
    """Return the default source of scores: the first in `SOURCES` with enough points."""
    for source in SOURCES:
        if len(points[source]) >= FEWEST:
            return source
    for source in SOURCES:
        if points[source]:
            return source
    return SOURCES[0]


def _score_of(records: Sequence[Record], source: Source) -> CurvePoint | None:
    """Return the score of a cycle from the records that count, or None.

    A model without labels is not a point of a learning curve.
    """
    last = records[-1]
    bought = last.get("labeled")
    if not bought:
        return None
    labels = float(bought)
    is_classes = last.get("accuracy") is not None
    if source == "evaluation":
        evaluation = last.get("evaluation_set")
        if evaluation is None or evaluation["score"] is None or evaluation["high"] is None:
            return None
        error = evaluation["score"]
        if last.get("mse") is None:
            error = 1 - error
        deviation = deviation_of(evaluation, is_share=last.get("mse") is None)
        return CurvePoint(labels, error, deviation)
    if source == "left-out":
        left_out = last.get("left_out")
        if left_out is None:
            return None
        error = left_out
        if last.get("mse") is None:
            error = 1 - left_out
        return CurvePoint(labels, error)
    name: Literal["accuracy", "mse"] = "mse"
    if is_classes:
        name = "accuracy"
    scores = [record.get(name) for record in records]
    known = [score for score in scores if score is not None]
    if not known:
        return None
    error = fmean(known)
    if is_classes:
        error = 1 - error
    return CurvePoint(labels, error)


def decide_stop(rule: StopRule, records: Sequence[Record]) -> FinishedStop:
    """Decide whether a run stops after its latest score, and give the reason.

    ``records`` are those of the run up to the last trained cycle.

    Notes
    -----
    Scores are those on the test set if at least `FEWEST` cycles have one, otherwise those on the
    evaluation set, otherwise leave-one-out scores.  The decision uses the expected learning curve
    without the noise of the next model, since a criterion with this noise would never be met.
    """
    points = {source: scores_of(records, source) for source in SOURCES}
    source = choose_source(points)
    known = len({point.labels for point in points[source]})
    if known < FEWEST:
        why = f"{known} scores so far, and a forecast needs {FEWEST}"
        return {"is_over": False, "chance": None, "reason": why}
    chance = fit_curve(points[source]).chance_of_less(rule.more, rule.gain)
    outlook = (
        f"another {rule.more} labels bring less than {100 * rule.gain:g} points with "
        f"{100 * chance:.0f} % confidence, by {len(points[source])} scores on {WORDS[source]} "
        f"up to {points[source][-1].labels:.0f} labels"
    )
    is_over = chance >= rule.confidence
    wanted = f"{100 * rule.confidence:g} %"
    why = f"{outlook}; the criterion is {wanted}"
    return {"is_over": is_over, "chance": chance, "reason": why}
