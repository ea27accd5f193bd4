"""Regression variants of Core-Set, BADGE and LoGo, and common properties of all six."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.engine.loop import look
from fallow.models.networks import MLP
from fallow.strategies import ACSFW, BADGE, BAIT, LCMD, CoreSet, LoGo
from fallow.strategies.logo import fill_empty_clusters
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.posterior import with_one
from tests.contracts.numbers import with_numbers
from tests.simulations import Simulation, Table, tables
from tests.strategies.regression import draws

SIX = [CoreSet(), BADGE(), LoGo(), LCMD(), BAIT(), BAIT(forward_only=True), ACSFW()]
six = pytest.mark.parametrize("strategy", SIX, ids=str)


def one(strategy: Any, x: Tensor, labeled: Tensor, seed: int = 0) -> Simulation:
    """Return site a with these examples and labels: (m, d) and (l, d)."""
    half = x.shape[1] // 2
    made = with_numbers(
        {"a": Table(x[:, :half], x[:, half:], [0] * len(labeled))}, strategy, seed
    )
    made.members["a"].x[len(x) :] = labeled
    return made


def covariance(phi: Tensor, labeled: Tensor, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scaled φ of pool and labels, and M, by the definition."""
    scale = (labeled if len(labeled) else phi).square().sum(1).mean().sqrt()
    phi, labeled = phi / scale, labeled / scale
    noise = sigma**2 * torch.eye(phi.shape[1], dtype=torch.float64)
    return phi, labeled, torch.linalg.inv(labeled.T @ labeled + noise)


def gain(phi: Tensor, labeled: Tensor, sigma: float = 1e-3) -> Tensor:
    """Compute φ'MFMφ / (1 + φ'Mφ)."""
    phi, labeled, m = covariance(with_one(phi), with_one(labeled), sigma)
    fisher = phi.T @ phi + labeled.T @ labeled
    return ((phi @ m @ fisher @ m) * phi).sum(1) / (1 + ((phi @ m) * phi).sum(1))


# -- Core-Set --------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [0, 1, 6])
def test_each_core_set_pick_is_farthest_from_all_labeled_and_picked_rows(
    labels: int,
) -> None:
    x, labeled = draws(30, 4), draws(labels, 4, name="labeled")
    centers = list(labeled)
    for row in one(CoreSet(), x, labeled).selected(9)["a"]:
        away = torch.cdist(x, torch.stack(centers)).amin(1) if centers else x.norm(dim=1)
        assert int(away.argmax()) == row
        centers.append(x[row])


