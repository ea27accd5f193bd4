"""Test the limits of sites against a hostile coordinator with valid signatures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State, Value
from tests.deployment.hosts import (
    ASK,
    ROWS,
    RUN,
    SECOND,
    Leader,
    agreement,
    folder,
    keep,
    make_request,
    order_picks,
)
from tests.keys import key_of

pytest.importorskip("cryptography")
LATER = tuple(f"{at:010x}-" + 16 * "c" for at in range(3, 10))


def expect_refusal(leader: Leader, request: Request) -> str:
    """Send an instruction that the site must reject without effects; return the reason."""
    before = leader.ledger.instructions.traffic()
    reply = leader.send(leader.instruction(request))
    assert reply.refused is not None, request
    assert leader.ledger.instructions.traffic() == before
    return reply.refused


def fit(name: str, state: State, training_config: TrainingConfig | None = None) -> Step:
    return Step("fit", name, dict(state), training_config)


def training(*steps: Step, cycle: int = 0, r: int = 0, turn: int = 0) -> Request:
    return Request(key_of(f"{cycle}/train/{r}/{turn}"), "training", cycle, r, steps)


def score(
    leader: Leader, model: State, r: int = 1, cycle: int = 0, turn: int = 0
) -> Request:
    args: dict[str, Value] = {**model}
    key = f"{cycle}/train/{r}/score/{turn}"
    return Request(key_of(key), "annotators", cycle, r, (Step("each", "score", args),))


# -- labels --------------------------------------------------------------------------------


def test_more_questions_than_the_agreement_has_are_refused_with_both_numbers(
    leader: Leader,
) -> None:
    order_picks(leader)
    why = expect_refusal(leader, make_request("ask", "0/query", **{**ASK, "allowed": 12}))
    assert (
        "requests 12 labels from site north, but the agreement allows 3 in 0/query" in why
    )
    assert leader.ledger.tasks() == []


def test_more_picks_than_the_agreement_has_are_refused_before_anything_is_chosen(
    leader: Leader,
) -> None:
    state = leader.first_model()
    leader.round(0, state)
    steps = (fit("global", state), Step("keep", "select", {"n": 4}))
    why = expect_refusal(leader, Request(key_of("0/query/0"), "query", 0, 0, steps))
    assert "requests 4 labels from site north, but the agreement allows 3" in why
    assert "selected" not in leader.ledger.store.load_states("north")


def test_the_first_labels_have_a_budget_of_their_own(leader: Leader) -> None:
    request = Request(
        key_of("0/initial/0"), "initial", 0, 0, (Step("keep", "select", {"n": 5}),)
    )
    assert (
        "requests 5 labels from site north, but the agreement allows 4 in 0/initial"
        in expect_refusal(leader, request)
    )


def test_a_number_of_labels_that_is_none_is_refused(leader: Leader) -> None:
    order_picks(leader)
    why = expect_refusal(leader, make_request("ask", "0/query", **{**ASK, "allowed": True}))
    assert "asks for True labels; it is a whole number, 0 or more" in why


def test_a_part_of_a_cycle_has_its_part_of_the_budget(tmp_path: Path) -> None:
    agreed = agreement("strategy=entropy", "queries_per_cycle=2")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))
    leader.round(0, leader.first_model())
    first: dict[str, Value] = {"allowed": 2}
    assert "allows 1 in 0/query" in expect_refusal(
        leader, make_request("ask", "0/query", **first)
    )
    second: dict[str, Value] = {"allowed": 3}
    assert "allows 2 in 0/query-1" in expect_refusal(
        leader, make_request("ask", "0/query-1", **second)
    )
    leader.ledger.close()


def test_questions_are_asked_for_the_step_that_the_key_names(leader: Leader) -> None:
    """Otherwise each key would have a separate budget."""
    order_picks(leader)
    why = expect_refusal(leader, make_request("ask", "0/query", **ASK, step="1/query"))
    assert "got an unexpected keyword argument 'step'" in why
    assert leader.ledger.tasks() == []


def test_a_deadline_is_a_time_of_day(leader: Leader) -> None:
    order_picks(leader)
    request = make_request("ask", "0/query", **ASK, deadline="soon")
    why = expect_refusal(leader, request)
    assert "to ask: deadline is 'soon', which is not a time" in why


def test_runs_begun_again_do_not_ask_for_the_budget_again(tmp_path: Path) -> None:
    """The budget is 4 initial labels and 3 in each of 2 cycles, over all restarts."""
    site, asked = folder(tmp_path), 0
    for run in (RUN, SECOND, *LATER):
        leader = Leader(site, run=run)
        leader.initial()
        asked = leader.ledger.requests.asked
        leader.ledger.close()
    assert asked == 4 + 2 * 3


def test_a_limit_of_the_site_holds_over_all_runs_and_for_what_people_see(
    tmp_path: Path,
) -> None:
    """Expired tasks are returned to the budget, but annotators have seen the examples."""
    site, seen = folder(tmp_path, limit=3), 0
    for run in (RUN, SECOND, *LATER):
        leader = Leader(site, run=run)
        leader.host._made.methods["initial"].query(
            leader.ask("0/initial", "initial"), {"north": 4}, {}
        )
        asked = leader.people("ask", "0/initial", -1, allowed=4)["asked"]
        assert isinstance(asked, int)
        seen += asked
        leader.people("close", "0/initial", -1)
        assert leader.ledger.requests.asked == 0  # no label arrived in time
        leader.ledger.close()
    assert seen == 2 * 3


def test_people_set_how_many_questions_they_ever_see(tmp_path: Path) -> None:
    site = folder(tmp_path, shown=2)
    leader = Leader(site)
    leader.initial()
    assert leader.ledger.requests.shown == 2
    leader.ledger.close()


@pytest.mark.parametrize("allocation", ["equal", "proportional"])
def test_a_share_of_all_rows_is_a_number_of_the_site_from_the_first_order_on(
    tmp_path: Path, allocation: str
) -> None:
    """The first instruction fixes the share, from which later ones must not differ."""
    agreed = agreement(
        "strategy=entropy", "initial=0.1", "budget=0.1", f"budget_allocation={allocation}"
    )
    leader = Leader(folder(tmp_path, agreed))
    share = 2  # of 18 examples, as if each site had the same number
    leader.initial(share)
    leader.round(0, leader.first_model())
    more = make_request("ask", "0/query", allowed=3)
    assert (
        "requests 3 labels from site north, but the agreement allows 2"
        in expect_refusal(leader, more)
    )
    leader.query(leader.first_model(), n=share)
    output: dict[str, Value] = {"allowed": share}
    assert leader.people("ask", "0/query", **output) == {"asked": share}
    leader.ledger.close()


def test_one_budget_of_all_sites_is_that_of_the_agreement(tmp_path: Path) -> None:
    agreed = agreement("strategy=fale", "initial_by=query", "protocol=one_pass", "cycles=1")
    leader = Leader(folder(tmp_path, agreed))
    output: dict[str, Value] = {"allowed": 3 * (4 + 3) + 1}
    why = expect_refusal(leader, make_request("ask", "0/query", **output))
    assert (
        "requests 22 labels from site north, but the agreement allows 21 in 0/query" in why
    )
    leader.ledger.close()


# -- memory --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "selected",
        "picked in",
        "cycle",
        "features",
        "targets",
        "best",
        "own/w",
        "average",
        "",
    ],
)
def test_an_order_writes_only_models_of_the_study_into_a_sites_memory(
    leader: Leader, name: str
) -> None:
    leader.round(0, leader.first_model())
    before = leader.ledger.store.load_states("north").keys()
    planted = {"rows": torch.arange(6, 18)}
    for args in (planted, leader.first_model()):
        step = Step("fit", name, dict(args))
        upload = Step("sum", "upload", {})
        steps = (step, Step("keep", "select", {"n": 3}))
        instructions = (
            training(step, upload, r=1),
            Request(key_of("0/query/0"), "query", 0, 0, steps),
        )
        for instruction in instructions:
            assert f"would store {name!r} at site north" in expect_refusal(
                leader, instruction
            )
    assert leader.ledger.store.load_states("north").keys() == before


def test_a_model_is_stored_without_training_only_where_the_algorithm_does(
    leader: Leader,
) -> None:
    steps = (fit("local", leader.first_model()), Step("sum", "upload", {}))
    why = expect_refusal(leader, training(*steps))
    assert "sends a model 'local' without training it" in why
    assert leader.ledger.store.load_states("north") == {}


def test_parts_of_models_that_no_model_has_are_refused(leader: Leader) -> None:
    state = {**leader.first_model(), "a/b": torch.zeros(3)}
    steps = (
        fit("local", state, leader.site.agreement.config.training_config),
        Step("sum", "upload", {}),
    )
    assert "not the name of a part" in expect_refusal(leader, training(*steps))


# -- training configurations ---------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"stages": (TrainingStage(3),)},
        {"stages": (TrainingStage(2), TrainingStage(2))},
        {"batch_size": 1},
        {"optimizer": Optimizer(lr=5.0)},
        {"start": "scratch"},
        {"start": "best"},
        {"mix": 0.5},
        {"patience": 1},
        {"stop_at": 0.5},
    ],
)
def test_a_site_trains_by_the_agreed_training_config_alone(
    leader: Leader, changed: dict[str, Any]
) -> None:
    training_config = replace(leader.site.agreement.config.training_config, **changed)
    steps = (fit("local", leader.first_model(), training_config), Step("sum", "upload", {}))
    assert (
        "with a training configuration that differs from the agreed one"
        in expect_refusal(leader, training(*steps))
    )
    assert leader.ledger.store.load_states("north") == {}


@pytest.mark.parametrize("wrong", [3.0, torch.zeros(3)])
def test_a_site_takes_no_model_of_another_size(leader: Leader, wrong: Any) -> None:
    model = {**leader.first_model(), "w": wrong}
    config = leader.site.agreement.config.training_config
    steps = (fit("local", model, config), Step("sum", "upload", {}))
    why = expect_refusal(leader, training(*steps))
    assert "sends an invalid part of a model: w has the shape" in why


# -- consequences of the configuration ------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (training(r=2), "leads to no step 0/train/2 (cycles=2, rounds=2"),
        (training(cycle=3), "leads to no step 3/train/0 "),
        (keep("2/query/0", "select", n=3), "leads to no step 2/query "),
        (keep("0/query-1/0", "select", n=3), "leads to no step 0/query-1 "),
        (keep("0/query/evaluation/0", "draw", n=3), "no step 0/query/evaluation "),
        (keep("0/evaluation/0", "tally"), "leads to no step 0/evaluation "),
        (keep("0/train/0/0", "select", n=3), "by its key it must be of 'training'"),
        (
            keep("0/query/0/deliver", "select", n=3),
            "does not have the fields ['cycle', 'function', 'messages']",
        ),
        (
            replace(keep("0/query/0", "select", n=3), cycle=1),
            "of 'query' in cycle 0, round 0",
        ),
        (replace(keep("0/query/0", "select", n=3), round=1), "in cycle 0, round 0"),
    ],
)
def test_an_order_that_the_recipe_does_not_lead_to_is_refused(
    leader: Leader, request_: Request, why: str
) -> None:
    assert why in expect_refusal(leader, request_)


def test_a_run_goes_back_where_something_is_asked_anew_alone(leader: Leader) -> None:
    order_picks(leader)
    upload = Step("sum", "upload", {})
    again = training(upload, r=1)
    assert "a run only rolls back to repeat an exchange" in expect_refusal(leader, again)
    first = Request(
        key_of("0/initial/0"), "initial", 0, 0, (Step("keep", "select", {"n": 4}),)
    )
    assert "a run only rolls back to repeat an exchange" in expect_refusal(leader, first)


def test_a_verb_is_asked_as_often_as_its_method_asks_it(leader: Leader) -> None:
    """Each reply is a function of private examples and of values in the instruction."""
    state = leader.first_model()
    leader.round(0, state)
    again = training(
        fit("local", state, leader.site.agreement.config.training_config),
        Step("sum", "upload", {}),
        turn=1,
    )
    assert "but the agreed algorithm requests it at most 1 times" in expect_refusal(
        leader, again
    )


@pytest.mark.parametrize("more", [{"m": 1}, {"n": 3, "gen": 1}, {}])
def test_a_verb_is_given_what_it_takes(leader: Leader, more: dict[str, Any]) -> None:
    leader.round(0, leader.first_model())
    steps = (fit("global", leader.first_model()), Step("keep", "select", more))
    assert "instruction 0/query/0 to select" in expect_refusal(
        leader, Request(key_of("0/query/0"), "query", 0, 0, steps)
    )


def test_seats_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """A pivotal sample has at most one seat for each site."""
    agreed = agreement(
        "strategy=pivotal", "initial_by=query", "protocol=one_pass", "cycles=1"
    )
    leader = Leader(folder(tmp_path, agreed))
    args: dict[str, Value] = {"factor": 1.0, "mass": 1.0, "rows": 9, "seat": 0}
    step = Step("keep", "draw", {**args, "seats": 2**40})
    why = expect_refusal(leader, Request(key_of("0/query/0"), "query", 0, 0, (step,)))
    assert "to draw: seats is 1099511627776, and it is a whole number of at most 3" in why
    leader.ledger.close()


def test_letters_of_a_verb_that_nobody_relays_are_refused(leader: Leader) -> None:
    """A delivery replaces the stored value under the name of its client function."""
    from fallow.transport.peer_messages import delivery_body

    key = key_of("0/train/0/0/deliver")
    body = delivery_body("own", {})
    instruction = leader.instruction(make_request("hello", "0/hello"), key=key, body=body)
    assert "but FedAvg declares relays of nothing only" in str(
        leader.send(instruction).refused
    )


# -- scores --------------------------------------------------------------------------------


def test_a_model_of_a_round_is_scored_once(leader: Leader) -> None:
    state = leader.first_model()
    instruction = leader.instruction(score(leader, state))
    output = leader.send(instruction)
    again = leader.send(instruction)
    assert output.refused is None and output.body["hits"] == again.body["hits"]
    other = {**state, "w": state["w"] + 1}
    assert "with other content" in str(
        leader.send(leader.instruction(score(leader, other))).refused
    )
    leader.count(instruction)
    assert "requests it at most 1 times" in expect_refusal(
        leader, score(leader, other, turn=1)
    )


def test_a_round_that_has_no_score_in_the_agreement_gives_none(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, agreement("strategy=entropy", "score_rounds=1")))
    why = expect_refusal(leader, score(leader, leader.first_model(), r=0))
    assert "leads to no step 0/train/0/score (cycles=2, rounds=2, score_rounds=1" in why
    leader.ledger.close()


@pytest.mark.parametrize("missing", ["w", "stats"])
def test_a_common_model_without_one_of_its_parts_is_refused_by_that_part(
    leader: Leader, missing: str
) -> None:
    state = leader.first_model()
    rest = {name: part for name, part in state.items() if name != missing}
    output = f"sends site north a model without {missing!r}"
    training_config = leader.site.agreement.config.training_config
    upload = Step("sum", "upload", {})
    assert output in expect_refusal(
        leader, training(fit("local", rest, training_config), upload)
    )
    assert output in expect_refusal(
        leader, training(fit("local", rest, training_config), upload, r=1)
    )
    assert output in expect_refusal(leader, score(leader, rest))
    handed = (fit("global", rest), Step("keep", "select", {"n": 3}))
    assert output in expect_refusal(
        leader, Request(key_of("0/query/0"), "query", 0, 0, handed)
    )
    left = Step("keep", "finish", dict(rest))
    assert output in expect_refusal(
        leader, Request(key_of("model/finish/0"), "annotators", 2, 0, (left,))
    )


def test_a_query_is_handed_no_local_model(leader: Leader) -> None:
    """A query uses the local model that the site trained; one in the instruction would be a
    second model of the coordinator's choice."""
    state = leader.first_model()
    other = {**state, "w": state["w"] + 1}
    leader.exchange({"north": score(leader, state, r=1)})
    steps = (fit("global", state), fit("local", other), Step("keep", "select", {"n": 3}))
    assert "sends a model 'local' without training it" in expect_refusal(
        leader, Request(key_of("0/query/0"), "query", 0, 0, steps)
    )


