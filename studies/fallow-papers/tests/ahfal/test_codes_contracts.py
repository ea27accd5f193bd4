"""Properties of all strategies, checked for reproductions of public code where possible."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import pytest

from fallow.core.methods import Query
from fallow_papers.ahfal import codes
from fallow_papers.ahfal.codes import (
    NaNKSAS,
    PixelBADGE,
    PlainFEAL,
    PlainLoGo,
    PlainNoise,
    RatioAHFAL,
)
from tests.contracts import test_queries as laws
from tests.contracts import test_what_leaves as leaves
from tests.each import each_of
from tests.simulations import tables

STRATEGIES: list[Query] = [
    NaNKSAS(),
    PixelBADGE(),
    PlainFEAL(),
    PlainLoGo(),
    PlainNoise(draws=2),
    RatioAHFAL(),
    RatioAHFAL(counts="true", target="current", route="local"),
]
every = each_of("strategy", STRATEGIES)
LAWS: list[Callable[..., None]] = [
    laws.test_every_verb_is_a_method_and_says_in_words_what_it_reveals,
    laws.test_sites_run_nothing_but_the_verbs_of_the_contract,
    laws.test_a_misspelt_choice_is_refused_with_the_choices,
    laws.test_each_site_spends_its_own_budget,
    laws.test_a_site_whose_pool_is_empty_picks_nothing_and_stops_nobody,
    laws.test_a_site_without_labels_picks_as_many_as_asked,
    laws.test_one_site_alone_picks_as_many_as_asked,
    laws.test_rows_that_are_all_equal_are_still_different_picks,
    laws.test_the_same_seed_gives_the_same_picks_whatever_the_order_of_sites,
    laws.test_picks_are_the_same_across_a_byte_boundary,
    laws.test_models_data_labels_and_global_random_state_stay_as_they_were,
    laws.test_no_hidden_label_is_read,
    leaves.test_no_row_leaves_its_site_while_training_and_querying,
]


def test_every_exported_strategy_is_in_the_table() -> None:
    assert {type(s).__name__ for s in STRATEGIES} == {*codes.__all__}


@every
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__.removeprefix("test_"))
def test_it_keeps_the_contract_of_all_strategies(
    strategy: Any, law: Callable[..., None]
) -> None:
    unwrap(law)(strategy)


@every
@pytest.mark.parametrize("budget", [1, 12, 40])
def test_picks_are_different_rows_and_as_many_as_asked(strategy: Any, budget: int) -> None:
    law = laws.test_picks_are_different_rows_of_the_pool_and_as_many_as_asked
    unwrap(law)(strategy, budget)


@pytest.mark.parametrize(  # NaNKSAS reproduces the effect of NaN in public code
    "strategy", [s for s in STRATEGIES if not isinstance(s, NaNKSAS)], ids=str
)
def test_rows_that_the_models_cannot_predict_come_last(strategy: Any) -> None:
    unwrap(laws.test_rows_that_the_models_cannot_predict_come_last)(strategy)
    unwrap(laws.test_a_model_that_predicts_nothing_is_said_and_not_sampled_at_random)(
        strategy
    )


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s.contract.draws], ids=str)
def test_a_strategy_that_says_it_draws_gives_other_picks_for_other_seeds(
    strategy: Any,
) -> None:
    unwrap(laws.test_what_a_strategy_draws_is_what_its_contract_says)(strategy)


@pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if not s.contract.draws], ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_permuting_the_pool_permutes_the_picks(strategy: Any, seed: int) -> None:
    unwrap(laws.test_permuting_the_pool_permutes_the_picks)(strategy, seed)


C = leaves.CLASSES
COUNT: leaves.Shapes = {"count": ()}
SENT: dict[str, tuple[list[leaves.Shapes], list[leaves.Shapes]]] = {
    "NaNKSAS": ([{"counts": (C,)}, COUNT], [{}, {"n": (), "counts": (C,)}]),
    "RatioAHFAL": (
        [{"one": (), "share": (C,), "square": (C,), "count": (C,)}, COUNT],
        [{}, {"n": (), "low": (C,), "target": (C,)}],
    ),
}


@every
def test_the_exchanges_of_a_query_carry_what_is_listed_and_nothing_else(
    strategy: Any,
) -> None:
    federation, recording = leaves.recorded(strategy, tables(classes=C))
    federation.query(3)
    up, down = SENT.get(type(strategy).__name__, ([COUNT], [{"n": ()}]))
    sent = [step.args for request in recording.requests for step in request.steps]
    assert [leaves.shapes(answer) for answer in recording.replies] == [
        s for s in up for _ in "abc"
    ]
    assert [leaves.shapes(args) for args in sent] == [s for s in down for _ in "abc"]
