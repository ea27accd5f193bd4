"""Figure of an extrapolated learning curve."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fallow.report.figures.style import FAINT, INK, STYLE, add_tip, new_figure
from fallow.study.forecast import MORE, Forecast

PLACES = 60
"""Number of points at which a curve is drawn."""
COLOR = "#0b5a94"


@mpl.rc_context(STYLE)
def draw_forecast(
    forecast: Forecast, more: float = MORE, target: float | None = None
) -> Figure | None:
    """Plot scores, the median curve and the 95 % band up to ``more`` labels, and ``target``.

    Returns None without a curve.
    """
    curve = forecast.curve
    if curve is None:
        return None
    figure, (axes,) = new_figure(3.4)
    labels = np.linspace(forecast.points[0].labels, forecast.labels + more, PLACES)
    result = [curve.error(label) for label in labels]
    middle = _scores(forecast, [item.middle for item in result])
    low = _scores(forecast, [interval.low for interval in result])
    high = _scores(forecast, [interval.high for interval in result])
    axes.fill_between(labels, low, high, color=COLOR, alpha=0.15, linewidth=0)
    axes.plot(labels, middle, color=COLOR)
    scores = _scores(forecast, [point.error for point in forecast.points])
    for point, score in zip(forecast.points, scores, strict=True):
        axes.plot(point.labels, score, "o", color=INK, markersize=4)
        add_tip(axes, point.labels, score, f"{point.labels:,.0f} labels: {score:.4g}")
    axes.axvline(forecast.labels, color=FAINT, linewidth=0.8, linestyle=":")
    if target is not None:
        (level,) = _scores(forecast, [_error_of(forecast, target)])
        axes.axhline(level, color=FAINT, linewidth=0.8, linestyle="--")
    axes.set_xlabel("Number of labels, including the initial labeled set")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    title = "Test error (MSE)"
    if forecast.higher_is_better:
        title = "Accuracy, %"
    axes.set_ylabel(title)
    return figure


def _error_of(forecast: Forecast, score: float) -> float:
    if forecast.higher_is_better:
        return 1 - score
    return score


def _scores(forecast: Forecast, errors: list[float]) -> list[float]:
    """Return scores as they are displayed: accuracies in per cent."""
    if not forecast.higher_is_better:
        return errors
    return [100 * (1 - error) for error in errors]
