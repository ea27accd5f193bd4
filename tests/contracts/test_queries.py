"""One federation and all query strategies: properties that every strategy must have."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_origin, get_type_hints

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.methods import Method
from fallow.core.streams import stream
from fallow.settings.classes import classes_of
from fallow.strategies import (
    AHFAL,
    FALE,
    DropQuery,
    Entropy,
    Pivotal,
    Random,
    UncertaintyHerding,
)
from fallow.transport.serialized import SerializingChannel
from tests.contracts.numbers import simulation
from tests.contracts.strategies import STRATEGIES, of_all, of_logits
from tests.each import each_of
from tests.keys import key_of
from tests.simulations import Simulation, Table, tables

WITHOUT_MODEL = (FALE, Pivotal, Random)
"""Strategies that read at most the examples, and datasets have no non-finite ones."""


def choices(strategy: Any) -> list[str]:
    """Return the fields of a strategy that take one of a few values."""
    hints = get_type_hints(type(strategy))
    return [f.name for f in fields(strategy) if get_origin(hints[f.name]) is Literal]


def test_every_exported_strategy_is_in_the_table() -> None:
    assert {type(s).__name__ for s in STRATEGIES} == set(classes_of("strategy"))


# -- declarations ----------------------------------------------------------------------


@of_all
def test_every_verb_is_a_method_and_says_in_words_what_it_reveals(strategy: Any) -> None:
    assert isinstance(strategy, Method)
    contract = strategy.contract
    assert contract.title and contract.paper and contract.cohort >= 1
    assert set(contract.needs) <= {"local", "global"}
    assert contract.disclosures
    for function, reveals in contract.disclosures.items():
        assert callable(getattr(strategy, function))
        assert len(reveals.split()) >= 2
    assert "query" not in contract.disclosures  # the server side is no client function


@of_all
def test_sites_run_nothing_but_the_verbs_of_the_contract(strategy: Any) -> None:
    federation = simulation(tables(), strategy)
    with pytest.raises(
        ValueError, match="site a does not answer '__init__' by each: the contract"
    ):
        step = Step("each", "__init__", {})
        request = Request(key_of("0/query/0"), "query", 0, 0, (step,))
        federation.channel.exchange({"a": request})


@pytest.mark.long
@of_all
def test_a_query_asks_all_that_its_contract_lists_and_nothing_in_another_way(
    strategy: Any,
) -> None:
    federation = simulation(tables(), strategy)
    federation.query(3)
    functions = strategy.contract.functions
    asked = {(kind, function) for kind, function, _ in federation.shown.entries}
    assert asked == {(item.operation, item.name) for item in functions}


@of_all
def test_a_misspelt_choice_is_refused_with_the_choices(strategy: Any) -> None:
    for name in choices(strategy):
        with pytest.raises(
            ValueError, match=rf"{type(strategy).__name__}'s {name} is 'lokal'.*'"
        ):
            type(strategy)(**{name: "lokal"})


def test_the_misspelling_test_finds_the_fields() -> None:
    assert choices(AHFAL()) == ["tau_scale", "score", "toggle", "balance"]
    assert choices(Entropy()) == ["model", "over"]


# -- selection -------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("budget", [1, 12, 40])
@of_all
def test_picks_are_different_rows_of_the_pool_and_as_many_as_asked(
    strategy: Any, budget: int
) -> None:
    selected = simulation(tables(), strategy).selected(budget)
    assert selected.keys() == {"a", "b", "c"}
    for rows in selected.values():
        assert len(rows) == len(set(rows)) == min(budget, 12)
        assert set(rows) <= set(range(12))


@pytest.mark.long
@of_all
def test_each_site_spends_its_own_budget(strategy: Any) -> None:
    selected = simulation(tables(), strategy).selected({"a": 1, "b": 0, "c": 4})
    assert {name: len(rows) for name, rows in selected.items()} == {"a": 1, "c": 4}


@pytest.mark.long
@of_all
def test_a_site_whose_pool_is_empty_picks_nothing_and_stops_nobody(strategy: Any) -> None:
    sites = tables()
    nothing = torch.empty(0, dtype=torch.int64)
    selected = simulation({**sites, "b": sites["b"].rows(nothing)}, strategy).selected(3)
    assert selected.keys() == {"a", "c"}
    assert all(len(rows) == 3 for rows in selected.values())


@pytest.mark.long
@of_all
def test_a_site_without_labels_picks_as_many_as_asked(strategy: Any) -> None:
    bare = {name: Table(t.local, t.common) for name, t in tables().items()}
    assert all(
        len(set(rows)) == 4 for rows in simulation(bare, strategy).selected(4).values()
    )


@pytest.mark.long
@of_all
def test_one_site_alone_picks_as_many_as_asked(strategy: Any) -> None:
    (rows,) = simulation({"a": tables()["a"]}, strategy).selected(4).values()
    assert len(set(rows)) == 4


@pytest.mark.long
@of_all
def test_rows_that_are_all_equal_are_still_different_picks(strategy: Any) -> None:
    first = torch.zeros(12, dtype=torch.int64)
    selected = simulation(
        {name: t.rows(first) for name, t in tables().items()}, strategy
    ).selected(5)
    assert all(len(set(rows)) == 5 for rows in selected.values())


@pytest.mark.long
@of_all
def test_the_same_seed_gives_the_same_picks_whatever_the_order_of_sites(
    strategy: Any,
) -> None:
    sites = tables()
    turned = dict(reversed(sites.items()))
    assert simulation(sites, strategy).selected(5) == simulation(turned, strategy).selected(
        5
    )


@pytest.mark.long
@of_all
def test_picks_are_the_same_across_a_byte_boundary(strategy: Any) -> None:
    sites = tables()
    assert simulation(sites, strategy).selected(5) == simulation(
        sites, strategy, runtime=SerializingChannel
    ).selected(5)


@pytest.mark.long
@of_all
def test_what_a_strategy_draws_is_what_its_contract_says(strategy: Any) -> None:
    sites = tables(labels=60)  # every site has several classes, so no scores are tied
    first = simulation(sites, strategy, 0).selected(5)
    differ = any(
        simulation(sites, strategy, seed).selected(5) != first for seed in (1, 2, 3)
    )
    assert differ is strategy.contract.draws


@pytest.mark.long
@each_of("strategy", [s for s in STRATEGIES if not s.contract.draws])
@pytest.mark.parametrize("seed", [0, 2])  # in 1, two examples are equally typical
def test_permuting_the_pool_permutes_the_picks(strategy: Any, seed: int) -> None:
    sites = tables(seed, labels=60)
    turn = torch.randperm(12, generator=stream(seed, "turn"))
    turned = simulation(
        {name: t.rows(turn) for name, t in sites.items()}, strategy
    ).selected(5)
    back = {name: turn[rows].tolist() for name, rows in turned.items()}
    assert back == simulation(sites, strategy).selected(5)


@pytest.mark.long
@of_logits
def test_a_constant_added_to_all_logits_changes_nothing(strategy: Any) -> None:
    sites = tables()
    shifted = {name: t.plus(3.0) for name, t in sites.items()}
    assert simulation(shifted, strategy).selected(5) == simulation(
        sites, strategy
    ).selected(5)


@pytest.mark.long
@of_all
def test_rows_that_the_models_cannot_predict_come_last(strategy: Any) -> None:
    if isinstance(strategy, WITHOUT_MODEL):
        return
    sites = {name: spoilt(t, rows=4) for name, t in tables(labels=60).items()}
    for rows in simulation(sites, strategy).selected(8).values():
        assert set(rows) == set(range(4, 12))
    for rows in simulation(sites, strategy).selected(9).values():
        assert len(set(rows)) == 9


@of_all
def test_a_model_that_predicts_nothing_is_said_and_not_sampled_at_random(
    strategy: Any,
) -> None:
    if isinstance(strategy, WITHOUT_MODEL):
        return
    sites = {name: spoilt(t, rows=12) for name, t in tables().items()}
    with pytest.raises(RuntimeError, match="NaN or infinite"):
        simulation(sites, strategy).selected(3)


@each_of("strategy", [DropQuery(), UncertaintyHerding()])
def test_finite_features_do_not_hide_a_model_that_predicts_nothing(strategy: Any) -> None:
    federation = simulation(tables(), strategy)
    for member in federation.members.values():
        for name in ("local", "global"):
            model = member.memory[name]
            member.remember(name, {**model, "w": torch.full_like(model["w"], torch.nan)})
    with pytest.raises(RuntimeError, match="NaN or infinite"):
        federation.selected(3)


def spoilt(table: Table, rows: int) -> Table:
    """Return the same site with NaN predictions for its first ``rows`` examples."""
    local, common = table.local.clone(), table.common.clone()
    local[:rows], common[:rows] = torch.nan, torch.nan
    return Table(local, common, table.labels)


# -- unchanged state -------------------------------------------------------------------


@pytest.mark.long
@of_all
def test_models_data_labels_and_global_random_state_stay_as_they_were(
    strategy: Any,
) -> None:
    federation = simulation(tables(), strategy)
    before, state = _contents(federation), torch.get_rng_state()
    memo = {"from": "an earlier cycle"}
    strategy.query(federation.ask(), dict.fromkeys("abc", 3), memo)
    after = _contents(federation)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(state, torch.get_rng_state())
    assert memo == {"from": "an earlier cycle"}


def _contents(federation: Simulation) -> dict[str, torch.Tensor]:
    """Copy the state of a site except its selection."""
    contents: dict[str, torch.Tensor] = {}
    for name, site in federation.members.items():
        tensors = {
            "x": site.x,
            "values": site.values,
            "bought": site.bought,
            "weight": site.weight,
        }
        for model in ("local", "global"):
            tensors |= {f"{model}/{k}": v for k, v in site.memory[model].items()}
        contents |= {f"{name}/{k}": v.clone() for k, v in tensors.items()}
    return contents


@pytest.mark.long
@of_all
def test_no_hidden_label_is_read(strategy: Any) -> None:
    sites = tables()
    honest = simulation(sites, strategy).selected(5)
    for poison in (2.0, 1e6):
        federation = simulation(sites, strategy)
        for name, site in federation.members.items():
            site.values[site.pool] = poison
            if not strategy.contract.simulator_only:  # declares that it reads them
                site.parts.hidden[name][site.pool] = int(poison)
        assert federation.selected(5) == honest
