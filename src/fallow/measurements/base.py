"""Interface of measurements of the outputs for test examples.

A measurement is one file of this package.  Sites send its sums beside the test counts, and the
result follows from their totals.  `fallow.experiment.measuring` calls it, in simulations and at real
sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

from fallow.core.composites import Parts
from fallow.core.types import SiteId, Values
from fallow.core.values import Kind, SenderFacts

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
        (n,) class ids or values.
    """

    outputs: Tensor
    true: Tensor


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
