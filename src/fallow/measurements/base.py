"""Interface of measurements of the outputs for test examples.

A measurement is one file of this package.  Sites send its sums beside the test counts, and the
result follows from their totals.  `fallow.experiment.measuring` calls it, in simulations and at real
sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar, runtime_checkable

from pydantic import Field, with_config
from torch import Tensor
from typing_extensions import TypedDict

from fallow.core.composites import Parts
from fallow.core.types import SiteId, Values
from fallow.core.values import Kind, SenderFacts
from fallow.engine.score_metrics import Task
from fallow.storage.validation import STRICT, Number

Result = TypeVar("Result")
"""Value of a measurement, as a record stores it."""


@dataclass(frozen=True)
class ScoredExamples:
    """Outputs of a model for the test examples of a site, and their labels.

    Attributes
    ----------
    outputs : Tensor
        (n, C) logits, or (n,) predicted values in the unit of the target.
    true : Tensor
        (n,) class ids, values, or answers to several labels.
    n_labels : int
        Number of labels per example, if there are several; otherwise 0.
    """

    outputs: Tensor
    true: Tensor
    n_labels: int = 0


class Measurement(Protocol[Result]):
    """Measurement of the outputs for test examples, from sums over sites."""

    @property
    def name(self) -> str:
        """Field of a record with the result."""
        ...

    @property
    def disclosure(self) -> str:
        """Description of the sums that a site sends."""
        ...

    @property
    def sums(self) -> Mapping[str, Kind]:
        """Declaration of the sums that a site sends."""
        ...

    def measure(self, examples: ScoredExamples) -> Values:
        """Return the sums of a site."""
        ...

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        """Explain why sums are impossible beside the test counts, or return None."""
        ...

    def fold(self, total: Values, of_sites: Mapping[SiteId, Values]) -> Result:
        """Return the result.

        total: sums and test counts over all sites.  of_sites: those of each site, or none if the
        coordinator sees totals only.
        """
        ...

    def describe(self, result: Result, classes: Sequence[str]) -> Iterator[str]:
        """Yield the lines of a model card."""
        ...


@runtime_checkable
class KeptMeasurement(Measurement[Result], Protocol[Result]):
    """Measurement with values that sites keep with the final model, for its predictions."""

    @property
    def kept(self) -> Mapping[str, Kind]:
        """Declaration of these values."""
        ...

    def keep(self, result: Result) -> Values:
        """Return the values."""
        ...

    def restore(self, kept: Values) -> object:
        """Return the part of the result that a model file stores, from the values."""
        ...


# -- measurements that the setting ``measure`` names ----------------------------------------------


@with_config(STRICT)
class IntervalScores(TypedDict):
    """A value with the bounds of its 95 % interval; None where it is not known."""

    value: Annotated[Number | None, Field(description="value")]
    low: Annotated[Number | None, Field(description="lower bound of the interval")]
    high: Annotated[Number | None, Field(description="upper bound of the interval")]


@runtime_checkable
class NamedMeasurement(Measurement[dict[str, IntervalScores]], Protocol):
    """Measurement that the setting ``measure`` names; its class has no required parameters.

    The result has values by title, in the unit that ``note`` states.
    """

    @property
    def title(self) -> str:
        """Heading of the result in a report."""
        ...

    @property
    def note(self) -> str:
        """Explanation below the table of a report."""
        ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Tasks that it measures."""
        ...

    @property
    def needs_sites(self) -> bool:
        """Whether it needs the sums of each site, which secure aggregation hides."""
        ...


def describe_intervals(title: str, result: Mapping[str, IntervalScores]) -> Iterator[str]:
    """Yield a line with all values that are known.

    >>> scores: IntervalScores = {"value": 0.5, "low": 0.25, "high": 0.75}
    >>> list(describe_intervals("Fairness", {"worst tenth": scores}))
    ['Fairness: worst tenth 0.5 (95 % interval 0.25 to 0.75)']
    """
    shown = [
        f"{name} {show_interval(scores['value'], scores['low'], scores['high'])}"
        for name, scores in result.items()
        if scores["value"] is not None
    ]
    if shown:
        yield f"{title}: {', '.join(shown)}"


def show_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return a value with its 95 % interval."""
    if value is None:
        return "not known"
    if low is None or high is None:
        return f"{value:.3g}"
    return f"{value:.3g} (95 % interval {low:.3g} to {high:.3g})"
