"""Test how a site rolls back a run, and what is never rolled back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fallow.core.messages import KEYS, Masked, Request, Step
from fallow.core.types import State, Value
from fallow.transport.envelope import Instruction, Reply
from tests.deployment.hosts import Leader, agreement, folder
from tests.keys import key_of

pytest.importorskip("cryptography")


def retry(leader: Leader, request: Request, times: int) -> Instruction:
    """Return the instruction for a request that is retried."""
    return replace(leader.instruction(request), key=replace(request.key, retry=times))


def send_and_count(leader: Leader, instruction: Instruction) -> Reply:
    reply = leader.send(instruction)
    assert reply.refused is None, reply.refused
    leader.count(instruction)
    return reply


def upload(leader: Leader, r: int, state: State, cycle: int = 0) -> Request:
    training_config = leader.site.agreement.config.training_config
    steps = (Step("fit", "local", dict(state), training_config), Step("sum", "upload", {}))
    return Request(key_of(f"{cycle}/train/{r}/0"), "training", cycle, r, steps)


def score(state: State, r: int = 1) -> Request:
    step = Step("each", "score", {**state})
    return Request(key_of(f"0/train/{r}/score/0"), "annotators", 0, r, (step,))


def train_cycle(leader: Leader) -> State:
    """Train both rounds of the first cycle."""
    state = leader.first_model()
    for r in (0, 1):
        send_and_count(leader, leader.instruction(upload(leader, r, state)))
    return state


def test_what_is_asked_anew_may_bring_another_model(leader: Leader) -> None:
    state = train_cycle(leader)
    other = {**state, "w": state["w"] + 1}
    first = send_and_count(leader, retry(leader, upload(leader, 1, state), 1))
    second = send_and_count(leader, retry(leader, upload(leader, 1, other), 2))
    assert (first.body["w"] != second.body["w"]).any()


def test_one_going_back_reaches_to_all_that_comes_after_it(leader: Leader) -> None:
    state = train_cycle(leader)
    for r in (0, 1):
        send_and_count(leader, retry(leader, upload(leader, r, state), 1))
    assert leader.ledger.instructions.times_back(leader.run) == 1


def test_a_run_goes_back_as_often_as_it_has_to(leader: Leader) -> None:
    state = train_cycle(leader)
    for times in range(1, 21):
        send_and_count(leader, retry(leader, upload(leader, 0, state), times))
    leader.again()
    assert leader.ledger.instructions.times_back(leader.run) == 20


def test_an_order_that_comes_before_is_refused_unless_it_is_asked_anew(
    leader: Leader,
) -> None:
    state = train_cycle(leader)
    again = upload(leader, 0, state)
    over = leader.instruction(again)
    assert "which is completed" in str(leader.send(over).refused)
    send_and_count(leader, retry(leader, again, 1))
    replay = leader.instruction(upload(leader, 1, state))
    assert "which is completed" in str(leader.send(replay).refused)


def test_a_step_that_was_never_asked_goes_on_under_its_new_key(leader: Leader) -> None:
    """The site was offline when the other sites received the first attempt."""
    state = leader.first_model()
    send_and_count(leader, retry(leader, upload(leader, 0, state), 3))
    send_and_count(leader, leader.instruction(upload(leader, 1, state)))
    assert leader.ledger.instructions.times_back(leader.run) == 0


def test_a_score_that_is_asked_anew_costs_nothing_for_the_same_model_alone(
    leader: Leader,
) -> None:
    state = train_cycle(leader)
    send_and_count(leader, leader.instruction(score(state)))
    send_and_count(leader, retry(leader, score(state), 1))
    assert leader.ledger.instructions.scores() == 1
    other = {**state, "w": state["w"] + 1}
    send_and_count(leader, retry(leader, score(other), 2))
    assert leader.ledger.instructions.scores() == 2


def test_going_back_gives_no_score_back(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, brought=range(6), scores=1))
    state = train_cycle(leader)
    send_and_count(leader, leader.instruction(score(state)))
    send_and_count(leader, retry(leader, upload(leader, 1, state), 1))
    other = {**state, "w": state["w"] + 1}
    why = leader.send(retry(leader, score(other), 1)).refused
    assert "has scored 1 models, its limit over all runs is 1" in str(why)
    leader.ledger.close()


def test_a_step_that_is_asked_anew_shows_nobody_more_questions(leader: Leader) -> None:
    state = train_cycle(leader)
    select = Request(
        key_of("0/query/0"), "query", 0, 0, (Step("keep", "select", {"n": 3}),)
    )
    value: dict[str, Value] = {"allowed": 3}
    ask = Request(
        key_of("0/query/ask/0"), "annotators", 0, 0, (Step("each", "ask", value),)
    )
    model = Step("fit", "global", dict(state))
    select = replace(select, steps=(model, *select.steps))
    send_and_count(leader, leader.instruction(select))
    assert send_and_count(leader, leader.instruction(ask)).body["asked"] == 3
    send_and_count(leader, retry(leader, select, 1))
    assert send_and_count(leader, retry(leader, ask, 1)).body["asked"] == 3
    assert (leader.ledger.requests.asked, leader.ledger.requests.shown) == (3, 3)


@pytest.mark.parametrize("then", [0, 2])
def test_an_attempt_that_failed_is_over_once_another_was_performed(
    leader: Leader, then: int
) -> None:
    """The failed attempt was never performed, so only this rule detects its replay."""
    state = leader.first_model()
    failed = retry(leader, upload(leader, 0, {}), 1)
    assert leader.send(failed).refused
    later = leader.instruction(upload(leader, 0, state))
    if then:
        later = retry(leader, upload(leader, 0, state), then)
    assert leader.send(later).refused is None
    assert "which is completed" in str(leader.send(failed).refused)
    assert leader.ledger.instructions.load_standing_keys(leader.run)[-1] == later.key


def test_every_going_back_is_kept_and_its_line_is_noticed_where_it_is_changed(
    leader: Leader,
) -> None:
    state = train_cycle(leader)
    send_and_count(leader, retry(leader, upload(leader, 1, state), 1))
    leader.again()
    assert leader.ledger.instructions.times_back(leader.run) == 1
    assert leader.ledger.instructions.is_taken_back(leader.run, key_of("0/train/1/0"))


def test_with_secure_sums_a_run_goes_back_to_its_newest_exchange_alone(
    tmp_path: Path,
) -> None:
    """Two sums of one step with different sets of sites would disclose contributions."""
    agreed = agreement("strategy=entropy", "privacy.secure_sum=true")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))

    def keys(turn: int) -> Request:
        masked = Masked(key_of(f"0/train/0/{turn}"), 0, None)
        step = Step("each", KEYS, {}, masked=masked)
        return Request(key_of(f"0/train/0/{turn}"), "training", 0, 0, (step,))

    first = send_and_count(leader, leader.instruction(keys(0)))
    again = send_and_count(leader, retry(leader, keys(0), 1))
    assert torch.equal(first.body["key"], again.body["key"])
    send_and_count(leader, leader.instruction(keys(1)))
    message = "with secure aggregation, only the newest exchange can be repeated"
    assert message in str(leader.send(retry(leader, keys(0), 2)).refused)
    wrong = replace(keys(1), steps=(replace(keys(1).steps[0], masked=None),))
    # the newest exchange is now rolled back
    assert leader.send(retry(leader, wrong, 2)).refused
    assert leader.ledger.instructions.times_back(leader.run) == 2
    assert message in str(leader.send(retry(leader, keys(0), 3)).refused)
    leader.ledger.close()
