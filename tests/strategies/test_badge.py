import pytest
import torch

from fallow.strategies import BADGE
from fallow.strategies.parts.kmeans import residuals
from tests.simulations import Table, simulation, tables


def test_the_first_pick_has_the_largest_gradient() -> None:
    site = tables()["a"]
    q = residuals(site.local.softmax(1))
    z = torch.cat([site.local, site.common], 1)
    full = torch.einsum("nc,nd->ncd", q, z).flatten(1)
    assert simulation({"a": site}, BADGE()).selected(3)["a"][0] == int(
        full.norm(dim=1).argmax()
    )


def test_of_rows_without_a_gradient_at_most_one_is_picked() -> None:
    local = torch.zeros(12, 3, dtype=torch.float64)
    local[3:, 0] = (
        60.0  # the gradients of these examples vanish, so they coincide at the origin
    )
    site = Table(local, torch.arange(36.0, dtype=torch.float64).view(12, 3), [0, 1])
    for seed in range(10):
        selected = simulation({"a": site}, BADGE(), seed).selected(4)["a"]
        assert sum(row >= 3 for row in selected) == 1


def test_the_other_model_makes_other_gradients() -> None:
    site = tables(rows=40)["a"]
    by = {
        m: simulation({"a": site}, BADGE(m)).selected(8)["a"] for m in ("local", "global")
    }
    assert by["local"] != by["global"]


def test_rows_that_are_not_finite_come_last() -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    for seed in range(5):
        selected = simulation(
            {"a": Table(local, site.common, [0])}, BADGE(), seed
        ).selected(12)["a"]
        assert sorted(selected) == list(range(12)) and set(selected[-2:]) == {2, 5}


def test_gradients_that_are_all_nan_are_an_error_that_says_so() -> None:
    nan = torch.full((4, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, BADGE()).selected(2)


def test_among_equally_large_gradients_chance_decides_the_first_pick() -> None:
    site = tables()["a"].rows(torch.zeros(12, dtype=torch.int64))
    firsts = {
        simulation({"a": site}, BADGE(), seed).selected(1)["a"][0] for seed in range(20)
    }
    assert len(firsts) > 5
