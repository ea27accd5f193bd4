"""Dirichlet mathematics against hand values and against ``torch.distributions``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.models.evidence import aleatoric, alpha, dirichlet_entropy, from_uniform


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
