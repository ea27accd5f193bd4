"""Additional metrics of an evaluation (setting ``metrics``), from histograms and sums over sites.

The formulas are in `fallow.engine.score_metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NotRequired, final

import numpy as np
import torch
from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core import values
from fallow.core.composites import Parts
from fallow.core.types import SiteId, Values
from fallow.engine.score_metrics import (
    BINS,
    MOMENTS,
    Floats,
    Metric,
    auroc_error,
    count_answers,
    count_scores,
    estimate_classes,
    estimate_numbers,
    find_metric,
    reliability,
    resample,
    sum_moments,
)
from fallow.measurements.base import ScoredExamples, show_interval
from fallow.storage.validation import STRICT, Number

COUNTS = "counts"
"""Field with the histograms of a site, for classification."""


@with_config(STRICT)
class MetricScores(TypedDict):
    """Values of one metric of the setting ``metrics``, with bounds of the 95 % interval.

    For classification, the value is the mean over classes.  A value is None without examples.
    """

    value: Annotated[Number | None, Field(description="value on all test examples")]
    low: Annotated[Number | None, Field(description="lower bound of the interval")]
    high: Annotated[Number | None, Field(description="upper bound of the interval")]
    per_class: NotRequired[
        Annotated[list[Number | None], Field(description="value by class")]
    ]
    low_per_class: NotRequired[
        Annotated[list[Number | None], Field(description="lower bound by class")]
    ]
    high_per_class: NotRequired[
        Annotated[list[Number | None], Field(description="upper bound by class")]
    ]
    per_site: NotRequired[
        Annotated[dict[SiteId, Number | None], Field(description="value by site")]
    ]
    binning: NotRequired[
        Annotated[
            Number,
            Field(description="largest difference of a class from the AUROC without bins"),
        ]
    ]
    reliability: NotRequired[
        Annotated[
            list[list[list[Number]]],
            Field(
                description="reliability diagram by class: mean probability, share of the class "
                "and number of examples of each group"
            ),
        ]
    ]


@final
@dataclass(frozen=True)
class Metrics:
    """Metrics of the setting ``metrics``, as a measurement."""

    names: tuple[str, ...]
    is_regression: bool = False

    name: ClassVar[str] = "metrics"

    @property
    def disclosure(self) -> str:
        if self.is_regression:
            return "sums of errors, targets, their squares and their products"
        return "a histogram of the predicted probabilities of each class"

    @property
    def sums(self) -> Mapping[str, values.Kind]:
        if self.is_regression:
            return {
                "first": values.Real(MOMENTS),
                "second": values.Real((MOMENTS, MOMENTS)),
            }
        return {COUNTS: values.Count(("outputs", 2, 2, BINS))}

    def measure(self, examples: ScoredExamples) -> Values:
        if self.is_regression:
            return dict(sum_moments(examples.outputs, examples.true))
        count = count_answers if examples.n_labels else count_scores
        return {COUNTS: count(examples.outputs, examples.true).double()}

    def find_fault(self, parts: Parts, known: values.SenderFacts) -> str | None:
        if self.is_regression:
            return None
        of_classes = parts[COUNTS].flatten(1).sum(1)
        limit = float(parts["rows"])
        if bool((of_classes > limit + known.room * BINS).any()):
            few = of_classes[:8].tolist()
            return f"{COUNTS} is {few!s:.80} by class, but rows is {limit:g}"
        return None

    def fold(
        self, total: Values, of_sites: Mapping[SiteId, Values]
    ) -> dict[str, MetricScores]:
        return score_metrics(self.names, total, of_sites)

    def describe(
        self, result: Mapping[str, MetricScores], classes: Sequence[str]
    ) -> Iterator[str]:
        yield from list_metrics(result, classes)


def list_metrics(
    metrics: Mapping[str, MetricScores], classes: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each metric, with 95 % intervals, and values by class."""
    for name, scores in metrics.items():
        title = find_metric(name).title
        line = f"{title}: {show_interval(scores['value'], scores['low'], scores['high'])}"
        by_class = [
            f"{label} {show_interval(*values)}"
            for label, *values in zip(
                classes,
                scores.get("per_class", []),
                scores.get("low_per_class", []),
                scores.get("high_per_class", []),
                strict=False,
            )
        ]
        if by_class:
            line += f", mean over classes; {', '.join(by_class)}"
        yield line


def score_metrics(
    names: Sequence[str], total: Values, of_sites: Mapping[SiteId, Values] | None = None
) -> dict[str, MetricScores]:
    """Return the values of metrics with 95 % intervals.

    Parameters
    ----------
    names : sequence of str
        Metrics, as in the setting ``metrics``.
    total : dict
        Sums over all sites (`Metrics.measure`).
    of_sites : dict, optional
        Sums of each site; values by site are computed if they are given.
    """
    result: dict[str, MetricScores] = {}
    replicates = None
    if COUNTS in total:
        replicates = resample(_array(total, COUNTS))
    for name in names:
        metric = find_metric(name)
        scores = _score_total(metric, total, replicates)
        if of_sites:
            per_site = {site: _score_site(metric, sums) for site, sums in of_sites.items()}
            scores["per_site"] = per_site
        result[name] = scores
    return result


def _score_total(metric: Metric, total: Values, replicates: Floats | None) -> MetricScores:
    if replicates is None:
        return _score_numbers(metric, total)
    counts = _array(total, COUNTS)
    mean, classes = estimate_classes(metric, counts, replicates)
    scores: MetricScores = {
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "per_class": [estimate.value for estimate in classes],
        "low_per_class": [estimate.low for estimate in classes],
        "high_per_class": [estimate.high for estimate in classes],
    }
    if metric.name == "auroc":
        scores["binning"] = float(np.nan_to_num(auroc_error(counts)).max())
    if metric.name == "calibration-error":
        scores["reliability"] = _list_groups(counts)
    return scores


def _score_numbers(metric: Metric, sums: Values) -> MetricScores:
    rows = round(float(_array(sums, "rows")))
    estimate = estimate_numbers(metric, _array(sums, "first"), _array(sums, "second"), rows)
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _score_site(metric: Metric, sums: Values) -> float | None:
    """Return the value of one site; None without test examples."""
    if COUNTS in sums:
        mean, _ = estimate_classes(metric, _array(sums, COUNTS), replicates=None)
        return mean.value
    return _score_numbers(metric, sums)["value"]


def _list_groups(counts: Floats) -> list[list[list[float]]]:
    """Return the reliability diagram of each class: mean probability, share and examples."""
    means, shares, rows = reliability(counts)
    diagrams = []
    for mean, share, n in zip(means, shares, rows, strict=True):
        is_known = n > 0
        groups = np.stack([mean[is_known], share[is_known], n[is_known]], axis=1)
        diagrams.append(groups.tolist())
    return diagrams


def _array(sums: Values, name: str) -> Floats:
    return torch.as_tensor(sums[name], dtype=torch.float64).numpy()
