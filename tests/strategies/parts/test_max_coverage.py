import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.strategies.parts.max_coverage import (
    maximize_coverage,
    square_distances,
    unit_length,
)


def gaussian(square: Tensor) -> Tensor:
    return (-square / 0.25).exp()


def naive(x: Tensor, labeled: Tensor, weight: Tensor, n: int) -> list[int]:
    """Recompute every gain for each selection."""
    similar = gaussian(torch.cdist(x, x).square())
    covered = torch.zeros(len(x), dtype=x.dtype)
    if len(labeled):
        covered = gaussian(torch.cdist(x, labeled).square()).amax(1)
    selected: list[int] = []
    for _ in range(n):
        gains = weight @ (similar - covered[:, None]).clamp_min(0)
        gains[selected] = -torch.inf
        best = int(gains.argmax())
        selected.append(best)
        covered = torch.maximum(covered, similar[:, best])
    return selected


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=stream(seed, "x"), dtype=torch.float64)


def test_bounds_give_the_selection_of_all_gains() -> None:
    for seed in range(5):
        x = unit_length(draw(300, 5, seed=seed))
        labeled = unit_length(draw(seed * 3, 5, seed=9))
        weight = draw(300, seed=seed + 20).abs()
        selected = maximize_coverage(x, labeled, gaussian, weight, 40, stream(1, "ties"))
        assert selected.tolist() == naive(x, labeled, weight, 40)


def test_equal_gains_are_ordered_at_random() -> None:
    x = torch.eye(6, dtype=torch.float64)
    firsts = set()
    for seed in range(30):
        selected = maximize_coverage(
            x, x[:0], gaussian, torch.ones(6), 6, stream(seed, "ties")
        )
        assert sorted(selected.tolist()) == list(range(6))
        firsts.add(int(selected[0]))
    assert len(firsts) > 3


def test_examples_without_weight_need_not_be_covered() -> None:
    x = torch.tensor([[0.0], [0.1], [9.0]], dtype=torch.float64)
    weight = torch.tensor([0.0, 0.0, 1.0])
    selected = maximize_coverage(x, x[:0], gaussian, weight, 1, stream(0, "ties"))
    assert selected.tolist() == [2]


def test_squared_distances_are_those_of_the_definition() -> None:
    x = draw(7, 3)
    y = draw(4, 3, seed=1)
    torch.testing.assert_close(square_distances(x, y), torch.cdist(x, y).square())


def test_rows_of_any_size_get_unit_length() -> None:
    x = torch.tensor([[3.0, 4.0], [3e200, 4e200], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(unit_length(x), expected)


def test_copies_of_covered_examples_follow_in_random_order() -> None:
    x = torch.ones(50, 2, dtype=torch.float64)
    orders = set()
    for seed in range(3):
        selected = maximize_coverage(
            x, x[:1], gaussian, torch.ones(50), 50, stream(seed, "ties")
        )
        assert sorted(selected.tolist()) == list(range(50))
        orders.add(tuple(selected.tolist()))
    assert len(orders) == 3


def test_of_many_equal_gains_only_those_that_come_first_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fallow.strategies.parts.max_coverage.COLUMNS", 0)
    similarities = 0

    def is_near(square: Tensor) -> Tensor:
        nonlocal similarities
        similarities += square.numel()
        return (square < 0.5).to(square)

    x = torch.eye(400)  # no example is near another one
    ties = stream(0, "ties")
    selected = maximize_coverage(x, x[:0], is_near, torch.ones(400), 20, ties)
    assert len(set(selected.tolist())) == 20
    assert similarities < 2 * 400**2


def test_of_equal_gains_the_densest_example_comes_first() -> None:
    x = torch.tensor([[0.0], [5.0], [6.0], [6.1]], dtype=torch.float64)

    def is_near(square: Tensor) -> Tensor:
        return (square <= 1.2).to(square)

    # Each of 0, 5 and 6 adds one example; 6 is similar to most.
    selected = maximize_coverage(x, x[3:], is_near, torch.ones(4), 1, stream(0, "ties"))
    assert selected.tolist() == [2]
