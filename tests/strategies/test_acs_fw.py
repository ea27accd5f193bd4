"""ACS-FW: a batch whose weighted sum approximates the sum over the pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.strategies import ACSFW
from fallow.strategies.acs_fw import frank_wolfe
from fallow.strategies.parts.posterior import LastLayer, with_one
from tests.contracts.numbers import with_numbers
from tests.simulations import Table, simulation, tables
from tests.strategies.regression import draws


def kernel(pool: Tensor, labeled: Tensor, sigma: float) -> Tensor:
    """Compute (φ'φ̃)(φ'Σφ̃) for all pairs of examples."""
    scale = (labeled if len(labeled) else pool).square().sum(1).mean().sqrt()
    pool, labeled = pool / scale, labeled / scale
    noise = sigma**2 * torch.eye(pool.shape[1], dtype=torch.float64)
    inverse: Tensor = torch.linalg.inv(labeled.T @ labeled + noise)
    return (pool @ pool.T) * (pool @ inverse @ pool.T)


def plain(k: Tensor, n: int) -> tuple[list[int], Tensor]:
    """Run Algorithm 1 on the full kernel; return selections and all weights."""
    length = k.diagonal().sqrt()
    selected: list[int] = []
    one = torch.ones(len(k), dtype=k.dtype)
    w = torch.zeros(len(k), dtype=k.dtype)
    for _ in range(n):
        score = k @ (one - w) / length
        score[selected] = -torch.inf
        f = int(score.argmax())
        to_f = torch.zeros_like(w)
        to_f[f] = length.sum() / length[f]
        toward = to_f - w
        w = w + (toward @ k @ (one - w)) / (toward @ k @ toward) * toward
        selected.append(f)
    return selected, w


@pytest.mark.parametrize("sigma", [1e-3, 0.1])
@pytest.mark.parametrize("labels", [0, 1, 8])
def test_picks_are_those_of_the_definition(sigma: float, labels: int) -> None:
    table = tables(rows=40)["a"]
    site = Table(table.local, table.common, table.labels[:labels])
    made = with_numbers({"a": site}, ACSFW(sigma=sigma))
    pool, labeled = (
        with_one(made.members["a"].x[at]) for at in (slice(40), slice(40, None))
    )
    assert made.selected(12)["a"] == plain(kernel(pool, labeled, sigma), 12)[0]


def test_picks_with_their_weights_come_closer_to_the_whole_pool() -> None:
    x = with_one(draws(60, 3))
    k = kernel(x[10:], x[:10], 0.1)
    one = torch.ones(50, dtype=torch.float64)
    away = [
        float((one - w) @ k @ (one - w)) for w in (plain(k, n)[1] for n in (0, 1, 3, 10))
    ]
    assert away[0] > away[1] > away[2] > away[3]


def test_neither_scale_matters() -> None:
    x, z = draws(30, 3), draws(30, 3, name="z")
    assert torch.equal(frank_wolfe(x, z, 8), frank_wolfe(1e3 * x, 1e-4 * z, 8))


def test_rows_of_length_zero_come_last() -> None:
    x = draws(8, 3)
    x[2], x[5] = 0, 0
    assert frank_wolfe(x, draws(8, 3, name="z"), 8)[-2:].tolist() == [2, 5]
    assert frank_wolfe(0 * x, x, 3).tolist() == [0, 1, 2]


def test_copies_of_one_row_are_different_picks() -> None:
    for seed in range(20):
        x = draws(1, 5, seed=seed).repeat(60, 1)  # a single selection is the whole pool
        assert len(set(frank_wolfe(x, x, 50).tolist())) == 50


def test_more_than_there_is_takes_all_in_the_order_of_picking() -> None:
    x, z = draws(6, 3), draws(6, 3, name="z")
    assert sorted(frank_wolfe(x, z, 9).tolist()) == list(range(6))
    assert torch.equal(frank_wolfe(x, z, 9)[:4], frank_wolfe(x, z, 4))


def test_no_matrix_of_all_pairs_is_built() -> None:
    many = LastLayer(
        with_one(draws(200_000, 2)), with_one(draws(5, 2)), torch.arange(200_000)
    )
    selected = frank_wolfe(many.pool, many.posterior(0.1).pool, 3)  # 320 GB otherwise
    assert len(set(selected.tolist())) == 3


def test_classes_are_refused_with_what_to_use_instead() -> None:
    with pytest.raises(RuntimeError, match=r"ACSFW is for numbers.* 3 classes; use badge"):
        simulation(tables(), ACSFW()).selected(3)
