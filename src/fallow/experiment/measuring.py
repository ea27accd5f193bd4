"""Additional results of an evaluation (settings ``metrics`` and ``coverage``), from sums over sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fallow.core.types import SiteId, Value, Values
from fallow.engine.conformal import (
    ERROR_BINS,
    build_prediction_sets,
    count_nonconformity,
    threshold_of,
)
from fallow.engine.score_metrics import (
    BINS,
    Floats,
    Metric,
    auroc_error,
    count_scores,
    estimate_classes,
    estimate_numbers,
    find_metric,
    reliability,
    resample,
    sum_moments,
)

if TYPE_CHECKING:
    from fallow.experiment.record import Metrics, MetricScores, SetScores
    from fallow.settings.config import ExperimentConfig

COUNTS = "counts"
"""Field with the histograms of a site, for classification."""
NONCONFORMITY = "nonconformity"
"""Field with the test examples of a site by bin of nonconformity."""


def measure_examples(
    outputs: Tensor, true: Tensor, is_regression: bool, config: ExperimentConfig
) -> Values:
    """Return the sums of a site from which metrics and prediction sets follow.

    Parameters
    ----------
    outputs : Tensor
        (n, C) logits, or (n,) predicted values in the unit of the target.
    true : Tensor
        (n,) class ids or values.
    is_regression : bool
        Whether targets are numbers.
    config : ExperimentConfig
        Settings, of which ``metrics`` and ``coverage`` choose the sums.

    Returns
    -------
    dict of str to Tensor
        With metrics ``counts``, or ``rows``, ``first`` and ``second``.  With a coverage
        ``nonconformity``.
    """
    sums: dict[str, Value] = {}
    if config.metrics and is_regression:
        sums |= {"rows": float(len(true)), **sum_moments(outputs, true)}
    elif config.metrics:
        sums[COUNTS] = count_scores(outputs, true).double()
    if config.coverage is not None:
        sums[NONCONFORMITY] = count_nonconformity(outputs, true, is_regression)
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


def describe_sums(
    config: ExperimentConfig, total: Values, of_sites: Mapping[SiteId, Values] | None = None
) -> Metrics:
    """Return the requested metrics and prediction sets.

    total: sums over all sites (`measure_examples`).  of_sites: sums of each site, if known.
    """
    result: Metrics = {}
    if config.metrics:
        result["metrics"] = score_metrics(config.metrics, total, of_sites)
    if config.coverage is not None:
        result["prediction_sets"] = _describe_sets(
            torch.as_tensor(total[NONCONFORMITY]), config.coverage
        )
    return result


def list_metrics(
    metrics: Mapping[str, MetricScores], classes: Sequence[str]
) -> Iterator[str]:
    """Yield a line of a model card for each metric, with 95 % intervals, and values by class."""
    for name, scores in metrics.items():
        title = find_metric(name).title
        line = f"{title}: {_show_interval(scores['value'], scores['low'], scores['high'])}"
        by_class = [
            f"{label} {_show_interval(*values)}"
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


def _show_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return a value with its 95 % interval."""
    if value is None:
        return "not known"
    if low is None or high is None:
        return f"{value:.3g}"
    return f"{value:.3g} (95 % interval {low:.3g} to {high:.3g})"


def _describe_sets(counts: Tensor, coverage: float) -> SetScores:
    """Return the prediction sets of a coverage from counts by bin of nonconformity."""
    sets = build_prediction_sets(counts, coverage)
    tied = 0.0
    if sets["bin"] is not None:
        tied = float(counts[sets["bin"]] / counts.sum())
    filled = counts.nonzero().squeeze(1)
    pairs = torch.stack([filled.double(), counts[filled].double()], dim=1)
    return {
        **sets,
        "threshold": threshold_of(sets, len(counts) == ERROR_BINS),
        "tied": tied,
        "counts": pairs.tolist(),
    }


def read_counts(sets: SetScores, is_regression: bool) -> Tensor:
    """Return the counts by bin of nonconformity in a record, (BINS,) or (ERROR_BINS,)."""
    counts = torch.zeros(ERROR_BINS if is_regression else BINS, dtype=torch.float64)
    for at, examples in sets["counts"]:
        counts[int(at)] = examples
    return counts


def score_metrics(
    names: Sequence[str], total: Values, of_sites: Mapping[SiteId, Values] | None = None
) -> dict[str, MetricScores]:
    """Return the values of metrics with 95 % intervals.

    Parameters
    ----------
    names : sequence of str
        Metrics, as in the setting ``metrics``.
    total : dict
        Sums over all sites (`measure_examples`).
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