def test_rows_that_are_equally_far_come_in_random_order() -> None:
    x = torch.tensor([[0.0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    for strategy in (CoreSet(), LCMD()):
        selected = [
            one(strategy, x, torch.zeros(1, 2), seed).selected(5)["a"] for seed in range(8)
        ]
        assert all(rows[-1] == 0 for rows in selected)  # which equals the labeled example
        assert len({rows[0] for rows in selected}) > 2


# -- BADGE -----------------------------------------------------------------------------


def drawn(x: Tensor, labeled: Tensor, times: int) -> Tensor:
    """Count how often each example was selected first and second: (m, m)."""
    made, count = one(BADGE(sigma=0.1), x, labeled), torch.zeros(len(x), len(x)).double()
    for cycle in range(times):
        first, second = made.selected(2, cycle)["a"]
        count[first, second] += 1
    return count


@pytest.mark.long
def test_badge_draws_by_posterior_distance_after_a_uniform_start() -> None:
    labeled = torch.tensor([[3.0, 0], [-3, 0]]).double()  # the first axis is known
    x = torch.tensor([[0.0, 0], [3, 0.5], [-3, 1], [0, 2]]).double()
    count = drawn(x, labeled, 800)
    assert (count.sum(1) / 800 - 1 / 4).abs().max() < 0.05
    phi, _, m = covariance(with_one(x), with_one(labeled), 0.1)
    k = phi @ m @ phi.T  # posterior covariances, over σ²
    away = k.diagonal()[:, None] + k.diagonal() - 2 * k
    law = away / away.sum(1, keepdim=True)
    assert (count / count.sum(1, keepdim=True) - law).abs().max() < 0.1
    plain = torch.cdist(x, x).square()
    # another distribution
    assert (plain / plain.sum(1, keepdim=True) - law).abs().max() > 0.2


@pytest.mark.long
def test_badge_on_copies_of_one_row_is_uniform() -> None:
    count = drawn(torch.ones(3, 2).double(), torch.zeros(1, 2), 300)
    share = count / count.sum(1, keepdim=True)
    assert float(share.diagonal().sum()) == 0
    assert (share - (1 - torch.eye(3)) / 2).abs().max() < 0.2


# -- LoGo ------------------------------------------------------------------------------


def test_logo_takes_of_each_cluster_the_row_whose_label_says_most() -> None:
    x, labeled = draws(30, 2), draws(3, 2, name="labeled")
    x[10:20, 0] += 40
    x[20:, 1] += 40
    score = gain(x, labeled)
    best = [at + int(score[at : at + 10].argmax()) for at in (0, 10, 20)]
    selected = one(LoGo(), x, labeled).selected(3)["a"]
    assert sorted(selected) == best
    assert selected == sorted(best, key=lambda row: -float(score[row]))


def test_what_empty_clusters_leave_goes_to_the_most_uncertain_rows() -> None:
    order = fill_empty_clusters(
        torch.tensor([2, 2, 0, 2, 0, 1]), torch.tensor([9, 8, 7, 6, 5, 4])
    )
    assert order.tolist() == [9, 7, 4, 8, 6, 5]
    x = draws(3, 2).repeat(3, 1)  # three distinct examples: three clusters
    kinds = gain(x[:3], x[:1]).argsort(descending=True).tolist()
    selected = one(LoGo(), x, x[:1]).selected(6)["a"]
    assert len(set(selected)) == 6
    assert [row % 3 for row in selected] == [*kinds, kinds[0], kinds[0], kinds[1]]


# -- all six ---------------------------------------------------------------------------


def deep(strategy: Any, x: Tensor, labeled: int) -> tuple[Simulation, dict[str, Tensor]]:
    """Return a site with two networks and the features of each: (m, 4).

    Its last examples are labeled.
    """
    made = one(strategy, x[:-labeled], x[-labeled:])
    site, model = made.members["a"], MLP((x.shape[1],), 1, hidden=(4,)).double()
    layout, tensors = Layout.of(model), {}
    for name in ("local", "global"):
        model.reset(stream(0, name))
        site.memory[name] = layout.flatten(model)
        tensors[name] = look(model, layout, site.memory[name], x)[0]
    site.parts = replace(site.parts, model=model, layout=layout)
    return made, tensors


@pytest.mark.parametrize("strategy", [CoreSet, BADGE, LCMD, BAIT, ACSFW])
@pytest.mark.parametrize("model", ["local", "global"])
def test_features_are_those_of_the_named_model(strategy: Any, model: str) -> None:
    made, features = deep(strategy(model), draws(46, 6), 6)
    z = features[model]
    assert made.selected(5) == one(strategy(model), z[:-6], z[-6:]).selected(5)


def test_logo_clusters_by_the_local_model_and_scores_by_the_global_one() -> None:
    made, features = deep(LoGo(), draws(46, 6), 6)
    z, score = (
        features["local"][:-6],
        gain(features["global"][:-6], features["global"][-6:]),
    )
    order = score.argsort(descending=True)
    cluster = cluster_rows(z[order], 4, made.members["a"].streams("k-means", 0))
    best = [int(order[int((cluster == c).nonzero()[0])]) for c in range(4)]
    assert sorted(made.selected(4)["a"]) == sorted(best)


@six
def test_weights_of_a_linear_model_change_nothing(strategy: Any) -> None:
    made, other = (with_numbers(tables(rows=40), strategy) for _ in range(2))
    for site in other.members.values():
        for name in ("local", "global"):
            w = site.memory[name]["w"]
            site.memory[name] = {
                **site.memory[name],
                "w": draws(*w.shape, name=f"{site.id} {name}"),
            }
    assert made.selected(5) == other.selected(5)


@six
@pytest.mark.parametrize("labels", [0, 5])
@pytest.mark.parametrize("budget", [1, 5, 9, 20])
def test_picks_are_different_rows_of_the_pool(
    strategy: Any, labels: int, budget: int
) -> None:
    x, labeled = draws(9, 4), draws(labels, 4, name="labeled")
    made = [one(strategy, x, labeled).selected(budget)["a"] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) == len(made[0]) == min(budget, 9)
    assert set(made[0]) <= set(range(9))


@six
def test_copies_are_still_different_picks(strategy: Any) -> None:
    x = draws(4, 4).repeat(3, 1)
    for labeled in (x[:0], x[:2]):
        assert len(set(one(strategy, x, labeled).selected(9)["a"])) == 9


@pytest.mark.parametrize(
    "strategy", [LCMD(), BAIT(), BAIT(forward_only=True), ACSFW()], ids=str
)
@pytest.mark.parametrize("rows", range(30, 38))
def test_of_copies_one_is_picked_by_chance(strategy: Any, rows: int) -> None:
    x, labeled = draws(rows, 6), draws(4, 6, name="labeled")
    twice = [
        one(strategy, torch.cat([x, x]), labeled, seed).selected(4)["a"]
        for seed in range(5)
    ]
    assert len({tuple(row % rows for row in selected) for selected in twice}) == 1
    assert len({tuple(selected) for selected in twice}) > 1


@six
def test_rows_that_are_not_finite_are_last_and_say_nothing(strategy: Any) -> None:
    x, labeled = draws(12, 4), draws(4, 4, name="labeled")
    spoilt, known = x.clone(), torch.cat([labeled, labeled[:1]])
    spoilt[2, 0], spoilt[5, 1], known[-1] = torch.nan, torch.inf, torch.nan
    kept = [row for row in range(12) if row not in (2, 5)]
    selected = one(strategy, spoilt, known).selected(12)["a"]
    assert set(selected[-2:]) == {2, 5} and sorted(selected) == list(range(12))
    if not isinstance(strategy, LoGo):  # ties are drawn for every example
        assert selected[:10] == [
            kept[at] for at in one(strategy, x[kept], labeled).selected(10)["a"]
        ]


@six
def test_features_that_are_all_nan_are_an_error_that_says_so(strategy: Any) -> None:
    nan = torch.full((4, 4), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 examples are NaN or infinite"):
        one(strategy, nan, draws(2, 4)).selected(2)


@six
def test_a_model_in_single_precision_is_chosen_for_in_double(strategy: Any) -> None:
    x, labeled = draws(40, 4).float(), draws(6, 4, name="labeled").float()
    made = one(strategy, x.double(), labeled.double())
    single = one(strategy, x.double(), labeled.double())
    site = single.members["a"]
    assert isinstance(site.seen, Tensor)
    site.x = site.x.float()
    site.seen = site.seen.float()
    site.parts = replace(site.parts, model=site.parts.model.float())
    for name in ("local", "global"):
        site.memory[name] = {key: value.float() for key, value in site.memory[name].items()}
    assert made.selected(8) == single.selected(8)
