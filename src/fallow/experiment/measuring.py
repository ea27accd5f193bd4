"""Measurements of the outputs for test examples, as a configuration requests them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fallow.core.types import SiteId, Values
from fallow.core.values import Kind
from fallow.measurements.base import KeptMeasurement, Measurement, ScoredExamples
from fallow.measurements.metrics import Metrics
from fallow.measurements.prediction_sets import PredictionSets

if TYPE_CHECKING:
    from fallow.experiment.record import Measured
    from fallow.settings.config import ExperimentConfig

Measurements = Sequence[Measurement[Any]]
"""Measurements of a study; the results have different types."""


def find_measurements(
    config: ExperimentConfig, *, is_regression: bool
) -> tuple[Measurement[Any], ...]:
    """Return the measurements that a configuration requests."""
    requested: list[Measurement[Any]] = []
    if config.metrics:
        requested.append(Metrics(config.metrics, is_regression))
    if config.coverage is not None:
        requested.append(PredictionSets(config.coverage, is_regression))
    return tuple(requested)


def measure_examples(measurements: Measurements, examples: ScoredExamples) -> Values:
    """Return the sums of all measurements at a site."""
    sums: Values = {}
    for measurement in measurements:
        sums |= measurement.measure(examples)
    return sums


def add_up(replies: Mapping[SiteId, Values]) -> Values:
    """Sum replies over sites by key, in float64."""
    total: dict[str, Tensor] = {}
    for reply in replies.values():
        for name, value in reply.items():
            contribution = torch.as_tensor(value, dtype=torch.float64)
            if name in total:
                contribution = total[name] + contribution
            total[name] = contribution
    return dict(total)


def fold_sums(
    measurements: Measurements, total: Values, of_sites: Mapping[SiteId, Values]
) -> Measured:
    """Return the results by name.

    total: sums and test counts over all sites.  of_sites: those of each site, if known.
    """
    results = {item.name: item.fold(total, of_sites) for item in measurements}
    return cast("Measured", results)


def describe_results(
    measurements: Measurements, results: Mapping[str, Any], classes: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a model card about the results that are known."""
    for measurement in measurements:
        if results.get(measurement.name) is not None:
            yield from measurement.describe(results[measurement.name], classes)


# -- values that sites keep with the final model --------------------------------------------------


def list_kept(measurements: Measurements) -> dict[str, Kind]:
    """Return the declaration of the values that sites keep."""
    kinds: dict[str, Kind] = {}
    for measurement in measurements:
        if isinstance(measurement, KeptMeasurement):
            kinds |= measurement.kept
    return kinds


def choose_kept(measurements: Measurements, results: Mapping[str, Any]) -> Values:
    """Return the values that sites keep, from the results of the last round."""
    kept: Values = {}
    for measurement in measurements:
        if isinstance(measurement, KeptMeasurement):
            kept |= measurement.keep(results[measurement.name])
    return kept


def restore_kept(measurements: Measurements, kept: Values) -> dict[str, object]:
    """Return what a model file stores of the values that sites keep, by measurement."""
    return {
        measurement.name: measurement.restore(kept)
        for measurement in measurements
        if isinstance(measurement, KeptMeasurement)
    }
