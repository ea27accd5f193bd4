"""Test that the text of an exception never leaves its site: every client function contains
canaries, which are searched for outside the site."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import fallow.strategies
import fallow.training
import fallow.training.personal
from fallow.core.build import build, names
from fallow.core.events import Event
from fallow.core.messages import Request, Step
from fallow.core.refusal import Refusal
from fallow.deployment.annotators import Annotators
from fallow.deployment.site import host as host_module
from fallow.deployment.site import refusals
from fallow.deployment.site.refusals import LOG, ErrorLog, word_for_outside
from fallow.settings.classes import classes_of
from fallow.storage.plain import SENTENCE
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling
from fallow.transport.envelope import Instruction, Reply, open_instruction, sign_message
from tests.deployment.hosts import SECRET, SITE, Leader, make_request
from tests.deployment.planted import hidden_in
from tests.deployment.simulations import tiny
from tests.keys import key_of

pytest.importorskip("cryptography")

CANARIES = (
    "63.451789",  # a value of an example
    "febrile-zauber",  # a label
    "castorp-hans-1907",  # the name of an example
    "mountain-patients.csv",  # the name of a file
    "/home/berghof/rows",  # a path
)
QUOTED = " ".join(CANARIES)
METHODS = [
    *(("query", name) for name in classes_of("strategy")),
    *(("training", name) for name in names((fallow.training, fallow.training.personal))),
    ("scaling", "Scaling"),
    ("retention", "Retention"),
    ("annotators", "Annotators"),
]
KINDS = {
    "query": fallow.strategies,
    "training": (fallow.training, fallow.training.personal),
}


def raising(error: Callable[[], BaseException]) -> Callable[..., NoReturn]:
    def fail(*args: Any, **fields: Any) -> NoReturn:
        raise error()

    return fail


def chain_errors() -> BaseException:
    error = RuntimeError("in other words")
    error.__cause__ = KeyError(QUOTED)
    return error


class Talkative(Exception):
    """Contain canaries in every text form of the exception."""

    def __str__(self) -> str:
        return QUOTED

    def __repr__(self) -> str:
        return QUOTED


ERRORS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError(f"could not convert string to float: {QUOTED!r}"),
    "key": lambda: KeyError(QUOTED),
    "runtime": lambda: RuntimeError(QUOTED),
    "file": lambda: OSError(2, QUOTED, QUOTED),
    "type": lambda: TypeError(QUOTED),
    "own": Talkative,
    "exit": lambda: SystemExit(QUOTED),
    "chain": chain_errors,
    "name": lambda: type(f"Error of {QUOTED}", (Exception,), {})("x"),
    "huge": lambda: ValueError(QUOTED * 100_000),
}


def method_of(owner: str, name: str) -> Any:
    if owner in KINDS:
        return build(KINDS[owner], name)  # type: ignore[arg-type]
    builders: dict[str, Callable[[], object]] = {
        "scaling": Scaling,
        "retention": lambda: Retention(fallow.training.FedAvg()),
        "annotators": Annotators,
    }
    return builders[owner]()


def assert_silent(leader: Leader, instruction: Instruction, what: str) -> None:
    """Check that the site rejects the instruction by a number and sends no canary."""
    blob = leader.host.handle(sign_message(SECRET, instruction))
    for canary in (*CANARIES, str(leader.site.path), leader.site.path.parent.name):
        assert canary.encode() not in blob
    assert hidden_in(blob) == []
    refusal = str(leader.send(instruction).refused)
    assert re.fullmatch(
        rf"site {SITE} could not perform {re.escape(what)} \(error [0-9a-f]{{8}}\); "
        rf"see its {LOG} for details",
        refusal,
    )
    number = re.findall(r"error ([0-9a-f]{8})", refusal)[0]
    log = leader.site.path / LOG
    assert f"== error {number}, " in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def build_request(
    leader: Leader, owner: str, kind: str, function: str, turn: int
) -> Request:
    """Build a request to a client function, with its owner if the agreement has one."""
    is_people = owner == "annotators"
    key = key_of(f"{PLACES[function if is_people else owner]}/{0 if is_people else turn}")
    args: dict[str, Any] = {}
    if function == "ask":
        args = {"allowed": 3}
    if is_people and function == "score":
        args = {**leader.first_model()}
    position = leader.host._limits.schedule.find_position(key)
    step = Step(kind, function, args)  # type: ignore[arg-type]
    return Request(key, owner, position.cycle, key.round, (step,))


PLACES = {
    "query": "0/query",
    "training": "0/train/0",
    "scaling": "0/initial/features",
    "retention": "0/train/0/best",
    "hello": "0/hello",
    "ask": "0/query/ask",
    "close": "0/query/close",
    "score": "0/train/1/score",
    "finish": "model/finish",
}
"""Point of a run at which an algorithm or a question about annotators is sent."""


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_what_a_site_function_says_when_it_fails_stays_at_the_site(
    owner: str, name: str, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = method_of(owner, name)
    monkeypatch.setitem(leader.host._made.methods, owner, method)
    if owner == "annotators":
        monkeypatch.setattr(leader.host, "_annotators", method)
    seen = 0
    for item in method.contract.functions:
        function = item.name
        if (owner, function) == ("annotators", "progress"):
            continue  # tested separately below
        fails = raising(ERRORS["value"])
        monkeypatch.setattr(type(method), function, fails, raising=False)
        seen += 1
        instruction = leader.instruction(
            build_request(leader, owner, item.operation, function, seen)
        )
        assert_silent(leader, instruction, f"{type(method).__name__}.{function}")
        monkeypatch.undo()
        monkeypatch.setitem(leader.host._made.methods, owner, method)
        if owner == "annotators":
            monkeypatch.setattr(leader.host, "_annotators", method)
    if seen:
        log = (leader.site.path / LOG).read_text()
        assert all(canary in log for canary in CANARIES)


@pytest.mark.parametrize("error", ERRORS)
def test_no_kind_of_error_carries_its_words_out(
    error: str, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallow.strategies.Entropy, "select", raising(ERRORS[error]))
    request = Request(
        key_of("0/query/0"), "query", 0, 0, (Step("keep", "select", {"n": 1}),)
    )
    assert_silent(leader, leader.instruction(request), "Entropy.select")


@pytest.mark.parametrize("error", [ValueError, Refusal])
@pytest.mark.parametrize("part", ["start", "step", "finish", "deploy"])
def test_what_a_step_of_training_says_stays_at_the_site(
    part: str, error: type[Exception], leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallow.training.FedAvg, part, raising(lambda: error(QUOTED)))
    state = leader.first_model()
    if part == "deploy":  # only a query sends a model without training it
        steps = (Step("fit", "global", dict(state)), Step("keep", "select", {"n": 3}))
        request = Request(key_of("0/query/0"), "query", 0, 0, steps)
        assert_silent(leader, leader.instruction(request), "Entropy.select")
        return
    training_config = leader.site.agreement.config.training_config
    fit = Step("fit", "local", dict(state), training_config)
    instruction = leader.instruction(
        Request(key_of("0/train/0/0"), "training", 0, 0, (fit,))
    )
    assert_silent(leader, instruction, "training of FedAvg")


@pytest.mark.parametrize(
    "part", ["_enter_own_labels", "_local_site", "_labeling_view", "_finish", "_take_turn"]
)
def test_what_the_host_itself_says_stays_at_the_site(
    part: str, leader: Leader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The errors concern labels of the file, the ledger and examples."""
    monkeypatch.setattr(host_module.Host, part, raising(ERRORS["value"]))
    instruction = leader.instruction(make_request("hello", "0/hello"))
    assert_silent(leader, instruction, "Annotators.hello")


