"""Draws by exponential clocks are draws with replacement."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from fallow.core.streams import stream
from fallow.strategies.fale import (
    BINS,
    LATEST,
    Clocks,
    edges,
    poisson,
    start_clocks,
)

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)


def wound(seed: int, rate: torch.Tensor = P) -> Clocks:
    return start_clocks(rate, stream(seed, "clocks"))


def test_rows_come_in_the_order_of_draws_with_replacement() -> None:
    # the probability that examples i and then j are the first two distinct ones is p_i p_j
    # / (1 - p_i)
    seen: dict[tuple[int, int], int] = {}
    for seed in range(1500):
        first = tuple(wound(seed).order[:2].tolist())
        seen[first] = seen.get(first, 0) + 1
    pairs = list(permutations(range(4), 2))
    expected = [1500 * float(P[i] * P[j] / (1 - P[i])) for i, j in pairs]
    squares = [
        (seen.get(pair, 0) - e) ** 2 / e for pair, e in zip(pairs, expected, strict=True)
    ]
    assert sum(squares) < 37.4  # chi-square with 11 degrees of freedom, p = 1e-4


def one_by_one(seed: int, different: int) -> tuple[int, torch.Tensor]:
    """Draw one at a time; return the draws and the count of each example."""
    draw, times = stream(seed, "one by one"), torch.zeros(4)
    while int((times > 0).sum()) < different:
        times[torch.multinomial(P, 1, generator=draw)] += 1
    return int(times.sum()), times


def by_clocks(seed: int, different: int) -> tuple[int, torch.Tensor]:
    made = wound(seed)
    end = float(made.first[made.order[different - 1]].log())
    times = made.strikes(end, stream(seed, "strikes"))
    return int(times.sum()), times.float()


@pytest.mark.long
@pytest.mark.parametrize("different", [2, 3])
def test_rows_come_as_often_as_when_they_are_drawn_one_by_one(different: int) -> None:
    ours = [by_clocks(seed, different) for seed in range(500)]
    plain = [one_by_one(seed, different) for seed in range(500)]
    for of in (lambda sample: sample[1], lambda sample: torch.tensor([sample[0] ** 2.0])):
        a, b = (torch.stack([of(values) for values in many]) for many in (ours, plain))
        error = ((a.var(0) + b.var(0)) / 500).sqrt()
        assert bool(((a.mean(0) - b.mean(0)).abs() < 4.5 * error).all())


def test_the_draw_that_ends_it_is_of_a_row_that_was_not_there() -> None:
    for seed in range(50):
        made = wound(seed)
        last = made.order[2]
        end = float(made.first[last].log())
        struck = made.strikes(end, stream(seed, "strikes"))
        assert struck[last] == 1 and int((struck > 0).sum()) == 3
        assert torch.equal(struck > 0, made.is_drawn(end))


def test_a_row_of_rate_0_is_never_drawn_and_comes_last() -> None:
    made = wound(0, torch.tensor([0.0, 2.0, 0.0]).double())
    assert made.order.tolist() == [1, 0, 2] and made.reachable == 1
    assert made.is_drawn(torch.inf).tolist() == [False, True, False]
    assert made.strikes(50.0, stream(0, "strikes"))[[0, 2]].tolist() == [0, 0]


def test_equal_streams_wind_equal_clocks_whatever_the_unit_of_rates() -> None:
    assert torch.equal(wound(3).first, wound(3).first)
    assert torch.equal(wound(3).order, wound(3, 1e6 * P).order)


def test_a_bin_of_a_histogram_is_the_whole_of_the_next_one() -> None:
    made = wound(0, torch.rand(20_000, generator=stream(0, "rates"), dtype=torch.float64))
    counts = made.histogram(-LATEST, LATEST)
    assert len(counts) == BINS and int(counts.sum()) == 20_000
    for at in counts.nonzero().flatten()[:20].tolist():
        low, high = edges(-LATEST, LATEST)[at : at + 2].tolist()
        assert int(made.histogram(low, high).sum()) == int(counts[at])


@pytest.mark.long
def test_weights_are_1_on_average() -> None:
    rate = torch.rand(40, generator=stream(0, "rates"), dtype=torch.float64)
    p, weights = rate / rate.sum(), []
    for seed in range(800):
        made = wound(seed, rate)
        struck = made.strikes(
            float(made.first[made.order[5]].log()), stream(seed, "strikes")
        )
        weights.append(struck / (struck.sum() * p))
    mean_weights = torch.stack(weights)
    error = mean_weights.mean(1).std() / 800**0.5
    assert (
        abs(float(mean_weights.mean()) - 1) < 4 * float(error) + 0.01
    )  # the end depends on the draws


@pytest.mark.parametrize("mean", [0.0, 0.3, 4.0, 2000.0])
def test_poisson_numbers_have_their_mean_and_variance(mean: float) -> None:
    u = torch.rand(20_000, generator=stream(0, "u"), dtype=torch.float64)
    draws = poisson(torch.full_like(u, mean), u)
    assert float(draws.mean()) == pytest.approx(mean, abs=4 * (mean / 20_000) ** 0.5)
    assert float(draws.var()) == pytest.approx(mean, rel=0.05)


def test_last_bits_of_a_rate_or_of_the_end_change_no_strike() -> None:
    rate = torch.rand(500, generator=stream(0, "rates"), dtype=torch.float64)
    made, near = wound(1, rate), wound(1, rate * (1 + 1e-14))
    for seed in range(20):
        end = float(made.first[made.order[300]].log())
        times = made.strikes(end, stream(seed, "strikes"))
        assert torch.equal(near.strikes(end + 1e-12, stream(seed, "strikes")), times)