def test_where_models_validate_the_retained_one_is_scored(tmp_path: Path) -> None:
    agreed = agreement("strategy=entropy", "validation=0.34")
    leader = Leader(folder(tmp_path, agreed, brought=range(9)))
    state = leader.first_model()
    best = {**state, "w": torch.zeros_like(state["w"])}
    best["w"][-1] = 1.0  # bias of the last class
    hits = []
    for cycle, sent in enumerate((state, best, state)):
        instruction = leader.instruction(score(leader, sent, cycle=cycle))
        hits.append(torch.as_tensor(leader.send(instruction).body["class_hits"]).tolist())
        leader.count(instruction)
        if cycle == 1:
            leader.ledger.store.keep("north", "best", best)
            leader.again()
    assert hits[2] == hits[1] != hits[0]
    leader.ledger.close()


def test_scores_are_counted_over_all_runs(tmp_path: Path) -> None:
    """A run has 3 cycles of 2 rounds; a restarted run may use the same number again."""
    site = folder(tmp_path)
    output: list[str | None] = []
    for run in (RUN, SECOND, *LATER):
        leader = Leader(site, run=run)
        state = leader.first_model()
        for cycle in range(3):
            for r in range(2):
                crafted = {**state, "w": state["w"] + len(output)}
                reply = leader.send(leader.instruction(score(leader, crafted, r, cycle)))
                output.append(reply.refused)
        leader.ledger.close()
    assert output[:12] == [None] * 12 and None not in output[12:]
    assert "has scored 12 models, its limit over all runs is 12" in str(output[12])