def test_a_progress_that_fails_is_silent_too(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Annotators, "progress", raising(ERRORS["value"]))
    instruction = leader.instruction(
        make_request("hello", "0/hello"), key=key_of("progress/1")
    )
    assert_silent(leader, instruction, "a progress request")


def test_a_refusal_of_our_own_is_told_in_its_words(leader: Leader) -> None:
    instruction = replace(
        leader.instruction(make_request("hello", "0/hello")), study="0" * 32
    )
    assert "has agreed to study" in str(leader.send(instruction).refused)


def test_a_method_cannot_pass_words_off_as_a_refusal_of_our_own(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fallow.strategies.Entropy, "select", raising(lambda: Refusal(QUOTED))
    )
    request = Request(
        key_of("0/query/0"), "query", 0, 0, (Step("keep", "select", {"n": 1}),)
    )
    assert_silent(leader, leader.instruction(request), "Entropy.select")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, QUOTED, QUOTED), "its disk is full"),
        (MemoryError(QUOTED), "its memory is full"),
        (sqlite3.OperationalError(QUOTED), ""),
    ],
)
def test_what_people_can_put_right_is_said_from_a_closed_list(
    error: BaseException, message: str, tmp_path: Path
) -> None:
    output = word_for_outside("north", "x", error, ErrorLog(tmp_path))
    assert message in output
    assert not any(canary in output for canary in CANARIES)


