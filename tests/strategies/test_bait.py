"""BAIT for one output: select examples that minimize the predictive variance."""

from __future__ import annotations

import mpmath  # installed with torch
import numpy as np
import pytest
import torch

import fallow as fl
from fallow.strategies import BAIT
from fallow.strategies.bait import Backward, Forward, forward_backward
from fallow.strategies.parts.posterior import TIED, LastLayer, Reduction, with_one
from fallow.strategies.parts.top import first_best
from tests.contracts.numbers import with_numbers
from tests.simulations import Table, simulation, tables
from tests.strategies.regression import draws

SIGMAS = (1e-3, 0.1)


def rows(m: int, labels: int, d: int, seed: int = 0) -> LastLayer:
    x = with_one(draws(m + labels, d, seed=seed))
    return LastLayer(x[:m], x[m:], torch.arange(m))


def plain(layer: LastLayer, n: int, more: int, sigma: float) -> list[int]:
    """Select by the definition, with an inverse and a trace for every candidate."""
    scale = (
        (layer.labeled if len(layer.labeled) else layer.pool).square().sum(1).mean().sqrt()
    )
    pool, labeled = layer.pool / scale, layer.labeled / scale
    fisher = pool.T @ pool + labeled.T @ labeled
    noise = sigma**2 * torch.eye(pool.shape[1], dtype=torch.float64)

    def trace(selected: list[int]) -> float:
        known = torch.cat([labeled, pool[selected]])
        return float(torch.linalg.solve(known.T @ known + noise, fisher).trace())

    selected: list[int] = []
    for _ in range(more):
        others = [j for j in range(len(pool)) if j not in selected]
        selected.append(min(others, key=lambda j: trace([*selected, j])))
    while len(selected) > n:
        selected.remove(min(selected, key=lambda j: trace([i for i in selected if i != j])))
    return selected


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("forward_only", [True, False])
@pytest.mark.parametrize("labels", [1, 8])
def test_picks_are_those_of_the_definition(
    sigma: float, forward_only: bool, labels: int
) -> None:
    table = tables(rows=30)["a"]
    made = with_numbers(
        {"a": Table(table.local, table.common, table.labels[:labels])},
        BAIT("local", forward_only, sigma),
    )
    site = made.members["a"]
    last_layer = LastLayer(
        with_one(site.x[site.pool]), with_one(site.x[site.labeled]), site.pool
    )
    assert made.selected(6)["a"] == plain(last_layer, 6, 6 if forward_only else 12, sigma)


def test_without_labels_the_pool_gives_the_scale() -> None:
    result = rows(25, 0, 3)
    selected = forward_backward(Reduction.of(result, 0.1), 4, 8)
    assert selected.tolist() == plain(result, 4, 8, 0.1)


def test_taking_back_changes_what_is_picked() -> None:
    both = [
        with_numbers(tables(rows=40), BAIT(forward_only=f)).selected(3)
        for f in (True, False)
    ]
    assert both[0] != both[1]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_gain_is_the_fall_of_the_trace_and_the_loss_its_rise(sigma: float) -> None:
    layer = rows(20, 5, 3)
    before = Reduction.of(layer, sigma)
    scale = layer.labeled.square().sum(1).mean().sqrt()
    pool, labeled = layer.pool / scale, layer.labeled / scale
    fisher = pool.T @ pool + labeled.T @ labeled
    noise = sigma**2 * torch.eye(4, dtype=torch.float64)
    m = torch.linalg.inv(labeled.T @ labeled + noise)
    trace = [
        (torch.linalg.inv(torch.linalg.inv(m) + torch.outer(x, x)) @ fisher).trace()
        for x in pool
    ]
    fall = (m @ fisher).trace() - torch.stack(trace)
    torch.testing.assert_close(before.gain(), fall, rtol=1e-6, atol=0)
    rise = Backward(before.phi[:5], before.root).losses()[4]
    without = torch.cat([labeled, pool[:4]])
    known = [torch.cat([without, pool[4:5]]), without]
    low, high = [torch.linalg.solve(x.T @ x + noise, fisher).trace() for x in known]
    torch.testing.assert_close(rise, high - low, rtol=1e-6, atol=0)


def label_example(before: Reduction, j: int) -> Reduction:
    """Return the reduction after example ``j`` is labeled, by the Sherman-Morrison formula."""
    step = before.m_phi @ before.phi[j]
    step = step / (1 + step[j])
    return Reduction(
        before.phi,
        before.m_phi - torch.outer(step, before.m_phi[j]),
        before.r_m_phi - torch.outer(step, before.r_m_phi[j]),
        before.root,
    )


