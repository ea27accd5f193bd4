"""Measurements of the outputs for test examples, as a configuration requests them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from fallow.core.build import find
from fallow.core.types import SiteId, Values
from fallow.core.values import Kind
from fallow.core.wording import join_words
from fallow.engine.score_metrics import Task
from fallow.measurements import named
from fallow.measurements.base import (
    IntervalScores,
    KeptMeasurement,
    Measurement,
    NamedMeasurement,
    ScoredExamples,
)
from fallow.measurements.metrics import Metrics
from fallow.measurements.prediction_sets import PredictionSets
from fallow.settings.config import DISCLOSURE

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
    return (*requested, *find_named(config))


def find_named(config: ExperimentConfig) -> list[NamedMeasurement]:
    """Return the measurements of the setting ``measure``, without the attacks of disclosure."""
    return [find(named, name)() for name in config.measure if name != DISCLOSURE]


def check_measurements(config: ExperimentConfig, task: Task) -> None:
    """Raise ValueError if a measurement of the setting ``measure`` is for another task."""
    for measurement in find_named(config):
        if task not in measurement.tasks:
            raise ValueError(
                f"measure lists {measurement.name!r}, which is for {join_words(measurement.tasks)}, "
                f"and {config.data} is a {task} task; omit it"
            )


def refuse_without_sites(config: ExperimentConfig, reason: str) -> None:
    """Raise ValueError if a measurement needs the scores of each site; ``reason``: of their absence."""
    for measurement in find_named(config):
        if measurement.needs_sites:
            raise ValueError(
                f"measure lists {measurement.name!r}, which compares the scores of sites, and "
                f"{reason}, or omit it"
            )


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
    results: dict[str, Any] = {}
    measured: dict[str, dict[str, IntervalScores]] = {}
    for measurement in measurements:
        result = measurement.fold(total, of_sites)
        if isinstance(measurement, NamedMeasurement):
            measured[measurement.name] = result
        else:
            results[measurement.name] = result
    if measured:
        results["measured"] = measured
    return cast("Measured", results)


def describe_results(
    measurements: Measurements, results: Mapping[str, Any], classes: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a model card about the results that are known."""
    measured = results.get("measured", {})
    for measurement in measurements:
        result = results.get(measurement.name, measured.get(measurement.name))
        if result is not None:
            yield from measurement.describe(result, classes)


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
