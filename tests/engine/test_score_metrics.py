"""Metrics from histograms and moments, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    roc_curve,
)
from torch import Tensor

from fallow.engine.score_metrics import (
    BINS,
    METRICS,
    Floats,
    auroc_error,
    bin_scores,
    count_scores,
    estimate_classes,
    estimate_numbers,
    find_metric,
    reliability,
    resample,
    sum_moments,
)

CLASSES = 4


def _draw(seed: int, rows: int = 900, sharpness: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return logits (n, C) and classes (n,) that partly agree."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(CLASSES, (rows,), generator=generator)
    outputs = torch.randn(rows, CLASSES, generator=generator)
    outputs += torch.nn.functional.one_hot(true, CLASSES)
    return sharpness * outputs, true


def _counts(outputs: Tensor, true: Tensor) -> Floats:
    return count_scores(outputs, true).numpy()


@pytest.mark.parametrize("sharpness", [0.3, 2.0, 30.0])
def test_areas_differ_from_scikit_learn_by_at_most_the_stated_bound(
    sharpness: float,
) -> None:
    outputs, true = _draw(0, sharpness=sharpness)
    counts = _counts(outputs, true)
    ours = METRICS["auroc"].compute(counts)
    others = [torch.cat([outputs[:, :c], outputs[:, c + 1 :]], 1) for c in range(CLASSES)]
    for c in range(CLASSES):
        log_odds = (outputs[:, c] - others[c].logsumexp(1)).numpy()
        expected = roc_auc_score(true.numpy() == c, log_odds)
        assert abs(ours[c] - expected) <= auroc_error(counts)[c]
    assert auroc_error(counts).max() < 0.02


def _in_bins(outputs: Tensor) -> Floats:
    """Return the scores passed to scikit-learn: the number of the bin."""
    return bin_scores(outputs).astype(float)


def test_ranks_of_bins_have_the_scores_of_scikit_learn() -> None:
    outputs, true = _draw(1)
    counts = _counts(outputs, true)
    binned = _in_bins(outputs)
    for c in range(CLASSES):
        is_class = true.numpy() == c
        false_rate, true_rate, _ = roc_curve(
            is_class, binned[:, c], drop_intermediate=False
        )
        expected = {
            "auroc": roc_auc_score(is_class, binned[:, c]),
            "average-precision": average_precision_score(is_class, binned[:, c]),
            "sensitivity@0.8": true_rate[false_rate <= 0.2 + 1e-9].max(),
        }
        for name, value in expected.items():
            assert find_metric(name).compute(counts)[c] == pytest.approx(value, abs=1e-12)


def test_f1_is_that_of_the_most_probable_class() -> None:
    outputs, true = _draw(2)
    expected = f1_score(true.numpy(), outputs.argmax(1).numpy(), average=None)
    assert METRICS["f1"].compute(_counts(outputs, true)) == pytest.approx(expected)


def test_the_brier_score_differs_by_less_than_a_bin() -> None:
    outputs, true = _draw(3)
    probabilities = outputs.double().softmax(1).numpy()
    ours = METRICS["brier"].compute(_counts(outputs, true))
    for c in range(CLASSES):
        expected = brier_score_loss(true.numpy() == c, probabilities[:, c])
        assert abs(ours[c] - expected) < 0.001


def test_the_calibration_error_is_that_of_ten_groups() -> None:
    outputs, true = _draw(4)
    probabilities = outputs.double().softmax(1).numpy()
    counts = _counts(outputs, true)
    ours = METRICS["calibration-error"].compute(counts)
    _, shares, rows = reliability(counts)
    for c in range(CLASSES):
        group = np.minimum((probabilities[:, c] * 10).astype(int), 9)
        expected = 0.0
        for g in range(10):
            here = group == g
            assert rows[c, g] == here.sum()
            if here.any():
                share = (true.numpy()[here] == c).mean()
                assert shares[c, g] == pytest.approx(share)
                expected += here.mean() * abs(probabilities[here, c].mean() - share)
        assert abs(ours[c] - expected) < 0.005  # half a bin


def test_sums_of_sites_have_the_scores_of_all_examples() -> None:
    outputs, true = _draw(5)
    whole = _counts(outputs, true)
    parts = _counts(outputs[:200], true[:200]) + _counts(outputs[200:], true[200:])
    assert np.array_equal(whole, parts)
    assert whole.shape == (CLASSES, 2, 2, BINS)
    assert whole.sum() == CLASSES * len(true)


def test_a_class_without_examples_has_no_score() -> None:
    outputs, true = _draw(6)
    counts = _counts(outputs, true.clamp(max=CLASSES - 2))
    for name in ("auroc", "average-precision", "sensitivity"):
        mean, classes = estimate_classes(find_metric(name), counts, resample(counts))
        assert classes[-1].value is None
        assert classes[-1].low is None
        assert mean.value is not None


def test_an_interval_has_the_width_of_repeated_draws() -> None:
    """Check that the spread over 60 test sets is as predicted from one test set."""
    metric = METRICS["auroc"]
    values = []
    for seed in range(60):
        values.append(metric.compute(_counts(*_draw(seed, rows=300)))[0])
    counts = _counts(*_draw(99, rows=300))
    _, classes = estimate_classes(metric, counts, resample(counts))
    low = classes[0].low
    high = classes[0].high
    assert low is not None
    assert high is not None
    assert (high - low) / (2 * 1.96) == pytest.approx(np.std(values), rel=0.35)


def test_the_mean_over_two_classes_has_the_interval_of_one() -> None:
    outputs, true = _draw(7)
    counts = _counts(outputs[:, :2], (true > 1).long())
    mean, classes = estimate_classes(METRICS["auroc"], counts, resample(counts))
    assert mean.value == pytest.approx(classes[0].value)
    assert mean.low == pytest.approx(classes[0].low, abs=0.02)


def test_regression_scores_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    true = 40 + 7 * torch.randn(500, generator=generator, dtype=torch.float64)
    predicted = true + 3 * torch.randn(500, generator=generator, dtype=torch.float64)
    sums = {name: value.numpy() for name, value in sum_moments(predicted, true).items()}
    expected = {
        "r2": r2_score(true.numpy(), predicted.numpy()),
        "mae": mean_absolute_error(true.numpy(), predicted.numpy()),
    }
    for name, value in expected.items():
        estimate = estimate_numbers(METRICS[name], rows=500, **sums)
        assert estimate.value == pytest.approx(value, abs=1e-9)
        assert estimate.low is not None
        assert estimate.high is not None
        drawn = []
        rng = np.random.default_rng(0)
        for _ in range(300):
            rows = rng.integers(500, size=500)
            again = sum_moments(predicted[rows], true[rows])
            means = again["first"].numpy() / 500
            drawn.append(float(METRICS[name].compute(means)))
        width = (estimate.high - estimate.low) / (2 * 1.96)
        assert width == pytest.approx(np.std(drawn), rel=0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auc", "metric 'auc' is unknown; did you mean 'auroc'?"),
        ("sensitivity@2", "metric 'sensitivity@2' has no specificity between 0 and 1"),
        ("sensitivity@high", "has no specificity between 0 and 1"),
        ("auroc@0.9", "metric 'auroc@0.9' is unknown"),
    ],
)
def test_an_unknown_metric_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        find_metric(text)
