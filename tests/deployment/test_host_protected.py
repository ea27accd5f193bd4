"""Test privacy at a real site: noise drawn once, sealed peer messages, an intact ledger."""

from __future__ import annotations

import io
import sqlite3
import sys
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.cli import main
from fallow.core.messages import KEYS, Masked, Request, Step
from fallow.core.training_config import TrainingStage
from fallow.privacy.encryption import decrypt
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import new_signing_key, verify_key
from fallow.storage.packing import unpack
from fallow.training.personal import DPFL
from fallow.transport.envelope import Instruction
from fallow.transport.gathering import EPSILON
from fallow.transport.peer_messages import (
    delivery_body,
    request_body,
    seal_peer_messages,
    tensor_to_bytes,
)
from fallow.transport.sum_keys import join_proofs, sign_seal_key
from tests.deployment.hosts import (
    RUN,
    SECOND,
    Leader,
    agreement,
    folder,
    keep,
    make_request,
)
from tests.keys import key_of

pytest.importorskip("cryptography")

SHARE = Request(key_of("0/query/0"), "query", 0, 0, (Step("sum", "share", {}),))


def noisy(path: Path, **chosen: Any) -> Leader:
    pytest.importorskip("opendp")
    agreed = agreement("strategy=ahfal", "privacy.epsilon=0.5")
    return Leader(folder(path, agreed, brought=range(9), **chosen))


# -- noise ---------------------------------------------------------------------------------


def test_a_site_without_the_package_of_noise_names_it_and_does_not_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = folder(tmp_path, agreement("strategy=ahfal", "privacy.epsilon=0.5"))
    for module in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setattr(sys, "argv", ["fallow", "site", "start", str(site.path)])
    monkeypatch.setattr("fallow.deployment.site.serve.connect", no_connection)
    with pytest.raises(SystemExit) as ended, redirect_stderr(io.StringIO()) as error:
        main()
    assert ended.value.code == 2
    assert " ".join(error.getvalue().split()) == (
        "error: noise at a site needs the package opendp, which is not installed; install "
        "it with: pip install 'fallow-core[privacy]'"
    )


def no_connection(*_: Any) -> None:
    raise AssertionError("the site connects")