def test_a_site_says_itself_how_often_models_are_scored(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, scores=0))
    why = expect_refusal(leader, score(leader, leader.first_model()))
    assert "has scored 0 models, its limit over all runs is 0" in why
    leader.ledger.close()


def test_a_score_brings_a_model_and_nothing_else(leader: Leader) -> None:
    state = leader.first_model()
    bare = Request(
        key_of("0/train/1/score/0"), "annotators", 0, 1, (Step("each", "score", {}),)
    )
    assert expect_refusal(leader, bare)
    assert "has no model to score" in expect_refusal(leader, score(leader, {}))
    assert "has the argument 'a/b', and accepts none" in expect_refusal(
        leader, score(leader, {**state, "a/b": state["w"]})
    )


def test_scores_are_not_asked_as_something_else(leader: Leader) -> None:
    state = leader.first_model()
    step = Step("each", "score", {**state})
    request = Request(key_of("0/query/ask/0"), "annotators", 0, 0, (step,))
    assert "requests 'score', but its key is of ask" in expect_refusal(leader, request)
    assert ROWS


def test_what_makes_an_order_fail_cannot_be_searched_for(leader: Leader) -> None:
    """Whether a model overflows depends on the largest value among the test examples."""
    state = leader.first_model()
    huge = {**state, "w": state["w"] + 1e308}
    for _ in range(2):
        assert "training diverged" in expect_refusal(leader, score(leader, huge))
    leader.again()
    other = {**state, "w": state["w"] + 1e307}
    assert expect_refusal(leader, score(leader, other))
    assert leader.ledger.instructions.scores() == 1
    steps = (
        fit("local", {}, leader.site.agreement.config.training_config),
        Step("sum", "upload", {}),
    )
    first = training(*steps, r=0, cycle=1)
    expect_refusal(leader, first)
    second = training(
        fit("local", state, leader.site.agreement.config.training_config),
        *steps[1:],
        r=0,
        cycle=1,
    )
    assert "has tried exchange 1/train/0/0 with other content" in expect_refusal(
        leader, second
    )


