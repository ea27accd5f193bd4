"""Pivotal sampling: inclusion probabilities, duels, neighbors, and hostile sites."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.messages import Delivered
from fallow.core.streams import stream
from fallow.privacy.settings import noise_refusal
from fallow.sites.store import Label
from fallow.strategies.pivotal import CLOSER, Pivotal, count_capped, meet
from tests.privacy.federation import SECURE, asking
from tests.simulations import Simulation
from tests.strategies.regression import (
    SIZES,
    bought,
    draws,
    equal,
    federation,
    picked,
    shared,
    solve,
    stacked,
    table,
    with_ones,
)

ANYWHERE = Pivotal()
AT_SITES = Pivotal(allot="site")
PER_SITE = 5  # labels of each of the four sites of `table`


# -- reference implementations ---------------------------------------------------------


def plain_sizes(sites: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return q of each example, from the pooled examples of all sites."""
    x = stacked(sites)
    unit = (x - x.mean(0)) / x.std(0, correction=0)
    full = with_ones(unit)
    n, k = full.shape
    inverse = torch.linalg.inv(full.T @ full + 1e-6 * n * torch.eye(k).double())
    h = torch.einsum("ij,jk,ik->i", full, inverse, full)
    q = n * h / (2 * h.sum()) + 0.5
    return shared(q, [len(sites[name]) for name in sorted(sites)])


def plain_chances(sizes: Tensor, n: int) -> Tensor:
    """Return min(1, c q) with sum n, by bisection of c."""
    low = 0.0
    high = float(1 / sizes.min())
    for _ in range(200):
        middle = (low + high) / 2
        if float((middle * sizes).clamp(max=1.0).sum()) < n:
            low = middle
        else:
            high = middle
    return (high * sizes).clamp(max=1.0)


def plain_meetings(chances: list[float], numbers: list[float]) -> list[int]:
    """Run sequential pivotal sampling as in textbooks, updating probabilities in place."""
    p = list(chances)
    i = 0
    for j in range(1, len(p)):
        if p[i] in (0.0, 1.0):
            i = j
            continue
        if p[j] in (0.0, 1.0):
            continue
        total = p[i] + p[j]
        if total < 1:
            if numbers[j] < p[j] / total:
                p[i], p[j] = 0.0, total
            else:
                p[i], p[j] = total, 0.0
        elif numbers[j] < (1 - p[i]) / (2 - total):
            p[i], p[j] = total - 1, 1.0
        else:
            p[i], p[j] = 1.0, total - 1
        if p[i] in (0.0, 1.0):
            i = j
    return [at for at, chance in enumerate(p) if chance > 1 - 1e-9]


def chances_of(simulation: Simulation) -> dict[str, Tensor]:
    return {
        name: site.memory["draw"]["chance"] for name, site in simulation.members.items()
    }


def taken_of(kept: dict[str, dict[str, Tensor]]) -> set[tuple[str, int]]:
    return {(name, row) for name, k in kept.items() for row in k["rows"].tolist()}


# -- inclusion probabilities -----------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 20, 40, 59])
def test_chances_are_half_leverage_of_all_rows_and_add_up_to_the_budget(n: int) -> None:
    sites = table()
    simulation = federation(sites, ANYWHERE)
    picked(simulation, {"a": n, "b": 0, "c": 0, "d": 0})
    plain = plain_chances(stacked(plain_sizes(sites)), n)
    values = torch.cat([chance for _, chance in sorted(chances_of(simulation).items())])
    torch.testing.assert_close(values, plain, rtol=1e-7, atol=1e-9)
    assert float(values.sum()) == pytest.approx(n, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 10, 30, 59, 60, 100])
def test_exactly_the_budget_is_bought_or_all_there_is(n: int) -> None:
    kept = picked(federation(table(), ANYWHERE, seed=n), {"a": n, "b": 0, "c": 0, "d": 0})
    assert sum(len(k["rows"]) for k in kept.values()) == min(n, 60)
    for k in kept.values():
        torch.testing.assert_close(k["weight"], 1 / k["probability"])


def test_a_site_that_spends_its_own_budget_buys_exactly_that() -> None:
    sites = table()
    budget = {"a": 7, "b": 3, "c": 9, "d": 0}
    kept = picked(federation(sites, AT_SITES), budget)
    assert {name: len(k["rows"]) for name, k in kept.items()} == {"a": 7, "b": 3, "c": 3}
    sizes = plain_sizes(sites)
    for name, n in (("a", 7), ("b", 3)):
        plain = plain_chances(sizes[name], n)[kept[name]["rows"]]
        torch.testing.assert_close(kept[name]["probability"], plain, rtol=1e-7, atol=1e-9)