def test_noise_is_drawn_once_and_says_what_it_cost(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    instruction = leader.instruction(SHARE)
    first = leader.send(instruction).body
    leader.again()
    again = leader.send(instruction).body
    assert first[EPSILON] == 0.5 and torch.equal(first["share"], again["share"])
    assert leader.ledger.store.sum_spent() == 0.5
    leader.ledger.close()


def test_a_new_run_is_not_answered_from_the_book_of_the_last_one(tmp_path: Path) -> None:
    leader = noisy(tmp_path, epsilon=10.0)
    first = leader.send(leader.instruction(SHARE)).body
    second = Leader(leader.site, run=SECOND)
    other = second.send(second.instruction(SHARE)).body
    assert other[EPSILON] == 0.5
    assert second.ledger.store.sum_spent() == 1.0
    shares = {tuple(reply["share"].tolist()) for reply in (first, other)}
    leaders = [leader, second]
    while len(shares) == 1:  # noise may be equal by chance, but not 20 times
        assert len(leaders) < 20
        another = Leader(leader.site, run=f"{len(leaders) + 1:010}-" + 16 * "c")
        leaders.append(another)
        shares.add(tuple(another.send(another.instruction(SHARE)).body["share"].tolist()))
    for one in leaders:
        one.ledger.close()


def test_a_site_spends_no_more_than_it_allows_and_says_so(tmp_path: Path) -> None:
    leader = noisy(tmp_path, epsilon=0.6)
    assert leader.send(leader.instruction(SHARE)).refused is None
    second = Leader(leader.site, run=SECOND)
    refused = second.send(second.instruction(SHARE)).refused
    assert "has spent epsilon 0.5 of the 0.6 that it allows over all runs" in str(refused)
    assert second.ledger.store.sum_spent() == 0.5
    for one in (leader, second):
        one.ledger.close()


def test_noise_that_came_too_late_is_spent_all_the_same(tmp_path: Path) -> None:
    leader = noisy(tmp_path)
    late = leader.instruction(SHARE)
    leader.send(late)
    leader.miss(late)
    assert leader.people("ask", "0/query", allowed=0)["asked"] == 0
    assert leader.ledger.store.sum_spent() == 0.5
    leader.ledger.close()


def test_noise_that_was_drawn_is_spent_also_where_its_order_fails(tmp_path: Path) -> None:
    """Whether a masked sum fails depends on a bound in the instruction, which discloses one
    bit about noisy counts. If noise were drawn again for each key at no cost, such bits
    would average the noise out."""
    pytest.importorskip("opendp")
    agreed = agreement(
        "strategy=ahfal",
        "privacy.epsilon=0.5",
        "privacy.total=1.0",
        "privacy.secure_sum=true",
    )
    leader = Leader(folder(tmp_path, agreed, brought=range(9)))
    spent, why = [], []
    for turn in (0, 2, 4):
        shown = Masked(key_of(f"0/query/{turn}"), 0, None)
        step = Step("each", KEYS, {}, masked=shown)
        asked = Request(key_of(f"0/query/{turn}"), "query", 0, 0, (step,))
        leader.exchange({"north": asked})
        # without the site's own key, so that it always fails
        share = Step("sum", "share", {}, masked=shown)
        failing = Request(key_of(f"0/query/{turn + 1}"), "query", 0, 0, (share,))
        instruction = leader.instruction(failing)
        for _ in range(2):  # repeating the same instruction costs nothing
            why.append(str(leader.send(instruction).refused))
        spent.append(leader.ledger.store.sum_spent())
    assert spent == [0.5, 1.0, 1.0], why
    assert "adds nothing to an aggregation" in why[0]
    assert "rejects another one, which would cost" in why[-1]
    leader.again()
    assert leader.ledger.store.sum_spent() == 1.0
    leader.ledger.close()


# -- peer messages -------------------------------------------------------------------------


def relaying(path: Path) -> tuple[Leader, Instruction, bytes]:
    """Return a site, the instruction to relay its model to "south", and south's secret."""
    leader = Leader(
        folder(path, agreement("training=dpfl", "validation=0.3"), brought=range(9))
    )
    training_config = replace(
        leader.site.agreement.config.training_config, stages=(TrainingStage(4),)
    )  # the first instruction
    secret = new_secret()
    signing = new_signing_key()
    seal = public_half(secret)
    signature = sign_seal_key(signing, leader.site.agreement.digest, "south", seal)
    proofs = join_proofs({"south": verify_key(signing)}, {"south": signature.hex()})
    fit = Step("fit", "local", dict(leader.first_model()), training_config)
    request = Request(
        key_of("0/train/0/0"), "training", 0, 0, (fit, Step("relay", "model", {}))
    )
    body = request_body(request, {"south": seal}, proofs=proofs)
    return leader, leader.instruction(request, body=body), secret


def test_what_a_site_passes_on_is_for_its_receiver_alone(tmp_path: Path) -> None:
    leader, instruction, secret = relaying(tmp_path)
    reply = leader.send(instruction).body
    assert set(reply) == {"message/south", "bytes"}
    peer_message = tensor_to_bytes(reply["message/south"], "a letter")
    model = unpack(
        decrypt(secret, peer_message, repr((RUN, str(instruction.key), "north", "south")))
    )
    assert torch.equal(model["w"], leader.ledger.store.load_states("north")["local"]["w"])
    with pytest.raises(ValueError, match="it cannot be decrypted"):
        decrypt(
            leader.site.keys.seal,
            peer_message,
            repr((RUN, str(instruction.key), "north", "south")),
        )
    leader.ledger.close()


def test_the_legs_of_a_relay_are_one_exchange(tmp_path: Path) -> None:
    leader, instruction, _ = relaying(tmp_path)
    first = leader.send(instruction).body
    brought = {"w": leader.first_model()["w"] + 1}
    sealed = seal_peer_messages(
        Instruction(
            instruction.study, instruction.run, "south", instruction.key, instruction.number
        ),
        {**brought, "labels": 2.0},
        {"north": leader.site.keys.seal_public},
    )
    body = delivery_body("model", {"south": torch.as_tensor(sealed["message/north"])})
    second = Instruction(
        instruction.study,
        instruction.run,
        "north",
        replace(instruction.key, is_delivery=True),
        instruction.number + 1,
        str(instruction.key),
        body,
    )
    assert leader.send(second).body == {"refused": ""}
    kept = leader.ledger.store.load_states("north")
    assert torch.equal(kept["model/south"]["w"], brought["w"]) and "local" in kept
    leader.again()  # no leg has counted: a restarted coordinator asks both again
    assert torch.equal(
        leader.send(instruction).body["message/south"], first["message/south"]
    )
    assert leader.send(second).body == {"refused": ""}
    leader.miss(second)  # it never counts
    leader.people("score", "0/train/0", **leader.first_model())
    assert leader.ledger.store.load_states("north") == {}
    leader.ledger.close()


def test_a_letter_that_does_not_open_is_refused_by_its_sender(tmp_path: Path) -> None:
    leader, instruction, _ = relaying(tmp_path)
    leader.send(instruction)
    body = delivery_body("model", {"south": torch.zeros(60, dtype=torch.uint8)})
    second = Instruction(
        instruction.study,
        instruction.run,
        "north",
        replace(instruction.key, is_delivery=True),
        instruction.number + 1,
        str(instruction.key),
        body,
    )
    assert "message of site south for 'model'" in str(leader.send(second).refused)
    leader.ledger.close()


def test_letters_that_open_a_cycle_are_not_forgotten_with_the_one_before(
    tmp_path: Path,
) -> None:
    leader, first, _ = relaying(tmp_path)
    leader.send(first)  # of a cycle whose end the site does not learn of
    leader.count(first)
    key = key_of("1/train/0/0/deliver")
    sealed = seal_peer_messages(
        Instruction(first.study, first.run, "south", key, 2),
        {"w": leader.first_model()["w"], "labels": 2.0},
        {"north": leader.site.keys.seal_public},
    )
    body = delivery_body(
        "model", {"south": torch.as_tensor(sealed["message/north"])}, cycle=1
    )
    brought = leader.instruction(make_request("hello", "0/hello"), key=key, body=body)
    assert leader.send(brought).body == {"refused": ""}
    leader.count(brought)
    training = leader.host._made.methods["training"]
    assert isinstance(training, DPFL)
    training_config, _ = training.configs
    fit = Step("fit", "local", dict(leader.first_model()), training_config)
    leader.exchange({"north": Request(key_of("1/train/0/1"), "training", 1, 0, (fit,))})
    assert leader.ledger.store.load_states("north").keys() == {
        "cycle",
        "local",
        "model/south",
    }
    leader.ledger.close()


# -- ledger --------------------------------------------------------------------------------


def test_a_damaged_ledger_is_a_refusal_with_the_way_out(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, brought=range(3)))
    leader.people("hello", "0/hello")
    leader.ledger.close()
    db = sqlite3.connect(leader.site.ledger_path)
    db.execute("UPDATE label SET value = 2.0 WHERE row = 1")
    db.commit()
    db.close()
    leader.start()
    for _ in range(2):
        reply = leader.send(leader.instruction(keep("0/query/0", "select", n=1)))
        assert "is damaged" in str(reply.refused)
        log = (leader.site.path / "errors.log").read_text()
        assert "copy ledger-backup.sqlite" in log
    leader.ledger.close()