def test_a_relay_goes_to_sites_of_the_study(tmp_path: Path) -> None:
    from fallow.transport.peer_messages import request_body

    leader = Leader(
        folder(tmp_path, agreement("training=dpfl", "validation=0.3"), brought=range(9))
    )
    training_config = replace(
        leader.site.agreement.config.training_config, stages=(TrainingStage(4),)
    )
    steps = (
        fit("local", leader.first_model(), training_config),
        Step("relay", "model", {}),
    )
    body = request_body(training(*steps), {"mallory": bytes(32)})
    reply = leader.send(leader.instruction(training(*steps), body=body))
    assert "relays to 'mallory', which is not a site of this study" in str(reply.refused)
    leader.ledger.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"exchange": key_of("0/train/1/0")},
        {"exchange": key_of("0/train/0/1")},
        {"exchange": key_of("0/train/0/0~1")},
        {"attempt": 3},
    ],
)
def test_a_masked_sum_belongs_to_its_step(tmp_path: Path, changed: dict[str, Any]) -> None:
    from fallow.core.messages import KEYS, Masked

    agreed = agreement("strategy=entropy", "privacy.secure_sum=true")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))
    about_it = replace(Masked(key_of("0/train/0/0"), 0, None), **changed)
    step = Step("each", KEYS, {}, masked=about_it)
    assert "belongs to another exchange than the masked aggregation" in expect_refusal(
        leader, training(step)
    )
    leader.ledger.close()


