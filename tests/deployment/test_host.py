"""Test which instructions a site performs, that each runs once, and error handling."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Value, Values
from fallow.storage.errors import StorageError
from fallow.transport.envelope import open_reply, sign_message
from tests.deployment.hosts import (
    ASK,
    ROWS,
    RUN,
    SECOND,
    SECRET,
    STRANGER,
    Leader,
    agreement,
    folder,
    keep,
    make_request,
    order_picks,
)
from tests.keys import key_of

pytest.importorskip("cryptography")

# -- authentication of instructions --------------------------------------------------------


def test_a_site_says_what_it_has(leader: Leader) -> None:
    output = leader.people("hello", "0/hello")
    assert (output["rows"], output["test"], output["labeled"], output["pool"]) == (
        ROWS,
        12,
        6,
        ROWS - 6,
    )
    assert output["schema"] == leader.site.agreement.schema.digest
    assert isinstance(output["seal"], torch.Tensor)
    assert output["seal"].tolist() == list(leader.site.keys.seal_public)


def test_orders_that_another_key_signed_are_refused(leader: Leader) -> None:
    reply = leader.send(leader.instruction(make_request("hello", "0/hello")), STRANGER)
    assert "not signed with its key" in str(reply.refused) and reply.key is None


def test_bytes_that_are_no_order_are_refused_and_the_site_goes_on(leader: Leader) -> None:
    assert leader.host.handle(b"") and leader.host.handle(bytes(200))
    assert leader.people("hello", "0/hello")["rows"] == ROWS


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"site": "south"}, "an instruction to site south was sent to site north"),
        ({"study": "another"}, "site north has agreed to study .* not to another"),
        ({"counted": "9/train/0/0"}, "does not have exchange 9/train/0/0"),
        (
            {"counted": "9/train/0/0", "key": key_of("progress/1")},
            "it is older, perhaps from a backup",
        ),
        ({"body": {"request": 3}}, r"does not have the fields \['request', 'to'\]"),
        ({"body": None}, r"does not have the fields \['request', 'to'\]"),
        (
            {"key": key_of("0/query/0")},
            "instruction 0/query/0 contains the request 0/hello/0",
        ),
    ],
)
def test_an_order_that_does_not_fit_is_refused_in_a_sentence(
    leader: Leader, changed: dict[str, Any], why: str
) -> None:
    reply = leader.send(
        replace(leader.instruction(make_request("hello", "0/hello")), **changed)
    )
    assert reply.refused is not None
    with pytest.raises(ValueError, match=why):
        raise ValueError(reply.refused)


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "plain"])
def test_an_older_ledger_names_the_command_after_which_no_label_is_lost(
    is_masked: bool, tmp_path: Path
) -> None:
    """With secure aggregation, three sites cannot proceed without one of them."""
    settings = ["strategy=entropy", f"privacy.secure_sum={str(is_masked).lower()}"]
    leader = Leader(folder(tmp_path, agreement(*settings), brought=range(6)))
    hello = leader.instruction(make_request("hello", "0/hello"))
    why = str(leader.send(replace(hello, counted="9/train/0/0")).refused)
    assert "'fallow coordinate start FOLDER --new-run'" in why
    assert ("begin a new run, because secure aggregation needs 3 sites" in why) == is_masked
    assert ("proceed without this site" in why) == (not is_masked)
    second = Leader(leader.site, run=SECOND)
    assert second.people("hello", "0/hello")["labeled"] == 6
    for one in (leader, second):
        one.ledger.close()


@pytest.mark.parametrize(
    "request_",
    [
        keep("0/query/0", "fit"),
        keep("0/query/0", "__init__"),
        Request(key_of("0/hello/0"), "nobody", 0, 0, (Step("each", "hello", {}),)),
        Request(key_of("0/hello/0"), "annotators", 0, 0, (Step("fit", "_outputs", {}),)),
        Request(key_of("0/hello/0"), "annotators", 0, 0, (Step("fit", "contract", {}),)),
        Request(key_of("0/hello/0"), "annotators", 0, 0, (Step("relay", "hello", {}),)),
        Request(key_of("0/hello/0"), "annotators", 0, 0, ()),
    ],
)
def test_nothing_but_verbs_of_the_study_runs(leader: Leader, request_: Request) -> None:
    assert leader.send(leader.instruction(request_)).refused


@pytest.mark.parametrize(
    ("owner", "kind", "function", "why"),
    [
        ("training", "each", "upload", "FedAvg allows it only by sum"),
        ("query", "each", "select", "Entropy sampling allows it only by keep"),
        ("query", "sum", "upload", "Entropy sampling allows select by keep; nothing else"),
        ("plain", "sum", "upload", "by its key it must be of 'training'"),
        ("retention", "keep", "best", "leads to no step 0/train/0/best"),
        ("annotators", "sum", "hello", "Annotators and scores allows it only by each"),
    ],
)
def test_a_verb_that_is_asked_in_another_way_is_refused_before_anything_is_trained(
    leader: Leader, owner: str, kind: Any, function: str, why: str
) -> None:
    fit = Step("fit", "local", dict(leader.first_model()), TrainingConfig())
    keys = {
        "query": "0/query/0",
        "retention": "0/train/0/best/0",
        "annotators": "0/hello/0",
    }
    key = keys.get(owner, "0/train/0/0")
    instruction = leader.instruction(
        Request(key_of(key), owner, 0, 0, (fit, Step(kind, function, {})))
    )
    assert why in str(leader.send(instruction).refused)
    assert (
        leader.ledger.store.load_states("north") == {}
        and leader.ledger.instructions.traffic() == []
    )


def test_the_arguments_of_people_are_looked_at(leader: Leader) -> None:
    for wrong in ({"allowed": -1}, {"allowed": 1, "more": 2}, {}):
        asked = make_request("ask", "0/query", **wrong)
        assert leader.send(leader.instruction(asked)).refused
    assert leader.ledger.tasks() == []


# -- at-most-once execution ----------------------------------------------------------------


def test_an_order_twice_has_one_answer_and_is_performed_once(leader: Leader) -> None:
    instruction = order_picks(leader)
    first = leader.send(instruction)
    assert (
        first == leader.send(replace(instruction, number=instruction.number + 1))
        and first.refused is None
    )
    assert (
        len(leader.ledger.instructions.traffic()) == 2
    )  # "select", and the flush that delivered the model


def test_a_new_process_gives_the_stored_answer(leader: Leader) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"))
    first = leader.send(instruction)
    leader.again()
    again = leader.send(instruction)
    assert first.body.keys() == again.body.keys()
    assert torch.equal(first.body["seal"], again.body["seal"])


def test_a_stored_answer_with_a_changed_byte_is_not_sent(leader: Leader) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"))
    assert leader.send(instruction).refused is None
    tables = leader.ledger._tables
    reply = bytearray(tables.read("SELECT reply FROM exchange")[0][0])
    reply[-1] ^= 1
    tables.write("UPDATE exchange SET reply = ?", bytes(reply))
    refused = str(leader.send(instruction).refused)
    assert "its ledger is damaged" in refused
    log = (leader.site.path / "errors.log").read_text()
    assert "the reply to 0/hello/0 has a wrong checksum" in log


def test_one_key_with_other_contents_is_refused(leader: Leader) -> None:
    instruction = order_picks(leader)
    other = leader.instruction(
        keep("0/query/0", "select", n=2), counted=instruction.counted
    )
    assert "with other content" in str(leader.send(other).refused)
    assert leader.ledger.tasks() == []


def test_an_answer_that_has_counted_is_not_given_again(leader: Leader) -> None:
    instruction = order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    assert "which is completed: this is a replay" in str(leader.send(instruction).refused)


def test_an_order_of_an_earlier_place_is_refused(leader: Leader) -> None:
    order_picks(leader)
    late = replace(leader.instruction(make_request("ask", "0/query", **ASK)), number=0)
    assert "is number 0: this is a replay" in str(leader.send(late).refused)


def test_an_order_that_fails_changes_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    agreed = agreement("strategy=entropy", "training=perfedavg")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))
    state = leader.first_model()
    training_config = replace(
        agreed.config.training_config, batch_size=8, start="common"
    )  # pairs of batches
    wrong = Request(
        key_of("0/train/0/0"),
        "training",
        0,
        0,
        (
            Step("fit", "local", {}, training_config),
            Step("sum", "upload", {}),
        ),
    )
    refused = str(leader.send(leader.instruction(wrong)).refused)
    assert "could not perform PerFedAvg.upload (error " in refused
    assert "has no model 'common'" in (leader.site.path / "errors.log").read_text()
    assert (
        leader.ledger.store.load_states("north") == {}
        and leader.ledger.instructions.traffic() == []
    )
    leader.round(1, state)
    assert "local" in leader.ledger.store.load_states("north")
    leader.ledger.close()


def test_what_an_order_did_before_it_failed_is_not_written_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site trained, but its reply could not be created."""
    leader = Leader(folder(tmp_path, agreement("strategy=random"), brought=range(6)))

    def fails(*args: Any, **fields: Any) -> Any:
        raise ValueError("this cannot be computed")

    state = leader.first_model()
    training = type(leader.host._made.methods["training"])
    with monkeypatch.context() as broken:
        broken.setattr(training, "upload", fails)
        with pytest.raises(RuntimeError, match=r"could not perform FedAvg\.upload"):
            leader.round(0, state)
    assert leader.ledger.store.load_states("north") == {}
    leader.query(state)
    assert "global" in leader.ledger.store.load_states("north")
    assert "local" not in leader.ledger.store.load_states("north")
    leader.ledger.close()