def test_the_log_is_bounded_for_its_owner_alone_and_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "LARGEST_LOG", 100_000)
    log = ErrorLog(tmp_path)
    for _ in range(20):
        log.note("x", ValueError("x" * 1_000_000))
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert set(sizes) == {LOG, f"{LOG}.1"}
    assert all(size < 100_000 + 2 * refusals.ENTRY for size in sizes.values())
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())
    log.path.unlink()
    log.path.symlink_to(tmp_path / "elsewhere")
    assert log.note("x", ValueError("x"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_others_could_read_is_its_owners_alone_after_an_entry(
    tmp_path: Path,
) -> None:
    log = ErrorLog(tmp_path)
    log.path.touch()
    log.path.chmod(0o644)
    log.note("x", ValueError("x"))
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_a_new_log_is_its_owners_alone_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchmod", lambda *arguments: None)
    before = os.umask(0)
    try:
        ErrorLog(tmp_path).note("x", ValueError("x"))
    finally:
        os.umask(before)
    assert (tmp_path / LOG).stat().st_mode & 0o777 == 0o600


def test_an_error_is_answered_also_where_the_log_cannot_be_written(tmp_path: Path) -> None:
    output = word_for_outside(
        "north", "x", ValueError(QUOTED), ErrorLog(tmp_path / "nowhere")
    )
    assert output.startswith("site north could not perform x (error ")


# -- amount of disclosed information -------------------------------------------------------


def test_a_refusal_that_leaves_is_short_and_steers_no_terminal(
    leader: Leader, tmp_path: Path
) -> None:
    instruction = leader.instruction(make_request("hello", "0/hello"))
    long = "\x1b]0;title\x07\u202e<script>" * 100_000
    outputs = [word_for_outside("north", "x", Refusal(long), ErrorLog(tmp_path))]
    for wrong in (replace(instruction, version=long), replace(instruction, study=long)):
        outputs.append(str(leader.send(wrong).refused))
    for output in outputs:
        assert len(output) <= SENTENCE
        assert not any(c in output for c in "\x1b\x07\u202e\n")


def test_a_coordinator_takes_no_longer_or_wilder_words_from_a_site(tmp_path: Path) -> None:
    simulation = tiny(tmp_path)
    events: list[Event] = []
    long = "\x1b[2J\u202e<script>alert(1)</script>" * 1_000  # within the size of a reply

    def wild(blob: bytes) -> bytes:
        instruction = open_instruction(simulation.agreement.coordinator, blob)
        reply = Reply(
            instruction.run, "basel", instruction.key, refused=long, life=instruction.life
        )
        return sign_message(simulation.sites["basel"].keys.sign, reply)

    simulation.transport.alive["basel"] = wild
    with pytest.raises(RuntimeError) as error:
        simulation.program(events.append).go()
    words = [str(error.value), *(str(event.get("reason", "")) for event in events)]
    words.append((simulation.coordinator_folder / "live.json").read_text())
    assert any("basel" in text for text in words)
    for text in words:
        assert len(text) < 10_000
        assert "\x1b" not in text and "\\u001b" not in text and "\u202e" not in text
    simulation.close()


def test_a_letter_that_cannot_be_read_quotes_nothing_of_what_was_sealed() -> None:
    from fallow.core.values import SenderFacts
    from fallow.privacy.encryption import encrypt_for
    from fallow.privacy.masks import new_secret, public_half
    from fallow.storage.packing import pack
    from fallow.training.personal import DPFL
    from fallow.transport.peer_messages import (
        _name_peer_message,
        bytes_to_tensor,
        delivery_body,
        read_delivery,
    )

    secret = new_secret()
    instruction = Instruction("s", "r", "b", key_of("0/train/0/0/deliver"), 1)
    contents = [QUOTED.encode(), pack({QUOTED: torch.tensor([torch.nan])}), pack([QUOTED])]
    for content in contents:
        sealed = encrypt_for(
            public_half(secret), content, _name_peer_message(instruction, "a", "b")
        )
        unreadable = replace(
            instruction, body=delivery_body("model", {"a": bytes_to_tensor(sealed)})
        )
        with pytest.raises(Refusal) as error:
            delivery = read_delivery(
                unreadable, secret, DPFL(), SenderFacts({"weights": 3})
            )
            raise Refusal("; ".join(delivery.refused.values()))
        assert "site b rejects the message of site a" in str(error.value)
        assert not any(canary in str(error.value) for canary in CANARIES)