def test_a_budget_of_all_rows_takes_every_row_once_at_weight_1() -> None:
    for strategy in (ANYWHERE, AT_SITES):
        kept = picked(federation(table(), strategy), 30)
        sizes = {name: len(set(k["rows"].tolist())) for name, k in kept.items()}
        assert sizes == dict(zip("abcd", SIZES, strict=True))
        assert all(
            torch.equal(k["weight"], torch.ones(len(k["rows"]))) for k in kept.values()
        )


def test_how_often_a_row_is_taken_is_its_chance() -> None:
    """Check each example over 2,000 independent draws, within 4.5 standard deviations."""
    chances = plain_chances(draws(40, name="sizes").abs() + 0.3, 12).tolist()
    times = torch.zeros(40).double()
    repeats = 2000
    drawn = random.Random(0)  # noqa: S311
    for _ in range(repeats):
        met = meet(chances, [drawn.random() for _ in chances])
        taken = torch.tensor(met.taken)
        if met.last >= 0:
            taken[met.last] = met.left > 0.5
        assert int(taken.sum()) == 12
        times += taken
    p = torch.tensor(chances).double()
    error = (p * (1 - p) / repeats).sqrt()
    assert bool(((times / repeats - p).abs() <= 4.5 * error + 1e-12).all())


@pytest.mark.long
def test_over_sites_too_a_row_is_taken_as_often_as_its_chance_says() -> None:
    sites = table()
    repeats = 200
    times: Counter[tuple[str, int]] = Counter()
    for seed in range(repeats):
        times.update(taken_of(picked(federation(sites, ANYWHERE, seed=seed), PER_SITE)))
    plain = plain_chances(stacked(plain_sizes(sites)), 20)
    by_site = shared(plain, [len(sites[name]) for name in sorted(sites)])
    for name, chance in by_site.items():
        values = torch.tensor([times[name, row] / repeats for row in range(len(chance))])
        error = (chance * (1 - chance) / repeats).sqrt()
        assert bool(((values - chance).abs() <= 4.5 * error + 1e-9).all()), name


@pytest.mark.long
def test_weighted_totals_are_those_of_all_rows_in_the_mean() -> None:
    sites = table()
    values = {name: x.square().sum(1) + 3 for name, x in sites.items()}
    result = []
    for seed in range(200):
        kept = picked(federation(sites, ANYWHERE, seed=seed), PER_SITE)
        parts = [k["weight"] @ values[name][k["rows"]] for name, k in kept.items()]
        result.append(sum(map(float, parts)))
    totals = torch.tensor(result).double()
    error = float(totals.std()) / len(totals) ** 0.5
    whole = float(stacked(values).sum())
    assert abs(float(totals.mean()) - whole) < 4 * error
    assert 4 * error < 0.1 * whole


# -- duels -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_meetings_end_as_in_the_textbook(seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311
    chances = [drawn.random() for _ in range(30)]
    chances[3] = 1.0
    chances[7] = 0.0
    chances[-1] = 0.0
    chances[-1] = 1.0 - sum(chances) % 1  # integer in total
    numbers = [drawn.random() for _ in chances]
    met = meet(chances, numbers)
    taken = list(met.taken)
    if met.last >= 0 and met.left > 0.5:
        taken[met.last] = True
    selected = [at for at, is_taken in enumerate(taken) if is_taken]
    assert selected == plain_meetings(chances, numbers)
    assert len(selected) == round(sum(chances))


def test_what_is_left_is_the_part_of_a_whole_number() -> None:
    met = meet([0.4, 0.5, 0.7], [0.9, 0.9, 0.9])
    assert sum(met.taken) + met.left == pytest.approx(1.6)
    assert met.last >= 0
    assert not met.taken[met.last]
    assert meet([], []).last == -1
    assert meet([0.25], [0.5]).left == 0.25


# -- neighbors -------------------------------------------------------------------------


@pytest.mark.long
def test_neighbors_that_compete_give_steadier_totals_of_what_is_smooth() -> None:
    x = torch.linspace(-1, 1, 200).double()[
        torch.randperm(200, generator=torch.Generator())
    ]
    sites = {"a": x[:120, None], "b": x[120:, None]}
    values = {name: rows.squeeze(1).exp() for name, rows in sites.items()}
    spreads = []
    for strategy in (Pivotal(), Pivotal(tree=False)):
        outcome = []
        for seed in range(60):
            kept = picked(federation(sites, strategy, seed=seed), 10)
            parts = [k["weight"] @ values[name][k["rows"]] for name, k in kept.items()]
            outcome.append(sum(map(float, parts)))
        spreads.append(float(torch.tensor(outcome).std()))
    assert spreads[0] < 0.5 * spreads[1]