def test_a_ledger_put_back_from_a_backup_says_that_it_is_older(tmp_path: Path) -> None:
    leader = Leader(folder(tmp_path, brought=range(6)))
    state = leader.cycle(leader.first_model())
    leader.round(0, state, 1)
    leader.ledger.close()
    copy = leader.site.path / "ledger-backup.sqlite"
    leader.site.ledger_path.write_bytes(copy.read_bytes())
    for leftover in ("-wal", "-shm"):
        Path(f"{leader.site.ledger_path}{leftover}").unlink(missing_ok=True)
    leader.start()
    upload = (Step("sum", "upload", {}),)
    reply = leader.send(
        leader.instruction(Request(key_of("1/train/1/0"), "training", 1, 1, upload))
    )
    assert "it is older, perhaps from a backup" in str(reply.refused)
    second = Leader(leader.site, run=SECOND)
    assert (
        second.people("hello", "0/hello")["labeled"] == 9
    )  # labels at the end of labeling
    for one in (leader, second):
        one.ledger.close()


# -- new run -------------------------------------------------------------------------------


def test_a_run_whose_first_order_was_refused_begins_without_memory_of_the_last_one(
    tmp_path: Path,
) -> None:
    """A progress request in between must not restore this state either."""
    first = Leader(folder(tmp_path, brought=range(6)))
    first.round(0, first.first_model())
    second = Leader(first.site, run=SECOND)
    second.host, second.ledger = first.host, first.ledger
    hello = second.instruction(make_request("hello", "0/hello"))
    assert "it is older, perhaps from a backup" in str(
        second.send(replace(hello, counted="0/train/0/0")).refused
    )
    look = replace(hello, key=key_of("progress/1"), body=None)
    assert second.send(look).refused is None
    assert second.send(hello).refused is None
    site = second.host._site
    assert (
        site is not None
        and site.memory.keys() == second.ledger.store.load_states("north").keys()
    )
    first.ledger.close()
