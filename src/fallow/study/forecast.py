"""Forecast of a study's scores with more labels, and of the labels to reach a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field, with_config

from fallow.experiment.curve import (
    FEWEST,
    SOURCES,
    WORDS,
    Curve,
    CurvePoint,
    Source,
    choose_source,
    fit_curve,
    mean_scores,
)
from fallow.storage.validation import STRICT, Endless
from fallow.study.records import StudyRecords

if TYPE_CHECKING:
    from fallow.experiment.record import Record

By = Literal["auto", "test", "evaluation", "left-out"]
MORE = 200.0
"""Default number of additional labels."""
MAX_LABELS = 5_000.0
"""Maximum number of labels in a forecast."""
WIDE = 0.1
"""An interval of a gain that is wider than this and contains negative values is
uninformative.
"""


@final
@dataclass(frozen=True)
class Gain:
    """Expected gain of more labels."""

    more: Annotated[float, Field(description="number of additional labels")]
    gain: Annotated[
        float,
        Field(description="gain in accuracy, or reduction of the mean squared error"),
    ]
    low: Annotated[float, Field(description="lower bound of the 95 % interval")]
    high: Annotated[float, Field(description="upper bound of the 95 % interval")]

    @property
    def is_told(self) -> bool:
        """Whether the scores are informative enough for a statement."""
        return self.low > 0 or self.high - self.low <= WIDE


@final
@dataclass(frozen=True)
class Reach:
    """Number of additional labels to reach a target score; may be infinite."""

    target: Annotated[float, Field(description="accuracy in [0, 1], or error")]
    more: Annotated[
        Endless, Field(description="number of additional labels; null: infinite")
    ]
    low: Annotated[Endless, Field(description="lower bound of the 95 % interval")]
    high: Annotated[Endless, Field(description="upper bound of the 95 % interval")]


@final
@dataclass(frozen=True)
class Forecast:
    """Extrapolated learning curve of a query strategy.

    Attributes
    ----------
    by : str
        Source of the scores.
    points : tuple of CurvePoint
        Scores to which the curve is fitted.
    curve : Curve or None
        Fitted curve; None with too few scores.
    higher_is_better : bool
        Whether scores are accuracies.
    """

    strategy: str
    by: Source
    points: tuple[CurvePoint, ...]
    curve: Curve | None
    higher_is_better: bool = True

    @property
    def labels(self) -> float:
        """Number of labels at the last score."""
        return self.points[-1].labels

    @property
    def score(self) -> float:
        """Last measured score."""
        error = self.points[-1].error
        if self.higher_is_better:
            return 1 - error
        return error

    def gain(self, more: float = MORE) -> Gain | None:
        """Return the expected gain of ``more`` labels, or None without a curve."""
        if self.curve is None:
            return None
        outcome = self.curve.gain(more)
        return Gain(more, outcome.middle, outcome.low, outcome.high)

    def reach(self, target: float) -> Reach | None:
        """Return the number of additional labels to reach ``target``, or None without a curve.

        ``target`` is an accuracy (0 to 1) or an error.  Raises ValueError for an impossible target.
        """
        error = target
        if self.higher_is_better:
            error = 1 - target
        if not 0 <= error < 1 and self.higher_is_better:
            raise ValueError(
                f"the score to reach is {target:g}; an accuracy is above 0 and at most 1 (100 %)"
            )
        if not error >= 0:
            raise ValueError(f"the score to reach is {target:g}; an error is at least 0")
        if self.curve is None:
            return None
        result = self.curve.labels_to(error)
        return Reach(target, result.middle, result.low, result.high)

    def sentences(self, more: float = MORE, target: float | None = None) -> tuple[str, ...]:
        """Describe the forecast."""
        if not self.points:
            return (f"There is no score on {WORDS[self.by]} yet, so there is no forecast.",)
        gain = self.gain(more)
        if gain is None:
            return (
                f"Too few scores for a forecast: {len(self.points)} so far (on "
                f"{WORDS[self.by]}), and at least {FEWEST} cycles are needed.",
            )
        parts = [self._describe_gain(gain)]
        if target is not None:
            reach = self.reach(target)
            if reach is not None:
                parts.append(self._describe_reach(reach))
        if self.by == "left-out":
            parts.append(
                "Leave-one-out scores are measured on selected examples: if the strategy "
                "prefers hard examples, they are lower than on others and may stay "
                "lower. An evaluation set (evaluation_fraction = 0.1) has no such bias."
            )
        return tuple(parts)

    def result(self, more: float = MORE, target: float | None = None) -> ForecastResult:
        """Return the forecast for ``more`` labels and a target score."""
        reach = None if target is None else self.reach(target)
        return ForecastResult(
            strategy=self.strategy,
            by=self.by,
            labels=tuple(point.labels for point in self.points),
            sentences=self.sentences(more, target),
            gain=self.gain(more),
            reach=reach,
        )

    def _describe_gain(self, gain: Gain) -> str:
        bounds = [gain.low, gain.high]
        if not self.higher_is_better:
            bounds.reverse()  # an error changes by minus the gain
        ends = f"[{', '.join(map(self._points, bounds))}]"
        many = f"Another {gain.more:,.0f} labels"
        if not gain.is_told:
            return (
                f"{many}: the scores on {WORDS[self.by]} are inconclusive; any change "
                f"within {ends}{self._unit} fits them."
            )
        signed = self._points(gain.gain, is_signed=True)
        return f"{many}: {signed}{self._unit} {ends} (95 %, by {WORDS[self.by]})."

    def _describe_reach(self, reach: Reach) -> str:
        named = f"{reach.target:g}"
        if self.higher_is_better:
            named = f"{100 * reach.target:g} %"
        if reach.high <= 0:
            return f"{named} is already reached."
        ends = f"[{_describe_labels(reach.low)}, {_describe_labels(reach.high)}]"
        if reach.low > MAX_LABELS:
            return f"To reach {named}: not within {MAX_LABELS:,.0f} labels."
        if reach.more > MAX_LABELS:
            return f"To reach {named}: probably not within {MAX_LABELS:,.0f} labels {ends}."
        more = _describe_labels(reach.more)
        return f"To reach {named}: {more} more labels {ends}."

    def _points(self, gain: float, is_signed: bool = False) -> str:
        """Describe a gain in points of accuracy, or as a change of the error."""
        if self.higher_is_better:
            value = f"{100 * gain:.1f}"
            sign = "+" if is_signed and gain >= 0 else ""
        else:
            value = f"{-gain:.3g}"
            sign = ""
        return f"{sign}{value}".replace("-", "−")

    @property
    def _unit(self) -> str:
        if self.higher_is_better:
            return " points"
        return " in the mean squared error"


@with_config(STRICT)
@dataclass(frozen=True)
class ForecastResult:
    """Forecast for a query strategy, for a number of labels and a target score."""

    strategy: Annotated[str, Field(description="query strategy")]
    by: Annotated[Source, Field(description="source of the scores")]
    labels: Annotated[
        tuple[float, ...], Field(description="numbers of labels with a score")
    ]
    sentences: Annotated[tuple[str, ...], Field(description="forecast in words")]
    gain: Annotated[
        Gain | None, Field(description="gain of more labels; null with too few scores")
    ]
    reach: Annotated[
        Reach | None, Field(description="labels to the target score; null without one")
    ]


@with_config(STRICT)
@dataclass(frozen=True)
class ForecastResults:
    """Forecasts of a study."""

    forecasts: Annotated[
        tuple[ForecastResult, ...], Field(description="forecast of each query strategy")
    ]


def _describe_labels(more: float) -> str:
    """Describe a number of labels, or that it exceeds `MAX_LABELS`.

    >>> _describe_labels(639.6), _describe_labels(float("inf"))
    ('640', 'not within 5,000')
    """
    if more > MAX_LABELS:
        return f"not within {MAX_LABELS:,.0f}"
    return f"{more:,.0f}"


def forecast_runs(
    strategy: str,
    runs: Sequence[Sequence[Record]],
    by: By = "auto",
    *,
    higher_is_better: bool = True,
) -> Forecast:
    """Extrapolate the mean learning curve of several runs of a query strategy."""
    values = {source: mean_scores(runs, source) for source in SOURCES}
    source = choose_source(values) if by == "auto" else by
    points = values[source]
    curve = None
    if len({point.labels for point in points}) >= FEWEST:
        curve = fit_curve(points)
    return Forecast(strategy, source, tuple(points), curve, higher_is_better)


def forecast_study(study: StudyRecords, by: By = "auto") -> list[Forecast]:
    """Extrapolate the learning curve of each query strategy of a study."""
    values = []
    for strategy in study.strategies:
        runs = [cell.records for cell in study.of(strategy) if cell.records]
        if runs:
            is_accuracy = not study.is_regression
            values.append(forecast_runs(strategy, runs, by, higher_is_better=is_accuracy))
    return values