# -- over sites ------------------------------------------------------------------------


def test_units_of_columns_do_not_change_a_pick() -> None:
    sites = table()
    scale = torch.diag(torch.tensor([1e-3, 1, 1e4, 7, 2]).double())
    turned = {name: x @ scale - 50 for name, x in sites.items()}
    assert equal(*(picked(federation(s, ANYWHERE), 4) for s in (sites, turned)))


def test_secure_sums_buy_the_same_rows() -> None:
    for strategy in (ANYWHERE, AT_SITES):
        plain = picked(federation(table(), strategy), PER_SITE)
        simulation = federation(table(), strategy, privacy=SECURE)
        strategy.query(asking(simulation), dict.fromkeys("abcd", PER_SITE), {})
        masked = {
            name: site.memory["selected"] for name, site in simulation.members.items()
        }
        assert taken_of(plain) == taken_of(masked)


def test_a_site_without_rows_takes_no_part() -> None:
    sites = table()
    simulation = federation(sites, ANYWHERE)
    simulation.members["c"].buy([Label(row, 0.0, 0) for row in range(3)])
    kept = picked(simulation, PER_SITE)
    assert "c" not in kept
    assert sum(len(k["rows"]) for k in kept.values()) == 20


def test_weights_reach_the_solver() -> None:
    sites = table()
    slope = draws(5, name="slope")
    y = {name: x @ slope + x[:, 0] ** 2 for name, x in sites.items()}
    simulation = federation(sites, ANYWHERE)
    kept = picked(simulation, PER_SITE)
    names = sorted(kept)
    x = torch.cat([sites[name][kept[name]["rows"]] for name in names])
    w = torch.cat([kept[name]["weight"] for name in names]).sqrt()
    target = torch.cat([y[name][kept[name]["rows"]] for name in names])
    plain = torch.linalg.lstsq(w[:, None] * with_ones(x), (w * target)[:, None]).solution
    torch.testing.assert_close(
        solve(bought(simulation, y)), plain.squeeze(1), rtol=0, atol=1e-9
    )


def test_a_choice_that_is_none_is_refused() -> None:
    with pytest.raises(
        ValueError, match="Pivotal's allot is 'anywhere'; it must be 'site' or 'federation'"
    ):
        Pivotal(allot="anywhere")  # type: ignore[arg-type]


# -- hostile sites ---------------------------------------------------------------------


class Lying:
    """Transport at which site b changes one field of one reply."""

    def __init__(self, channel: Any, function: str, name: str, value: float) -> None:
        self.channel = channel
        self.sites = channel.sites
        self.function = function
        self.name = name
        self.value = value

    def exchange(self, requests: Any, routes: Any = None) -> Delivered:
        done: Delivered = self.channel.exchange(requests, routes)
        if requests["a"].steps[-1].function != self.function:
            return done
        replies = {site: dict(reply) for site, reply in done.replies.items()}
        output = torch.as_tensor(replies["b"][self.name]).double().clone()
        output.view(-1)[0] = self.value
        replies["b"][self.name] = output
        return replace(done, replies=replies)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e150, -1e150])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("totals", "columns"),
        ("gram", "products"),
        ("mass", "mass"),
        ("capped", "mass"),
        ("capped", "rows"),
        ("left", "left"),
        ("left", "places"),
    ],
)
def test_a_total_that_cannot_be_is_refused_with_the_site_that_said_it(
    function: str, name: str, value: float
) -> None:
    simulation = federation(table(), ANYWHERE)
    lying = replace(simulation, channel=Lying(simulation.channel, function, name, value))
    with pytest.raises(ValueError, match=f"site b replied to '{function}' with {name} "):
        lying.query(PER_SITE)


def test_noise_is_refused() -> None:
    message = noise_refusal("pivotal", ANYWHERE.contract)
    assert message is not None
    assert message.startswith("pivotal ")


def test_two_bounds_with_one_row_between_them_tell_its_size() -> None:
    """Check a documented attack that is not prevented.

    A coordinator chooses its own factors, with as many requests as a query has.
    """
    size = torch.rand(50, generator=stream(0, "sizes"), dtype=torch.float64) + 0.5
    _, total = count_capped(size, 0.0)
    low = 0.0  # the bound with at least one example beyond it
    high = 2.0
    for _ in range(CLOSER - 1):
        factor = (low + high) / 2
        certain, rest = count_capped(size, factor)
        if certain == 1:
            break
        if certain:
            high = factor
        else:
            low = factor
    assert certain == 1
    assert total - rest == pytest.approx(float(size.max()))
