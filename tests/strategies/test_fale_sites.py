"""FALE: silent sites, duplicate examples, initial labels, and the last draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.privacy.settings import Privacy
from fallow.sites.store import Label
from fallow.strategies.fale import FALE
from fallow.strategies.parts import leverage
from tests.privacy.federation import SECURE, Losing, asking
from tests.strategies.regression import (
    ANYWHERE,
    AT_SITES,
    draws,
    equal,
    federation,
    picked,
    table,
)

BUDGET = dict.fromkeys("abcd", 4)
NO_NUMBERS = ("rotation", "score", "unmask", "select", "take")
"""Exchanges after which the server half knows no more than who answered."""


def test_a_huge_ridge_is_said_and_buys_nothing() -> None:
    for strategy in (ANYWHERE, AT_SITES, FALE(mode="fedsvd"), FALE(mode="tsqr")):
        with pytest.raises(
            ValueError, match=r"no example has a score .* ridge=1e\+14 is too large"
        ):
            federation(table(), replace(strategy, ridge=1e14)).query(2)


@pytest.mark.parametrize("size", [3, 40])
def test_singular_vectors_of_the_wrong_number_of_rows_are_refused(size: int) -> None:
    strategy = FALE(mode="fedsvd")
    ask = federation(table(), strategy).ask()
    columns = leverage.find_columns(ask, strategy.totals, strategy.spread, intercept=True)
    strategy.score_rows(ask, columns)
    with pytest.raises(
        RuntimeError, match=f"12 examples are in the pool and {size} were returned"
    ):
        ask.keep(
            strategy.unmask, to={"b": {"left": torch.zeros(size, 6).double()}}, width=6
        )


def test_a_query_that_is_begun_again_after_an_example_left_masks_the_rest() -> None:
    strategy = FALE(mode="fedsvd")
    simulation = federation(table(), strategy)
    for left in ([], [0]):
        simulation.members["b"].leave(left)
        ask = simulation.ask()
        columns = leverage.find_columns(
            ask, strategy.totals, strategy.spread, intercept=True
        )
        strategy.score_rows(ask, columns)
    assert len(simulation.members["b"].memory["unmask"]["tau"]) == 11


@pytest.mark.parametrize("mode", ["gram", "fedsvd", "tsqr"])
def test_fewer_rows_than_columns_in_all_are_all_alike(mode: Any) -> None:
    x = draws(4, 6)
    simulation = federation({"a": x[:1], "b": x[1:3], "c": x[3:]}, FALE(mode=mode))
    notes = simulation.query({"a": 1, "b": 1, "c": 1})["notes"]
    assert notes["rank"] == 4 and notes["mass"] == pytest.approx(4)
    assert notes["warnings"][-1].startswith("3 labels for 4 directions")
    probabilities = [
        k["probability"]
        for s in simulation.members.values()
        for k in [s.memory["selected"]]
    ]
    torch.testing.assert_close(torch.cat(probabilities), torch.full((3,), 0.25).double())


# -- silent sites ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "privacy"),
    [
        (ANYWHERE, None),
        (AT_SITES, SECURE),
        (AT_SITES, None),
        (FALE(mode="fedsvd"), None),
        (FALE(mode="tsqr"), None),
    ],
    ids=["gram", "masked sums", "site", "fedsvd", "tsqr"],
)
def test_a_site_that_falls_silent_ends_in_a_sentence_or_in_the_same_picks(
    strategy: FALE, privacy: Privacy | None
) -> None:
    whole, n = picked(federation(table(), strategy), BUDGET), 0
    messages = []
    while True:
        simulation = federation(table(), strategy, privacy=privacy)
        channel = Losing(simulation.channel, {n: ["b"]})
        try:
            strategy.query(asking(simulation, channel), BUDGET, {})
        except RuntimeError as error:
            assert "run again with --resume when they are connected" in str(error)
            messages.append(n)
        else:
            if len(channel.seen) <= n:  # nothing else was lost
                break
            kept = {
                name: site.memory["selected"] for name, site in simulation.members.items()
            }
            assert equal(whole, {name: k for name, k in kept.items() if len(k["rows"])})
            assert channel.seen[n][0].steps[-1].function in NO_NUMBERS
        n += 1
    assert len(messages) >= 5


# -- duplicate examples ----------------------------------------------------------------


def test_copies_of_a_row_are_rows_of_their_own_that_share_its_score() -> None:
    sites = table()
    sites["b"] = torch.cat([sites["b"], sites["a"][:3]])
    kept = picked(federation(sites, ANYWHERE), 100)
    assert len(kept["a"]["rows"]) == 30 and len(kept["b"]["rows"]) == 15
    chance = {
        name: torch.zeros(len(k["rows"])).double().scatter(0, k["rows"], k["probability"])
        for name, k in kept.items()
    }
    torch.testing.assert_close(chance["a"][:3], chance["b"][12:], rtol=1e-9, atol=0)


# -- initial labels --------------------------------------------------------------------


def total(values: Tensor, seed: int) -> float:
    """Return the weighted total of ``values`` over 6 initial labels and 8 of FALE."""
    simulation = federation({"a": table()["a"]}, AT_SITES, seed=seed)
    simulation.members["a"].buy([Label(row, 0.0, 0) for row in range(6)])
    kept = picked(simulation, 8)["a"]
    return float(values[:6].sum() + kept["weight"] @ values[6:][kept["rows"] - 6])


def test_first_labels_at_weight_1_and_what_is_drawn_beside_them_stand_for_all_rows() -> (
    None
):
    values = table()["a"].square().sum(1).sqrt() + draws(30, name="values").abs()
    outcome = torch.tensor([total(values, seed) for seed in range(60)]).double()
    error = float(outcome.std()) / len(outcome) ** 0.5
    assert abs(float(outcome.mean()) - float(values.sum())) < 4 * error
    assert 4 * error < float(values[:6].sum())
