"""Worked values, edge cases and properties of the uncertainty scores."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.models.scores import (
    aleatoric,
    alpha,
    dirichlet_entropy,
    entropy,
    from_uniform,
    least_confidence,
    margin,
)

Score = Callable[[Tensor], Tensor]
each_score = pytest.mark.parametrize("score", [entropy, margin, least_confidence])


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


@each_score
def test_a_constant_added_to_a_row_changes_nothing(score: Score) -> None:
    logits = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    shift = torch.linspace(-50, 50, 6, dtype=torch.float64)[:, None]
    assert_close(score(logits + shift), score(logits))


@each_score
def test_the_order_of_the_classes_does_not_matter(score: Score) -> None:
    logits = torch.randn(
        6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert_close(score(logits.flip(1)), score(logits))


@each_score
def test_for_two_classes_a_larger_gap_is_more_certain(score: Score) -> None:
    gaps = torch.linspace(0, 8, 20)
    values = score(torch.stack([gaps, torch.zeros(20)], 1))
    assert (values.diff() < 0).all()


@each_score
def test_an_empty_pool_has_no_scores_and_the_dtype_is_kept(score: Score) -> None:
    assert score(torch.zeros(0, 3)).shape == (0,)
    assert score(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64


@each_score
def test_scores_stack(score: Score) -> None:
    logits = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    assert_close(torch.vmap(score)(logits), torch.stack([score(rows) for rows in logits]))


@each_score
def test_logits_without_a_row_axis_are_refused(score: Score) -> None:
    with pytest.raises(ValueError, match=r"shape \(n, c\), not \(3,\)"):
        score(torch.zeros(3))


def test_with_one_class_every_row_is_certain() -> None:
    assert margin(torch.tensor([[5.0], [-2.0]])).tolist() == [0.0, 0.0]
    assert margin(torch.tensor([[torch.nan]])).isnan().all()


def drawn(classes: int, scale: float = 4.0) -> Tensor:
    logits = torch.randn(20, classes, generator=stream(0, "logits"), dtype=torch.float64)
    return alpha(scale * logits)


def test_evidence_is_what_a_logit_has_above_zero() -> None:
    assert alpha(torch.tensor([[-1.0, 0.0, 2.5]])).tolist() == [[1.0, 1.0, 3.5]]


def test_golden_values() -> None:
    a = torch.tensor([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    assert [round(v, 4) for v in aleatoric(a).tolist()] == [0.7833, 0.8333]
    assert [round(v, 4) for v in dirichlet_entropy(a).tolist()] == [-1.3182, -0.6931]


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_entropy_and_divergence_are_those_of_torch(classes: int) -> None:
    a = drawn(classes)
    uniform = Dirichlet(torch.ones_like(a))
    entropy = Dirichlet(a).entropy()  # type: ignore[no-untyped-call]  # torch's
    assert_close(dirichlet_entropy(a), entropy, rtol=0, atol=1e-10)
    assert_close(from_uniform(a), kl_divergence(Dirichlet(a), uniform), rtol=0, atol=1e-10)


def test_the_aleatoric_part_is_the_mean_entropy_of_what_the_distribution_draws() -> None:
    a = drawn(3, scale=1.0)
    grid = (torch.arange(400, dtype=torch.float64) + 0.5) / 400  # the simplex, cell by cell
    x, y = torch.meshgrid(grid, grid, indexing="ij")
    inside = x + y < 1
    p = torch.stack([x[inside], y[inside], 1 - x[inside] - y[inside]], 1)
    for row, ours in zip(a[:5], aleatoric(a[:5]), strict=True):
        log_density: Tensor = Dirichlet(row).log_prob(p)  # type: ignore[no-untyped-call]
        density = log_density.exp()
        mean = (density * torch.special.entr(p).sum(1)).sum() / density.sum()
        assert abs(float(ours - mean)) < 2e-3


def test_no_evidence_is_as_far_from_no_evidence_as_nothing() -> None:
    for classes in (2, 10, 100):
        assert abs(float(from_uniform(torch.ones(classes)))) < 1e-5


def test_a_gradient_flows_through_each() -> None:
    a = drawn(3)[:4].requires_grad_()
    for measure in (aleatoric, dirichlet_entropy, from_uniform):
        assert torch.autograd.gradcheck(measure, a)


def test_the_order_of_classes_does_not_matter() -> None:
    a = drawn(5)
    for measure in (aleatoric, dirichlet_entropy, from_uniform):
        assert_close(measure(a), measure(a.flip(1)), rtol=0, atol=1e-12)
