"""pFedGraph: the projection, the graph, the proximal term, and the size of messages."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fallow.core.disclosure import Disclosure, payload
from fallow.core.local import Batch, slot
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer
from fallow.engine import Loop
from fallow.engine.learner import Autograd
from fallow.training.personal import PFedGraph
from fallow.training.personal.pfedgraph import graph, simplex
from tests.engine.jobs import loop, mlp
from tests.training.personal.federation import CONFIG, federation, first_state, rounds

SGD = Optimizer("sgd", 0.1, momentum=0.0)


@pytest.mark.parametrize("seed", range(50))
def test_the_projection_is_on_the_simplex_and_optimal(seed: int) -> None:
    v = 3 * torch.randn(12, generator=stream(seed, "point"), dtype=torch.float64)
    x = simplex(v)
    assert abs(float(x.sum()) - 1) <= 1e-14 and bool((x >= 0).all())
    # KKT: x - v = θ wherever x > 0 and at least θ elsewhere
    theta = float((x - v)[x > 0].mean())
    assert float(((x - v)[x > 0] - theta).abs().max()) <= 1e-12
    assert bool(((x - v)[x == 0] >= theta - 1e-12).all())


def test_a_point_of_the_simplex_is_its_own_projection() -> None:
    v = torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert_close(simplex(v), v, rtol=0, atol=1e-15)


def test_large_numbers_lose_no_digits() -> None:
    v = torch.tensor([1e9 + 0.25, 1e9, -1e9], dtype=torch.float64)
    assert_close(simplex(v), torch.tensor([0.625, 0.375, 0.0]).double(), rtol=0, atol=1e-6)


def alike(n: int, c: float) -> Tensor:
    """Return n vectors with pairwise cosine c."""
    gram = torch.full((n, n), c, dtype=torch.float64).fill_diagonal_(1.0)
    vectors: Tensor = torch.linalg.cholesky(gram)
    return vectors


def test_equal_sites_give_the_closed_form() -> None:
    x = graph(alike(100, 0.5), torch.full((100,), 0.01), alpha=0.8)
    assert_close(x.diagonal(), torch.full((100,), 0.319375).double(), rtol=0, atol=1e-8)


def test_models_that_are_nearly_alike_count_as_alike() -> None:
    x = graph(alike(4, 0.91), torch.full((4,), 0.25), alpha=0.8)
    assert_close(x, torch.full((4, 4), 0.25).double(), rtol=0, atol=1e-12)


def test_with_a_small_alpha_every_site_is_alone_and_with_a_large_one_shares_decide() -> (
    None
):
    moved = alike(3, 0.2)
    p = torch.tensor([0.5, 0.3, 0.2])
    assert graph(moved, p, 1e-3).equal(torch.eye(3).double())
    assert_close(graph(moved, p, 1e9), p.double().expand(3, 3), rtol=0, atol=1e-8)


def test_a_site_without_labels_is_in_nobodys_mixture() -> None:
    moved = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 0.0]])
    x = graph(moved, torch.tensor([0.5, 0.5, 0.0]), alpha=0.8)
    assert x[:, 2].equal(torch.zeros(3).double())
    assert_close(x.sum(1), torch.ones(3).double())


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_term_pulls_along_the_direction_that_was_sent_or_away_from_it(
    sign: Literal[-1, 1],
) -> None:
    executor: Loop = loop(mlp)
    learn = Autograd(executor.network, executor.loss, SGD)
    x = torch.linspace(-1, 1, 18, dtype=torch.float64).view(3, 6)
    batch = Batch(x, torch.tensor([0, 1, 2]), torch.ones(3).double(), 0.1, round=1)
    at = slot(first_state(mlp), SGD)
    w = at.w
    m = torch.linspace(-1, 1, at.w.numel(), dtype=torch.float64)
    now = PFedGraph(lam=0.5, lam_sign=sign).step({"w": at}, at._replace(w=m), batch, learn)
    slope = m / w.norm() - (m @ w) * w / w.norm() ** 3  # of <m, w> / ||w||
    plain = w - 0.1 * learn.gradient(at, batch)[0]
    assert_close(now["w"].w, plain - 0.1 * sign * 0.5 * slope, rtol=0, atol=1e-14)
    first = PFedGraph(lam=0.5).step(
        {"w": at}, at._replace(w=m), batch._replace(round=0), learn
    )
    assert_close(first["w"].w, plain, rtol=0, atol=0)


def test_a_site_goes_on_from_its_mixture() -> None:
    method = PFedGraph(CONFIG, lam=0.1)
    channel = federation(mlp, method)
    state = rounds(channel, method, first_state(mlp), 1)
    mixed = state["weights"] @ state["models"]
    rounds(channel, method, state, 1, first=1)
    for at, site in enumerate(channel.members.values()):
        assert_close(site.memory["mixture"]["w"], mixed[at], rtol=0, atol=1e-14)
    assert not torch.equal(mixed[0], mixed[1])


@pytest.mark.parametrize(("lam", "down"), [(0.1, 1 + 2 + 2), (0.0, 3)])
def test_the_direction_is_a_second_model(lam: float, down: int) -> None:
    shown = Disclosure()
    method = PFedGraph(CONFIG, lam=lam)
    rounds(federation(mlp, method), method, first_state(mlp), 3, shown=shown)
    model = payload({**first_state(mlp)})
    assert shown.bytes_down == 3 * down * model
    assert shown.bytes_up == 3 * 3 * (model + 8)


def test_where_nobody_has_a_label_all_models_stay() -> None:
    method = PFedGraph(CONFIG)
    channel = federation(mlp, method, {"a": 0, "b": 0})
    rounds(channel, method, first_state(mlp), 2)
    assert all(
        s.memory["local"]["w"].equal(first_state(mlp)["w"])
        for s in channel.members.values()
    )


@pytest.mark.parametrize(
    ("field", "value"), [("alpha", 0.0), ("lam", -0.1), ("lam_sign", 0)]
)
def test_a_field_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"PFedGraph's {field} is {value}"):
        PFedGraph(**{field: value})
