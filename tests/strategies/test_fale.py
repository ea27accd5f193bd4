"""FALE: leverage sampling over sites."""

from __future__ import annotations

import pytest
import torch

from fallow.strategies.fale import FALE, start_clocks
from fallow.strategies.parts import leverage
from tests.strategies.regression import (
    ANYWHERE,
    AT_SITES,
    SIZES,
    bought,
    draws,
    equal,
    federation,
    picked,
    scores,
    solve,
    table,
    with_ones,
)

# -- drawn examples --------------------------------------------------------------------


def test_a_site_draws_in_proportion_to_its_own_scores() -> None:
    sites, simulation = table(), federation(table(), AT_SITES)
    for name, kept in picked(simulation, 3).items():
        chance = scores(sites)[name] / scores(sites)[name].sum()
        torch.testing.assert_close(
            kept["probability"], chance[kept["rows"]], rtol=0, atol=1e-12
        )


def test_the_federation_draws_in_proportion_to_the_scores_of_all() -> None:
    sites, simulation = table(), federation(table(), ANYWHERE)
    chance = {name: score / 6 for name, score in scores(sites).items()}  # the rank is 6
    kept = picked(simulation, 5)
    assert sum(len(k["rows"]) for k in kept.values()) == 20
    assert [len(kept[name]["rows"]) for name in sorted(kept)] != [5, 5, 3, 5]
    for name, k in kept.items():
        torch.testing.assert_close(
            k["probability"], chance[name][k["rows"]], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("n", [1, 2, 10, 40, 59])
def test_the_federation_buys_the_rows_that_are_drawn_first_anywhere(n: int) -> None:
    sites, simulation = table(), federation(table(), ANYWHERE, seed=3)
    ours = picked(simulation, {"a": n, "b": 0, "c": 0, "d": 0})
    first = []
    for name, score in scores(sites).items():
        made = start_clocks(score / 6, simulation.members[name].streams("clocks", 0))
        first += [(float(t), name, row) for row, t in enumerate(made.first)]
    expected = {(name, row) for _, name, row in sorted(first)[:n]}
    assert {
        (name, row) for name, k in ours.items() for row in k["rows"].tolist()
    } == expected


def test_weights_are_draws_over_what_was_expected() -> None:
    by_site = picked(federation(table(), AT_SITES), {"a": 8, "b": 6, "c": 1, "d": 9})
    anywhere = picked(federation(table(), ANYWHERE), 6)
    share = [
        k["weight"] * k["probability"] for k in by_site.values()
    ]  # m / n_s of each example
    share += [torch.cat([k["weight"] * k["probability"] for k in anywhere.values()])]
    for part in share:
        assert float(part.sum()) == pytest.approx(1)
        often = part / part.min()  # the last example was drawn once
        torch.testing.assert_close(often, often.round(), rtol=0, atol=1e-9)
    assert any(
        float(part.max() / part.min()) > 1.5 for part in share
    )  # another one more often


def test_the_report_says_how_many_draws_there_were() -> None:
    simulation = federation(table(), ANYWHERE)
    notes = simulation.query(10)["notes"]
    kept = [
        site.memory["selected"]
        for site in simulation.members.values()
        if "selected" in site.memory
    ]
    share = torch.cat([k["weight"] * k["probability"] for k in kept])
    assert notes["rank"] == 6 and notes["mass"] == pytest.approx(6)
    assert notes["draws"] * float(share.min()) == pytest.approx(1)


def test_a_budget_beyond_the_pool_takes_every_row_once_at_weight_1() -> None:
    for strategy, budget in ((AT_SITES, 30), (ANYWHERE, 15), (ANYWHERE, 100)):
        kept = picked(federation(table(), strategy), budget)
        assert {name: len(k["rows"]) for name, k in kept.items()} == dict(
            zip("abcd", SIZES, strict=True)
        )
        assert all(
            torch.equal(k["weight"], torch.ones_like(k["weight"])) for k in kept.values()
        )


def test_without_weights_the_rows_are_the_same_and_weigh_nothing_special() -> None:
    plain, weighed = (
        picked(federation(table(), FALE(allot="site", weights=w)), 3)
        for w in ("none", "importance")
    )
    assert all(torch.equal(plain[name]["rows"], weighed[name]["rows"]) for name in "abcd")
    assert all("weight" not in kept and "probability" in kept for kept in plain.values())


def test_a_mixture_gives_every_row_its_share_of_even_chances() -> None:
    sites = table()
    kept = picked(federation(sites, FALE(mixture=0.25)), 5)
    for name, k in kept.items():
        expected = 0.75 * scores(sites)[name] / 6 + 0.25 / 60
        torch.testing.assert_close(
            k["probability"], expected[k["rows"]], rtol=0, atol=1e-12
        )


def test_units_of_columns_do_not_change_a_pick() -> None:
    sites = table()
    turned = {
        name: x @ torch.diag(torch.tensor([1e-3, 1, 1e4, 7, 2]).double()) - 50
        for name, x in sites.items()
    }
    assert equal(*(picked(federation(s, AT_SITES), 4) for s in (sites, turned)))


def test_a_row_of_zeros_is_never_drawn_without_an_intercept() -> None:
    x = draws(20, 3)
    x[5:] = 0
    kept = picked(federation({"a": x}, FALE(intercept=False)), 20)
    assert sorted(kept["a"]["rows"].tolist()) == [0, 1, 2, 3, 4]
    kept = picked(
        federation({"a": x}, FALE(allot="site", intercept=False)), 8
    )  # the site must use its budget
    assert set(range(5)) < set(kept["a"]["rows"].tolist()) and len(kept["a"]["rows"]) == 8


def test_a_score_that_is_rounding_is_0() -> None:
    left = torch.tensor([[1e-7, 0.0], [0.5, 0.0], [0.0, 1.1]]).double()
    assert leverage.scores(left).tolist() == [0.0, 0.25, 1.0]


def test_labeled_rows_are_outside_what_is_scored() -> None:
    sites = table()
    simulation = federation(sites, AT_SITES)
    bought(simulation, {name: x[:, 0] for name, x in sites.items()})
    picked(simulation, 2)
    bought(simulation, {name: x[:, 0] for name, x in sites.items()})
    left = {name: sites[name][site.pool] for name, site in simulation.members.items()}
    simulation.query(1)
    for name, site in simulation.members.items():
        if "selected" in site.memory:
            kept, score = site.memory["selected"], scores(left)[name]
            at = torch.searchsorted(site.pool, kept["rows"])
            torch.testing.assert_close(
                kept["probability"], (score / score.sum())[at], rtol=0, atol=1e-12
            )


def test_what_the_query_says_of_a_label_reaches_the_solver() -> None:
    sites, simulation = table(), federation(table(), AT_SITES)
    y = {name: x @ draws(5, name="slope") + x[:, 0] ** 2 for name, x in sites.items()}
    kept = picked(simulation, 3)
    x = torch.cat([sites[name][kept[name]["rows"]] for name in "abcd"])
    w = torch.cat([kept[name]["weight"] for name in "abcd"]).sqrt()
    target = torch.cat([y[name][kept[name]["rows"]] for name in "abcd"])
    plain = torch.linalg.lstsq(w[:, None] * with_ones(x), (w * target)[:, None]).solution
    torch.testing.assert_close(
        solve(bought(simulation, y)), plain.squeeze(1), rtol=0, atol=1e-10
    )