def remove_exactly(layer: LastLayer, selected: list[int], n: int) -> list[int]:
    """Remove all but ``n`` examples by the definition, with 80 digits."""
    with mpmath.workdps(80):
        pool = mpmath.matrix(layer.pool.tolist())
        labeled = mpmath.matrix(layer.labeled.tolist())
        square = mpmath.fsum(x**2 for x in labeled) / labeled.rows
        fisher = pool.T * pool + labeled.T * labeled
        known = labeled.T * labeled + mpmath.mpf(1e-3) ** 2 * square * mpmath.eye(pool.cols)
        kept = list(selected)
        phi = {j: pool[j, :].T for j in kept}
        for j in kept:
            known += phi[j] * phi[j].T
        covariance = known**-1
        while len(kept) > n:
            losses = {}
            for j in kept:
                m_phi = covariance * phi[j]
                reward = (m_phi.T * fisher * m_phi)[0]
                losses[j] = reward / (1 - (phi[j].T * m_phi)[0])
            cheapest = min(kept, key=lambda j: losses[j])
            m_phi = covariance * phi[cheapest]
            covariance += m_phi * m_phi.T / (1 - (phi[cheapest].T * m_phi)[0])
            kept.remove(cheapest)
    return kept


@pytest.mark.parametrize("longer", [1, 10, 1000, 1e6])
def test_long_examples_are_removed_as_in_exact_arithmetic(longer: float) -> None:
    """1 - φ'Mφ has few correct digits, or none, if it is computed as a difference."""
    z = torch.tensor(np.random.default_rng(0).normal(size=(33, 12)))
    layer = LastLayer(with_one(longer * z[:30]), with_one(z[30:]), torch.arange(30))
    reduction = Reduction.of(layer, 1e-3)
    selected = forward_backward(reduction, 12, 12).tolist()
    kept = forward_backward(reduction, 4, 12).tolist()
    assert kept == remove_exactly(layer, selected, 4)


def test_bait_selects_the_examples_of_the_exact_computation() -> None:
    z = np.random.default_rng(0).normal(size=(33, 12))
    z[:30] *= 10
    selected = fl.select(z[:30], BAIT(), labeled=(z[30:], np.linspace(0.1, 1.3, 3)), n=4)
    assert set(selected.tolist()) == {19, 25, 28, 29}


def test_copies_of_a_long_example_are_removed_until_one_is_left() -> None:
    x = with_one(1e6 * draws(3, 4).repeat(2, 1))
    backward = Backward(x, torch.eye(5, dtype=torch.float64))
    for _ in range(3):
        backward.remove(backward.find_cheapest())
    kept = backward.is_kept.nonzero().squeeze(1)
    assert sorted((kept % 3).tolist()) == [0, 1, 2]


def one_by_one(rows: Reduction, n: int) -> list[int]:
    """Select greedily with new matrices in each step."""
    is_taken = torch.zeros(len(rows.phi), dtype=torch.bool)
    selected = []
    for _ in range(n):
        gain = rows.gain().masked_fill(is_taken, -torch.inf)
        selected.append(first_best(gain, torch.arange(len(gain)), TIED))
        rows = label_example(rows, selected[-1])
        is_taken[selected[-1]] = True
    return selected


@pytest.mark.parametrize("labels", [0, 2, 40])  # some directions unknown, none unknown
@pytest.mark.parametrize("pending", [1, 5, 32])
@pytest.mark.parametrize("many", [1, 256])
def test_matrices_that_lag_behind_change_no_pick(
    labels: int, pending: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.strategies.bait.PENDING", pending)
    monkeypatch.setattr("fallow.strategies.bait.MANY", many)
    before = Reduction.of(rows(150, labels, 20), 1e-3)
    assert forward_backward(before, 80, 80).tolist() == one_by_one(before, 80)


def test_rows_that_occur_often_are_picked_as_one_by_one() -> None:
    x = draws(12, 4).repeat(30, 1)
    last_layer = LastLayer(with_one(x), with_one(x[:2]), torch.arange(len(x)))
    before = Reduction.of(last_layer, 1e-3)
    assert forward_backward(before, 50, 50).tolist() == one_by_one(before, 50)


def test_what_is_read_after_picks_is_what_each_pick_leaves() -> None:
    before = Reduction.of(rows(60, 3, 8), 1e-3)
    forward = Forward(before)
    for j in (4, 17, 51):
        forward.take(j)
        before = label_example(before, j)
    reduced = forward.read_rows(torch.arange(60))
    for name in ("m_phi", "r_m_phi"):
        largest = float(getattr(before, name).abs().max())
        torch.testing.assert_close(
            getattr(reduced, name), getattr(before, name), rtol=0, atol=1e-9 * largest
        )


def test_more_than_there_is_takes_all_in_the_order_of_picking() -> None:
    values = Reduction.of(rows(5, 2, 3), 0.1)
    order = forward_backward(values, 5, 5).tolist()
    assert sorted(order) == list(range(5))
    assert forward_backward(values, 9, 18).tolist() == order
    assert set(forward_backward(values, 3, 6).tolist()) < set(order)


def test_copies_of_one_row_are_different_picks() -> None:
    x = with_one(torch.ones(7, 3))
    reduction = Reduction.of(LastLayer(x, x[:2], torch.arange(7)), 1e-3)
    assert len(set(forward_backward(reduction, 4, 8).tolist())) == 4


def test_classes_are_refused_with_what_to_use_instead() -> None:
    with pytest.raises(RuntimeError, match=r"BAIT is for numbers.* 3 classes; use badge"):
        simulation(tables(), BAIT()).selected(3)
