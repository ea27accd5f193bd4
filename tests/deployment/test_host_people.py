"""Test labeling tasks, labels, withdrawals and scores at a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.core.messages import Request, Step
from fallow.core.types import Values
from fallow.transport.envelope import Instruction
from tests.deployment.hosts import (
    ASK,
    ROWS,
    RUN,
    Leader,
    agreement,
    folder,
    make_request,
    order_picks,
    truth,
)
from tests.keys import key_of

pytest.importorskip("cryptography")

# -- labeling tasks ------------------------------------------------------------------------


def test_a_question_says_why_its_row_was_chosen(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    questions = leader.ledger.tasks()
    assert [question.position for question in questions] == [0, 1, 2]
    scores = [question.reasons["score"] for question in questions]
    assert scores == sorted(scores, reverse=True)  # entropies in descending order
    assert all(question.reasons["by"] == "local" for question in questions)
    assert all(question.reasons["predicted"] in (0, 1, 2) for question in questions)
    assert all(1 / 3 <= question.reasons["probability"] <= 1 for question in questions)


def test_the_first_questions_say_only_their_place(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path))
    leader.host._made.methods["initial"].query(
        leader.ask("0/initial", "initial"), {"north": 4}, {}
    )
    reply: Values = {"allowed": 4}
    assert leader.people("ask", "0/initial", -1, **reply) == {"asked": 4}
    assert [question.reasons for question in leader.ledger.tasks(-1)] == 4 * [{}]
    leader.ledger.close()


def test_a_site_asks_no_more_than_its_own_limit(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, brought=range(6), limit=2))
    order_picks(leader)
    assert leader.people("ask", "0/query", **ASK) == {"asked": 2}
    leader.ledger.close()


def test_progress_changes_nothing_and_needs_no_turn(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    leader.ledger.answer(leader.ledger.tasks()[0].row, 1, "ann")
    sent = leader.ledger.instructions.traffic()
    instruction = Instruction(
        leader.site.agreement.digest, RUN, "north", key_of("progress/7"), 0
    )
    progress = leader.send(instruction).body
    assert progress == {"asked": 3, "answered": 1, "declined": 0, "open": 2, "conflicts": 0}
    assert leader.send(replace(instruction, run="another")).body["asked"] == 0
    assert leader.ledger.instructions.traffic() == sent


def test_a_disagreement_of_annotators_is_not_sent_beside_noise(tmp_path: Path) -> None:
    noisy = agreement("strategy=ahfal", "privacy.epsilon=0.5")
    for agreed in (agreement("strategy=ahfal"), noisy):
        leader = Leader(folder(tmp_path / agreed.digest, agreed, brought=range(6)))
        leader.people("hello", "0/hello")
        select = (Step("keep", "select", {"n": 3}),)
        leader.exchange({"north": Request(key_of("0/initial/0"), "initial", 0, 0, select)})
        leader.people("ask", "0/initial", -1, **ASK)
        (first, *_) = leader.ledger.tasks()
        for annotator, label in (("ann", 1), ("bob", 2)):
            leader.ledger.answer(first.row, label, annotator)
        instruction = Instruction(agreed.digest, RUN, "north", key_of("progress/7"), 0)
        progress = leader.send(instruction).body
        is_noisy = agreed is noisy
        assert (progress["open"], progress["conflicts"]) == ((3, 0) if is_noisy else (2, 1))
        leader.ledger.close()


def test_labels_train_from_the_close_on(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    leader.label()
    before = len(leader.host._local_site().labeled)
    after = leader.people("close", "0/query")
    assert (before, after["labeled"], after["pool"]) == (6, 9, ROWS - 9)
    values = {label.row: label.value for label in leader.ledger.store.load_labels("north")}
    assert all(value == truth(row) for row, value in values.items())


def test_the_memory_of_a_cycle_ends_with_it(leader: Leader) -> None:
    order_picks(leader)
    leader.people("close", "0/query")
    assert leader.ledger.store.load_states("north") == {}


def test_a_withdrawn_sample_leaves_in_the_middle_of_a_round(
    leader: Leader,
) -> None:
    state = leader.first_model()
    leader.people("hello", "0/hello")
    leader.ledger.withdraw(0, "ann")  # has a label
    leader.ledger.withdraw(9, "ann")  # has no label
    training_config = leader.site.agreement.config.training_config
    middle = Request(
        key_of("0/train/0/1"),
        "training",
        0,
        0,
        (Step("fit", "local", dict(state), training_config), Step("sum", "upload", {})),
    )
    assert leader.exchange({"north": middle}).replies["north"]["n"] == 5.0
    site = leader.host._local_site()
    assert (len(site.labeled), len(site.pool)) == (5, ROWS - 6 - 1)
    leader.again()
    assert leader.send(leader.instructions[-1]).refused is None
    assert len(leader.host._local_site().labeled) == 5


def test_brought_labels_cost_nothing_and_are_held_back_like_others(tmp_path: Path) -> None:
    agreed = agreement("strategy=entropy", "validation=0.34")
    leader = Leader(folder(tmp_path, agreed, brought=range(9), limit=0))
    reply = leader.people("hello", "0/hello")
    assert (reply["labeled"], reply["validation"]) == (6, 3)
    assert {label.cycle for label in leader.ledger.store.load_labels("north")} == {-1}
    leader.ledger.close()


# -- scores --------------------------------------------------------------------------------


def score(leader: Leader, **more: Any) -> Any:
    state = {**leader.first_model(), **more}
    return leader.people("score", "0/train/0", **state)


def test_a_score_counts_rows_and_hits_in_all_and_by_class(leader: Leader) -> None:
    output = score(leader)
    assert output["rows"] == 12 and 0 <= output["hits"] <= 12
    assert output["class_rows"].tolist() == [4.0, 4.0, 4.0]
    assert output["class_hits"].sum() == output["hits"]


def test_a_site_without_test_rows_says_nothing(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, test=None))
    assert score(leader)["rows"] == 0.0
    leader.ledger.close()


def test_a_model_that_diverged_is_refused_by_name(leader: Leader) -> None:
    state = leader.first_model()
    huge = {**state, "w": state["w"] + 1e308}
    request = make_request("score", "0/train/0", **huge)
    assert "training diverged" in str(leader.send(leader.instruction(request)).refused)


def test_under_secure_sums_a_score_leaves_masked_or_not_at_all(tmp_path: Path) -> None:
    agreed = agreement("strategy=entropy", "privacy.secure_sum=true")
    leader = Leader(folder(tmp_path, agreed))
    single = make_request("score", "0/train/0", **leader.first_model())
    bare = replace(single, steps=(replace(single.steps[0], kind="sum"),))
    for request, why in (
        (single, "allows it only by sum"),
        (bare, "only masked contributions"),
    ):
        assert why in str(leader.send(leader.instruction(request)).refused)
    leader.ledger.close()


def test_the_end_leaves_a_model_and_its_card_at_the_site(leader: Leader) -> None:
    state = leader.round(0, leader.first_model())
    ask = leader.ask("model/finish", "annotators", 2)
    assert (
        ask.keep(leader.host._annotators.finish, None, **state) == 0
    )  # the global model; the site has no personalized model
    assert (leader.site.path / "model.safetensors").exists()
    assert "Model card" in (leader.site.path / "model-card.md").read_text()
