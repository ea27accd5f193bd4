"""FALE: data that leaves a site, and unusual tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fallow.core.ask import Ask
from fallow.core.client import declared
from fallow.core.values import SenderFacts
from fallow.privacy.settings import Privacy
from fallow.strategies import Pivotal, TypicalUnsure
from fallow.strategies.fale import FALE, find_bin
from fallow.transport.serialized import SerializingChannel
from tests.each import each_of
from tests.privacy.federation import SECURE, asking
from tests.strategies.regression import (
    ANYWHERE,
    AT_SITES,
    bought,
    draws,
    equal,
    federation,
    picked,
    table,
)

# -- disclosure ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [AT_SITES, ANYWHERE], ids=["site", "federation"])
def test_picks_and_weights_are_the_same_as_bytes_and_behind_masks(strategy: FALE) -> None:
    plain = picked(federation(table(), strategy), 4)
    assert equal(
        plain, picked(federation(table(), strategy, runtime=SerializingChannel), 4)
    )
    simulation = federation(table(), strategy, privacy=SECURE)
    strategy.query(asking(simulation), dict.fromkeys("abcd", 4), {})
    masked = {name: site.memory["selected"] for name, site in simulation.members.items()}
    assert equal(plain, {name: k for name, k in masked.items() if len(k["rows"])})


def test_columns_that_depend_on_others_do_not_matter_behind_masks() -> None:
    sites = {
        name: torch.cat([x, x @ draws(5, 3, name="mix")], 1) for name, x in table().items()
    }
    plain = picked(federation(sites, AT_SITES), 4)
    simulation = federation(sites, AT_SITES, privacy=SECURE)
    memo = AT_SITES.query(asking(simulation), dict.fromkeys("abcd", 4), {})
    assert memo["notes"]["rank"] == 6
    assert equal(
        plain, {name: site.memory["selected"] for name, site in simulation.members.items()}
    )


def test_the_bytes_of_a_selection_are_those_of_the_formula() -> None:
    simulation = federation(table(), AT_SITES)
    simulation.query(4)
    up = {row["function"]: row["bytes"] for row in simulation.shown.rows()}
    k, floats = 6, 8 * 4  # columns with the intercept; bytes of a number at four sites
    assert up["gram"] == floats * 2 * k * (k + 1) // 2
    assert up["spread"] == floats * 2 * 5 and up["totals"] == floats * (5 + 1)
    assert up["mass"] == floats * 2


def test_a_verb_that_would_need_noise_is_refused() -> None:
    simulation = federation(table(), AT_SITES, privacy=Privacy(epsilon=1.0, total=1.0))
    with pytest.raises(ValueError, match="under local privacy"):
        AT_SITES.query(asking(simulation), dict.fromkeys("abcd", 1), {})


# -- edge cases ------------------------------------------------------------------------


class Claiming:
    """Channel to sites, one of which claims more draws than it made."""

    def __init__(self, ask: Ask, claim: float) -> None:
        self.ask = ask
        self.claim = claim
        self.bounds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ask, name)

    def sum(self, function: Any, *arguments: Any, **more: Any) -> Any:
        total = self.ask.sum(function, *arguments, **more)
        if "draws" in total:
            self.bounds += arguments
            return {**total, "draws": total["draws"] + self.claim}
        return total


def test_a_site_that_claims_many_draws_cannot_take_the_weight_of_others() -> None:
    totals = []
    for claim in (0.0, 1e12):
        simulation = federation(table(), ANYWHERE)
        ask: Any = Claiming(asking(simulation), claim)
        ANYWHERE.query(ask, dict.fromkeys("abcd", 4), {})
        kept = [site.memory.get("selected") for site in simulation.members.values()]
        totals.append(sum(float(k["weight"].sum()) for k in kept if k))
        assert [0 < bound < 1000 for bound in ask.bounds] == [True]
    assert totals[1] > totals[0] / 10


@each_of(
    "strategy, function, field, dims",
    [
        (FALE(), "mass", "mass", ()),
        (Pivotal(), "mass", "mass", ()),
        (TypicalUnsure(), "counts", "masses", 2),
    ],
)
def test_scores_of_at_most_1_sum_to_at_most_the_rows_of_the_site(
    strategy: Any, function: str, field: str, dims: Any
) -> None:
    returns = declared(strategy)[function].returns
    assert returns is not None
    kind = returns.fields({"clusters": 2})[field]
    known = SenderFacts(sizes={"clusters": 2}, rows=10)
    assert kind.find_fault(field, torch.full((dims or 1,), 5.0), known) is None
    assert "10 rows" in str(kind.find_fault(field, torch.full((dims or 1,), 11.0), known))


def test_a_site_without_a_pool_adds_nothing_and_picks_nothing() -> None:
    sites = {**table(), "e": torch.zeros(2, 5).double()}
    for strategy in (AT_SITES, ANYWHERE):
        simulation, bare = federation(sites, strategy), federation(table(), strategy)
        bought(simulation, {})
        simulation.members["e"].bought[:] = True
        ours, alone = picked(simulation, dict.fromkeys("abcde", 3)), picked(bare, 3)
        if strategy is ANYWHERE:
            assert sum(len(k["rows"]) for k in ours.values()) == 15
        else:
            assert equal(ours, alone)


def test_no_row_anywhere_is_said() -> None:
    simulation = federation({"a": draws(2, 2)}, AT_SITES)
    simulation.members["a"].bought[:] = True
    with pytest.raises(ValueError, match="no site has a row without a label"):
        simulation.query(1)


def test_features_that_are_all_0_are_said() -> None:
    with pytest.raises(ValueError, match="no variance to select on"):
        federation(
            {"a": torch.zeros(5, 2).double()}, FALE(allot="site", intercept=False)
        ).query(1)


def test_constant_columns_change_nothing() -> None:
    sites = table()
    wide = {
        name: torch.cat([x, torch.full((len(x), 1), 3.7).double()], 1)
        for name, x in sites.items()
    }
    assert equal(*(picked(federation(s, AT_SITES), 4) for s in (sites, wide)))


def test_a_budget_below_the_rank_is_a_note_for_the_reader() -> None:
    assert federation(table(), AT_SITES).query(2)["notes"]["warnings"] == []
    (output,) = federation(table(), AT_SITES).query(1)["notes"]["warnings"]
    assert output.startswith("4 labels for 6 directions") and "ridge" in output


def test_a_direction_that_is_rounding_is_a_note_for_the_reader() -> None:
    sites = table()
    for x in sites.values():
        x[:, 4] = x[:, 3] + 1e-11 * x[:, 4]
    (output,) = federation(sites, AT_SITES).query(4)["notes"]["warnings"]
    assert "collinear" in output and "omit a column" in output
    assert federation(sites, FALE(ridge=0.1)).query(4)["notes"]["warnings"] == []


def test_a_column_with_squares_too_small_for_a_sum_is_refused_and_not_dropped() -> None:
    sites = {name: x * torch.tensor([1, 1, 1e-22, 1, 1]) for name, x in table().items()}
    simulation = federation(sites, AT_SITES, privacy=SECURE)
    with pytest.raises(ValueError, match="column 2 is lost in rounding"):
        AT_SITES.query(asking(simulation), dict.fromkeys("abcd", 1), {})


@pytest.mark.parametrize(
    "wrong", [{"ridge": -1.0}, {"ridge": float("nan")}, {"mixture": 1.5}]
)
def test_wrong_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"FALE's {next(iter(wrong))} is"):
        FALE(**wrong)  # type: ignore[arg-type]


def test_histograms_that_contain_too_few_examples_are_one_sentence() -> None:
    reached = torch.tensor([0.0, 2.0, 4.0])
    assert [find_bin(reached, n) for n in (1, 2, 3, 4)] == [1, 1, 2, 2]
    with pytest.raises(ValueError, match=r"selects 5 examples, and .* contain 4: a site"):
        find_bin(reached, 5)
