"""Prediction sets and intervals, against direct split conformal prediction in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fallow.engine.score_metrics import EDGES, Floats
from fallow.measurements.prediction_sets import (
    ERRORS,
    SetRule,
    build_prediction_sets,
    check_sets,
    count_nonconformity,
    explain_no_sets,
    predict_intervals,
    predict_sets,
    rank_classes,
    threshold_of,
)

CLASSES = 4


def _draw(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return logits (n, C) and classes (n,) that partly agree."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(CLASSES, (rows,), generator=generator)
    outputs = 1.5 * torch.randn(rows, CLASSES, generator=generator)
    outputs += 2 * torch.nn.functional.one_hot(true, CLASSES)
    return outputs, true


def _quantile_of(nonconformity: Floats, coverage: float) -> float:
    """Return the ceil((n + 1) coverage)-th smallest value."""
    rank = int(np.ceil((len(nonconformity) + 1) * coverage - 1e-9))
    return float(np.sort(nonconformity)[rank - 1])


def _sets_of(outputs: Tensor, true: Tensor, coverage: float) -> SetRule:
    return build_prediction_sets(count_nonconformity(outputs, true, False), coverage)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("rows", [99, 100, 731])
def test_sets_are_those_of_numpy_up_to_the_bin_of_the_quantile(
    coverage: float, rows: int
) -> None:
    outputs, true = _draw(rows, rows)
    p = outputs.double().softmax(1).numpy()
    quantile = _quantile_of(1 - p[np.arange(rows), true.numpy()], coverage)
    new, _ = _draw(1, 3000)
    expected = 1 - new.double().softmax(1).numpy() <= quantile
    sets = _sets_of(outputs, true, coverage)
    ours = predict_sets(new, sets)
    assert ours[expected].all()
    threshold = threshold_of(sets, is_regression=False)
    assert threshold is not None
    added = new.double().softmax(1).numpy()[ours & ~expected]
    top = EDGES[np.searchsorted(EDGES, threshold, side="right")]
    assert ((added >= threshold) & (added < top)).all()
    # the bin itself is the nonconformity of an exact method
    bins = rank_classes(outputs)[np.arange(rows), true.numpy()].astype(float)
    assert (ours == (rank_classes(new) <= _quantile_of(bins, coverage))).all()


@pytest.mark.long
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_new_examples_are_covered_as_chosen_over_many_splits(coverage: float) -> None:
    outputs, true = _draw(5, 4000)
    rng = np.random.default_rng(0)
    n = 60
    covered = 0
    tied = 0.0
    splits = 2000
    for _ in range(splits):
        split = rng.choice(len(true), n + 1, replace=False)
        known, new = split[:n], split[n:]
        counts = count_nonconformity(outputs[known], true[known], False)
        sets = build_prediction_sets(counts, coverage)
        assert sets["bin"] is not None
        tied += float(counts[sets["bin"]]) / (n + 1)
        covered += int(predict_sets(outputs[new], sets)[0, true[new]])
    deviation = np.sqrt(coverage * (1 - coverage) / splits)
    assert covered / splits >= coverage - 3 * deviation
    assert covered / splits <= coverage + tied / splits + 1 / (n + 1) + 3 * deviation


def test_intervals_are_those_of_numpy_up_to_5_percent() -> None:
    rng = np.random.default_rng(0)
    true = torch.from_numpy(rng.normal(size=300))
    predicted = true + torch.from_numpy(rng.normal(size=300)) ** 3
    sets = build_prediction_sets(count_nonconformity(predicted, true, True), 0.9)
    exact = _quantile_of((predicted - true).abs().numpy(), 0.9)
    half = threshold_of(sets, is_regression=True)
    assert half is not None
    assert exact <= half < 1.05 * exact
    bounds = predict_intervals(torch.tensor([3.0]), sets)
    assert bounds[0] == pytest.approx([3 - half, 3 + half])


def test_an_exact_prediction_is_in_the_first_bin_and_a_huge_error_in_the_last() -> None:
    true = torch.tensor([0.0, 0.0])
    counts = count_nonconformity(torch.tensor([0.0, 1e13]), true, True)
    assert counts.nonzero().squeeze(1).tolist() == [0, len(ERRORS)]
    sets = build_prediction_sets(counts, 0.6)
    assert "intervals with coverage 0.6 have no bounds" in str(explain_no_sets(sets))


@pytest.mark.parametrize(("rows", "is_enough"), [(9, True), (8, False), (0, False)])
def test_nine_examples_are_enough_for_a_coverage_of_90_percent(
    rows: int, is_enough: bool
) -> None:
    sets = _sets_of(*_draw(0, rows), 0.9)
    assert (explain_no_sets(sets) is None) == is_enough
    if not is_enough:
        with pytest.raises(ValueError, match=f"at least 9 test .* the model has {rows};"):
            predict_sets(_draw(1, 5)[0], sets)


def test_examples_that_several_models_predict_count_once() -> None:
    outputs, true = _draw(2, 40)
    whole = count_nonconformity(outputs, true, False)
    thrice = count_nonconformity(outputs.repeat(3, 1), true.repeat(3), False) / 3
    assert build_prediction_sets(thrice, 0.9) == build_prediction_sets(whole, 0.9)


@pytest.mark.parametrize(
    "wrong", [{"coverage": 1.0}, {"examples": -1}, {"bin": "3"}, {"bin": -1}, {"more": 1}]
)
def test_prediction_sets_of_a_file_are_checked(wrong: dict[str, object]) -> None:
    sets: SetRule = {"coverage": 0.9, "examples": 20, "bin": 4}
    check_sets(sets)
    with pytest.raises(ValueError, match=r"prediction sets|coverage"):
        check_sets({**sets, **wrong})  # type: ignore[typeddict-item]
