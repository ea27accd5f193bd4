"""Validation examples from a non-uniform query have the weights of their labels."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.sites.view import SiteView
from fallow.training.personal.dpfl import reward
from fallow.training.personal.parts.greedy import Member, ggc
from tests.training.personal.collaborators import Federation, dpfl, federation

N_VALIDATION = 6


def with_weights(weights: Sequence[float]) -> Federation:
    """Return sites with these weights of validation labels, after one round of training."""
    made = federation(dpfl(), labels_of_site=N_VALIDATION).rounds(0)
    for site in made.members.values():
        site.weight[site.validation] = torch.tensor(weights, dtype=site.weight.dtype)
    return made


def losses(view: SiteView, w: Tensor) -> Tensor:
    """Return the cross-entropy of every validation example, (v,)."""
    outputs = view.forward({**view.memory["local"], "w": w}, view.rows("validation"))
    return cross_entropy(outputs, view.validation_labels, reduction="none")


def test_what_a_model_earns_is_the_weighted_mean_over_held_rows() -> None:
    weights = torch.tensor([0.2, 3.0, 1.0, 0.5, 2.0, 1.0], dtype=torch.float64)
    view = SiteView(with_weights(weights.tolist()).members["a"], 0)
    w = view.memory["local"]["w"]
    expected = -(weights * losses(view, w)).sum() / weights.sum()
    assert_close(torch.as_tensor(reward(view)(w)), expected)
    by_row = torch.as_tensor(reward(view, by_row=True)(w))
    assert by_row.shape == (N_VALIDATION,)
    assert_close(by_row.mean(), expected)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_rows_of_one_weight_count_the_same(weight: float) -> None:
    view = SiteView(with_weights([weight] * N_VALIDATION).members["a"], 0)
    w = view.memory["local"]["w"]
    assert_close(torch.as_tensor(reward(view)(w)), -losses(view, w).mean())


def helpful(view: SiteView, own: Tensor) -> Tensor:
    """Return a model that is better on the first validation example only."""
    gen = stream(0, "peers")
    before = losses(view, own)
    tried = (
        own + torch.randn(own.shape, generator=gen, dtype=own.dtype) for _ in range(200)
    )
    both = ((w, losses(view, w) - before) for w in tried)
    return next(w for w, (first, second, *_) in both if first < -0.3 and second > 0.3)


def test_weights_decide_who_is_a_collaborator() -> None:
    view = SiteView(with_weights([1.0] * N_VALIDATION).members["a"], 0)
    site = view._site
    own = view.memory["local"]["w"]
    peers = [Member(2 * helpful(view, own) - own, 1)]
    order = torch.tensor([0])
    coins = torch.tensor([0.5], dtype=torch.float64)
    chosen = []
    for heavy in (0, 1):
        weights = torch.zeros(N_VALIDATION, dtype=site.weight.dtype)
        weights[heavy] = N_VALIDATION
        site.weight[site.validation] = weights
        chosen.append(bool(ggc(Member(own, 1), peers, reward(view), order, coins).chosen))
    assert chosen == [True, False]