def test_a_masked_sum_names_keys_of_sites_of_the_study_alone(tmp_path: Path) -> None:
    """With keys of its own, the coordinator could remove all masks but one from a sum."""
    from fallow.core.messages import KEYS, Masked

    agreed = agreement("strategy=entropy", "privacy.secure_sum=true")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))
    key = torch.zeros(32, dtype=torch.uint8)
    about_it = Masked(key_of("0/train/0/0"), 0, None, {"north": key, "mallory": key})
    step = Step("each", KEYS, {}, masked=about_it)
    why = expect_refusal(leader, training(step))
    assert "has a key of 'mallory', which is not a site of this study" in why
    leader.ledger.close()


# -- runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["zzz", "", "9" * 10, "0000000001-" + 16 * "A", "x" * 500])
def test_a_run_with_a_name_that_says_no_time_is_refused(leader: Leader, run: str) -> None:
    """The name would sort after all others and block later runs."""
    reply = leader.send(leader.instruction(make_request("hello", "0/hello"), run=run))
    assert "is not a valid run name" in str(reply.refused)
    assert leader.ledger.instructions.newest_run() is None


def test_a_run_from_a_day_that_has_not_come_is_refused_at_once(leader: Leader) -> None:
    from fallow.deployment.site.host import Host

    host = Host(leader.site, leader.ledger, clock=lambda: 1e9)
    leader.host = host
    for ahead, is_taken in ((90_000, False), (80_000, True)):
        run = f"{int(1e9) + ahead:010x}-" + 16 * "a"
        reply = leader.send(leader.instruction(make_request("hello", "0/hello"), run=run))
        assert (reply.refused is None) is is_taken
        if not is_taken:
            assert "wrong by more than a day" in str(reply.refused)
            assert leader.ledger.instructions.newest_run() is None


def test_a_study_begins_only_so_often(tmp_path: Path) -> None:
    """Each run can call all client functions again."""
    site, output = folder(tmp_path, runs=2), []
    for run in (RUN, SECOND, LATER[0]):
        leader = Leader(site, run=run)
        output.append(
            leader.send(leader.instruction(make_request("hello", "0/hello"))).refused
        )
        leader.ledger.close()
    assert output[:2] == [None, None]
    assert "has taken part in 2 runs of this study, and its limit is 2" in str(output[2])