def test_questions_are_asked_once_however_often_the_order_comes(leader: Leader) -> None:
    order_picks(leader)
    instruction = leader.instruction(make_request("ask", "0/query", **ASK))
    assert leader.send(instruction).body == {"asked": 3}
    leader.again()
    assert leader.send(instruction).body == {"asked": 3}
    leader.count(instruction)
    assert len(leader.ledger.tasks()) == 3
    more = make_request("ask", "0/query", **{**ASK, "allowed": 9})
    later = leader.instruction(replace(more, key=key_of("0/query/ask/1")))
    assert "requests it at most 1 times" in str(leader.send(later).refused)
    assert len(leader.ledger.tasks()) == 3


def test_a_close_that_comes_twice_enters_each_label_once(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    leader.label()
    instruction = leader.instruction(make_request("close", "0/query"))
    first = leader.send(instruction).body
    assert leader.send(instruction).body == first
    assert (first["asked"], first["answered"], first["labeled"]) == (3, 3, 9)
    assert len(leader.ledger.store.load_labels("north")) == 9


# -- late replies --------------------------------------------------------------------------


def test_work_that_came_too_late_leaves_no_trace_in_what_comes_next(tmp_path: Path) -> None:
    result = []
    for name in ("undisturbed", "late"):
        (tmp_path / name).mkdir()
        leader = Leader(folder(tmp_path / name, brought=range(6)))
        state = leader.round(0, leader.first_model())
        if name == "late":
            model: dict[str, Value] = {
                "w": torch.ones_like(state["w"]),
                "stats": state["stats"],
            }
            step = Step("fit", "local", model, leader.site.agreement.config.training_config)
            missed = Request(
                key_of("0/train/1/0"), "training", 0, 1, (step, Step("sum", "upload", {}))
            )
            instruction = leader.instruction(missed)
            assert leader.send(instruction).refused is None  # the reply is not counted
            leader.miss(instruction)
        leader.query(state)
        leader.people("ask", "0/query", **ASK)
        memory = leader.ledger.store.load_states("north")
        result.append((memory, [question.row for question in leader.ledger.tasks()]))
        leader.ledger.close()
    (one, rows), (other, others) = result
    assert rows == others and one.keys() == other.keys()
    for name in one:
        assert all(torch.equal(one[name][part], other[name][part]) for part in one[name]), (
            name
        )


def test_questions_that_were_asked_too_late_stay_and_their_labels_count(
    leader: Leader,
) -> None:
    order_picks(leader)
    late = leader.instruction(make_request("ask", "0/query", **ASK))
    assert leader.send(late).body == {"asked": 3}
    leader.miss(late)
    leader.label()
    assert leader.people("close", "0/query")["labeled"] == 9


def test_a_close_that_came_too_late_has_closed(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    leader.label()
    late = leader.instruction(make_request("close", "0/query"))
    assert leader.send(late).refused is None
    leader.miss(late)
    leader.round(0, leader.first_model(), 1)
    assert len(leader.host._local_site().labeled) == 9
    assert "selected" not in leader.ledger.store.load_states("north")


# -- runs ----------------------------------------------------------------------------------


def test_a_new_run_starts_with_the_labels_of_the_one_before(leader: Leader) -> None:
    order_picks(leader)
    leader.people("ask", "0/query", **ASK)
    leader.label()
    leader.people("close", "0/query")
    second = Leader(leader.site, run=SECOND)
    assert second.people("hello", "0/hello")["labeled"] == 9
    assert {label.cycle for label in second.ledger.store.load_labels("north")} == {-1}
    assert second.ledger.tasks() == []
    reply = leader.send(leader.instruction(make_request("ask", "0/query", **ASK)))
    assert f"has left run {leader.run} for {SECOND}" in str(reply.refused)
    second.ledger.close()


def test_a_run_that_began_before_the_newest_one_is_a_replay(leader: Leader) -> None:
    leader.people("hello", "0/hello")
    earlier = "0000000000-" + 16 * "e"
    instruction = replace(leader.instruction(make_request("hello", "0/hello")), run=earlier)
    reply = leader.send(instruction)
    assert f"is in run {RUN}, and run {earlier} started before it" in str(reply.refused)
    assert leader.ledger.instructions.newest_run() == RUN


def test_people_who_are_asked_about_first_change_no_secret_draw(leader: Leader) -> None:
    state = leader.first_model()
    leader.round(0, state)
    before = leader.host._local_site().parts.secret
    leader.again()
    assert (
        leader.send(
            leader.instruction(make_request("hello", "0/hello"), key=key_of("progress/1"))
        ).refused
        is None
    )
    leader.round(1, state)
    assert leader.host._local_site().parts.secret == before


# -- errors --------------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_is_a_refusal_and_the_site_goes_on(
    tmp_path: Path,
) -> None:
    large = agreement("strategy=random", "model=mlp:hidden=[4000]")
    leader = Leader(folder(tmp_path, large, brought=range(6)))
    tables = leader.ledger._tables
    pages = tables.read("PRAGMA page_count")[0][0]
    tables.read(f"PRAGMA max_page_count = {pages}")
    model: dict[str, Value] = {**leader.first_model()}
    request = Request(key_of("0/query/0"), "query", 0, 0, (Step("fit", "global", model),))
    instruction = leader.instruction(request)
    assert "free some space" in str(leader.send(instruction).refused)
    tables.read("PRAGMA max_page_count = 1000000")
    assert leader.send(instruction).refused is None
    leader.ledger.close()


def test_a_ledger_of_other_rows_is_refused(leader: Leader) -> None:
    with pytest.raises(StorageError, match=r"another number of rows \(18, not 17\)"):
        leader.ledger.instructions.check_rows(ROWS - 1)


def test_a_message_above_what_the_study_leads_to_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    """Unpacking and comparing one argument of 100 MiB took 400 MiB of additional memory."""
    leader = Leader(folder(tmp_path, brought=range(6)))
    state: Values = {
        **leader.first_model(),
        "w": torch.ones(100 << 17, dtype=torch.float64),
    }
    request = Request(
        key_of("0/train/0/0"), "training", 0, 0, (Step("fit", "global", state),)
    )
    blob = sign_message(SECRET, leader.instruction(request))
    tracemalloc.start()  # measures copies of the message, but no memory of torch
    try:
        reply = open_reply(leader.site.keys.verify, leader.host.handle(blob), "north")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(blob) / 10
    assert reply.refused is not None
    assert f"a message of {len(blob)} bytes to site north is not parsed" in reply.refused
    leader.ledger.close()
