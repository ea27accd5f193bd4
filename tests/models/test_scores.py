"""Hand values, edges and laws of the uncertainty scores."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from fallow.models.scores import entropy, least_confidence, margin

Score = Callable[[Tensor], Tensor]
each = pytest.mark.parametrize("score", [entropy, margin, least_confidence])


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ((0.6, 0.3, 0.1), 0.897946),
        ((0.2, 0.5, 0.3), 1.029653),
        ((0.5, 0.25, 0.25), 1.5 * math.log(2)),
    ],
)
def test_entropy_has_the_values_worked_out_by_hand(
    p: tuple[float, ...], expected: float
) -> None:
    assert entropy(tensor([p]).log()).item() == pytest.approx(expected, abs=1e-6)


def test_margin_is_one_less_the_gap_between_the_two_largest() -> None:
    assert_close(
        margin(tensor([[0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]).log()), tensor([0.7, 1.0])
    )


def test_least_confidence_is_one_less_the_largest() -> None:
    assert_close(
        least_confidence(tensor([[0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]).log()),
        tensor([0.4, 0.6]),
    )


def test_classes_without_probability_contribute_nothing_to_entropy() -> None:
    rows = tensor([[0.0, 0.0, -math.inf], [0.0, 0.0, -1e4], [0.0, -math.inf, -math.inf]])
    assert_close(entropy(rows), tensor([math.log(2), math.log(2), 0.0]))


def test_certainty_has_the_entropy_plus_zero() -> None:
    certain = entropy(tensor([[1e4, 0.0], [0.0, -math.inf]]))
    assert certain.tolist() == [0.0, 0.0] and not torch.signbit(certain).any()


def test_entropy_still_tells_rows_apart_where_the_softmax_rounds_to_one() -> None:
    near, nearer = entropy(tensor([[20.0, 0.0], [30.0, 0.0]]))
    assert near > nearer > 0


def test_equal_logits_are_the_most_uncertain() -> None:
    flat = torch.zeros(1, 4)
    assert_close(
        torch.cat([score(flat) for score in (entropy, margin, least_confidence)]),
        tensor([math.log(4), 1.0, 0.75]),
    )


@each
def test_a_constant_added_to_a_row_changes_nothing(score: Score) -> None:
    logits = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    shift = torch.linspace(-50, 50, 6, dtype=torch.float64)[:, None]
    assert_close(score(logits + shift), score(logits))


@each
def test_the_order_of_the_classes_does_not_matter(score: Score) -> None:
    logits = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert_close(score(logits.flip(1)), score(logits))


@each
def test_for_two_classes_a_larger_gap_is_more_certain(score: Score) -> None:
    gaps = torch.linspace(0, 8, 20)
    values = score(torch.stack([gaps, torch.zeros(20)], 1))
    assert (values.diff() < 0).all()


@each
def test_an_empty_pool_has_no_scores_and_the_dtype_is_kept(score: Score) -> None:
    assert score(torch.zeros(0, 3)).shape == (0,)
    assert score(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64


@each
def test_scores_stack(score: Score) -> None:
    logits = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    assert_close(torch.vmap(score)(logits), torch.stack([score(rows) for rows in logits]))


@each
def test_logits_without_a_row_axis_are_refused(score: Score) -> None:
    with pytest.raises(ValueError, match=r"shape \(n, c\), not \(3,\)"):
        score(torch.zeros(3))


def test_with_one_class_every_row_is_certain() -> None:
    assert margin(torch.tensor([[5.0], [-2.0]])).tolist() == [0.0, 0.0]
    assert margin(torch.tensor([[torch.nan]])).isnan().all()
