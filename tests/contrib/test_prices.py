"""Class prices: the target distribution, and convergence to it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.contrib import Prices
from fallow.contrib.prices import TURNS, even_out
from fallow.core.streams import stream
from tests.simulations import Simulation, Table, simulation, tables


def plain_even_out(labels: list[int], n: int) -> list[int]:
    """Give one label at a time to a class with the fewest labels."""
    have = list(labels)
    for _ in range(n):
        have[have.index(min(have))] += 1
    return [now - before for now, before in zip(have, labels, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_wanted_labels_are_those_of_one_at_a_time(seed: int) -> None:
    labels = torch.randint(0, 12, (5,), generator=stream(seed, "labels"))
    for n in (0, 1, 7, 60):
        evened = even_out(labels.double(), n)
        assert float(evened.sum()) == pytest.approx(n)
        plain = torch.tensor(plain_even_out(labels.tolist(), n)).double()
        # integer labels, so off by less than one
        assert float((evened - plain).abs().max()) < 1


def skewed(seed: int, rows: int = 300) -> Table:
    """Return examples with predicted classes in the ratio 80:15:5 and random margins."""
    draw = stream(seed, "skewed")
    classes = torch.multinomial(
        torch.tensor([0.8, 0.15, 0.05]).double(), rows, replacement=True, generator=draw
    )
    logits = 0.3 * torch.randn(rows, 3, generator=draw, dtype=torch.float64)
    logits[torch.arange(rows), classes] += 3 * torch.rand(rows, generator=draw).double() + 1
    return Table(logits, logits, [0, 1, 2])


def predicted(federation: Simulation, sites: dict[str, Table]) -> Tensor:
    """Return the number of selected examples per predicted class."""
    counts = torch.zeros(3)
    for name, rows in federation.selected(20).items():
        counts += torch.bincount(sites[name].common[rows].argmax(1), minlength=3)
    return counts


def test_prices_buy_what_is_wanted_where_classes_are_rare() -> None:
    sites = {name: skewed(seed) for seed, name in enumerate("abc")}
    federation = simulation(sites, Prices())
    with_prices = predicted(federation, sites)
    memo = federation.query(20)
    least_sure = torch.zeros(3)
    for table in sites.values():
        two = table.common.softmax(1).topk(2, 1).values
        rows = (two[:, 0] - two[:, 1]).argsort()[:20]
        least_sure += torch.bincount(table.common[rows].argmax(1), minlength=3)
    wanted = torch.full((3,), 20.0)
    assert float((with_prices - wanted).abs().sum()) < 0.5 * float(
        (least_sure - wanted).abs().sum()
    )
    assert memo["notes"]["met"] == pytest.approx(
        float(torch.minimum(with_prices, wanted).sum())
    )


def test_where_all_is_met_at_once_prices_stay_0() -> None:
    logits = torch.zeros(30, 3).double()
    for row in range(30):
        logits[row, row % 3] = 1 + 0.1 * (row // 3)
    even = Table(logits, logits, [0, 1, 2])
    memo = simulation({"a": even}, Prices()).query(6)
    assert memo["notes"] == {"prices": [0.0, 0.0, 0.0], "met": 6.0}


def test_a_site_spends_its_budget_and_one_without_any_takes_no_part() -> None:
    selected = simulation(tables(), Prices()).selected({"a": 5, "b": 2, "c": 0})
    assert {name: len(rows) for name, rows in selected.items()} == {"a": 5, "b": 2}


def test_a_site_cannot_say_that_it_takes_more_than_any_may() -> None:
    class Greedy:
        def __init__(self, federation: Simulation) -> None:
            self.channel = federation.channel
            self.sites = self.channel.sites

        def exchange(self, requests, routes=None):  # type: ignore[no-untyped-def]
            done = self.channel.exchange(requests, routes)
            if requests["a"].steps[-1].function == "demand":
                done.replies["b"]["counts"] = torch.tensor([9.0, 0.0, 0.0]).double()
            return done

    federation = simulation(tables(), Prices())
    ask = federation.ask()
    ask.channel = Greedy(federation)
    with pytest.raises(ValueError, match="site b replied to 'demand' with counts beyond"):
        Prices().query(ask, dict.fromkeys("abc", 4), {})


def test_five_prices_are_told() -> None:
    federation = simulation(tables(), Prices())
    federation.query(3)
    demands = [row for row in federation.shown.rows() if row["function"] == "demand"]
    assert sum(int(row["exchanges"]) for row in demands) == TURNS
