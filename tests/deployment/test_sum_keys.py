"""Test that sites refuse to contribute if the coordinator replaces keys of sites."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.messages import KEYS, Masked, Request, Step
from fallow.core.training_config import TrainingStage
from fallow.deployment.site.keys import PEERS, Peers
from fallow.experiment.event_log import EventLog
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import SMALL_ORDER, new_signing_key, verify_key
from fallow.transport.envelope import Instruction
from fallow.transport.peer_messages import bytes_to_tensor, request_body
from fallow.transport.sum_keys import (
    SIGNED,
    check_sum_key,
    join_proofs,
    sign_seal_key,
    sign_sum_key,
)
from tests.deployment.hosts import RUN, SECOND, SITE, SITES, Leader, agreement, folder
from tests.keys import key_of

pytest.importorskip("cryptography")

MASKED = Masked(key_of("0/train/0/0"), 0, None)
OTHERS = [site for site in SITES if site != SITE]


class Sum:
    """Ask one site for its contribution to a sum while impersonating the other sites.

    identities: the others' signing keys; keys: their public keys for the sum; signed: their
    signatures.
    """

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.identities = {site: new_signing_key() for site in OTHERS}
        state = leader.first_model()
        fit = Step(
            "fit", "local", dict(state), leader.site.agreement.config.training_config
        )
        asked = Request(
            key_of("0/train/0/0"),
            "training",
            0,
            0,
            (fit, Step("each", KEYS, {}, masked=MASKED)),
        )
        self.own = leader.exchange({SITE: asked}).replies[SITE]
        self.keys = {site: bytes_to_tensor(public_half(new_secret())) for site in OTHERS}
        self.signed = {site: self.sign(site, self.identities[site]) for site in OTHERS}

    def sign(self, site: str, secret: bytes, masked: Masked = MASKED, run: str = "") -> str:
        study = self.leader.site.agreement.digest
        instruction = Instruction(
            study, run or self.leader.run, site, key_of("0/train/0/0"), 0
        )
        return (
            sign_sum_key(secret, instruction, site, masked, self.keys[site])
            .numpy()
            .tobytes()
            .hex()
        )

    def refusal(self, is_proven: bool = True) -> str | None:
        """Return why the site rejects the instruction to contribute."""
        keys: dict[str, Tensor] = {SITE: torch.as_tensor(self.own["key"]), **self.keys}
        step = Step("sum", "upload", {}, masked=replace(MASKED, keys=keys))
        request = Request(key_of("0/train/0/1"), "training", 0, 0, (step,))
        identities = {site: verify_key(secret) for site, secret in self.identities.items()}
        proofs = join_proofs(identities, self.signed) if is_proven else None
        body = request_body(request, {}, proofs=proofs)
        return self.leader.send(self.leader.instruction(request, body=body)).refused


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Sum]:
    agreed = agreement("strategy=entropy", "privacy.secure_sum=true")
    leader = Leader(folder(tmp_path, agreed, brought=range(6)))
    yield Sum(leader)
    leader.ledger.close()


def test_a_site_adds_to_a_sum_with_keys_that_their_sites_signed(asked: Sum) -> None:
    assert asked.refusal() is None
    known = json.loads((asked.leader.site.path / PEERS).read_text())
    for site, secret in asked.identities.items():
        assert known[site] == b64encode(verify_key(secret)).decode()


def test_a_site_signs_its_own_key_for_this_sum_alone(asked: Sum) -> None:
    site = asked.leader.site
    signature = bytes(torch.as_tensor(asked.own[SIGNED]).tolist())
    context: dict[str, Any] = {
        "study": site.agreement.digest,
        "run": RUN,
        "site": SITE,
        "masked": MASKED,
    }
    check_sum_key(site.keys.verify, signature, key=asked.own["key"], **context)
    others: tuple[dict[str, Any], ...] = (
        {"study": "0" * 32},
        {"run": SECOND},
        {"site": "south"},
        {"masked": replace(MASKED, attempt=1)},
        {"masked": replace(MASKED, exchange=key_of("0/train/0/2"))},
    )
    for other in others:
        with pytest.raises(ValueError, match="is not signed by that site"):
            check_sum_key(
                site.keys.verify, signature, key=asked.own["key"], **{**context, **other}
            )


def test_a_key_of_the_coordinators_own_is_refused(asked: Sum) -> None:
    asked.keys["south"] = bytes_to_tensor(public_half(new_secret()))
    assert "the public key of site south" in str(asked.refusal())
    assert "is not signed by that site" in str(asked.refusal())
    assert not (asked.leader.site.path / PEERS).exists()


def test_keys_without_signatures_are_refused(asked: Sum) -> None:
    assert "has a public key of site south without a signature" in str(
        asked.refusal(is_proven=False)
    )
    del asked.signed["west"]
    assert "has a public key of site west without a signature" in str(asked.refusal())


@pytest.mark.parametrize(
    "other",
    [
        {"masked": replace(MASKED, attempt=1)},
        {"masked": replace(MASKED, exchange=key_of("0/train/1/0"))},
        {"run": SECOND},
    ],
    ids=["attempt", "exchange", "run"],
)
def test_a_key_of_another_sum_is_refused(other: dict[str, object], asked: Sum) -> None:
    asked.signed["south"] = asked.sign("south", asked.identities["south"], **other)  # type: ignore[arg-type]
    assert "is not signed by that site" in str(asked.refusal())


def test_an_identity_key_is_held_to_over_runs_and_processes(asked: Sum) -> None:
    """The coordinator tries to sign as another site with its own key."""
    assert asked.refusal() is None
    asked.leader.again()
    asked.leader.event_log = EventLog()
    asked.leader.run = SECOND
    another = Sum(asked.leader)
    why = str(another.refusal())
    assert "site south sent another identity key than the one stored at site north" in why
    assert f"correct {PEERS}" in why


def test_an_identity_key_that_people_entered_before_is_held_to(asked: Sum) -> None:
    stranger = b64encode(verify_key(new_signing_key())).decode()
    (asked.leader.site.path / PEERS).write_text(json.dumps({"west": stranger}))
    assert "site west sent another identity key" in str(asked.refusal())


def test_an_identity_key_that_people_entered_with_spaces_is_the_same(asked: Sum) -> None:
    keys = {site: asked.identities[site] for site in ("south", "west")}
    entered = {
        site: f" {b64encode(verify_key(key)).decode()}\n" for site, key in keys.items()
    }
    (asked.leader.site.path / PEERS).write_text(json.dumps(entered))
    assert asked.refusal() is None


def test_an_identity_key_with_which_anybody_can_sign_is_refused(asked: Sum) -> None:
    """Such a key verifies arbitrary signatures."""
    peers = Peers(asked.leader.site.path, SITE)
    for y in SMALL_ORDER:
        with pytest.raises(
            ValueError, match="site south sent an insecure key, with which anyone"
        ):
            peers.hold({"south": y.to_bytes(32, "little")})


# -- seal keys of peer messages ------------------------------------------------------------


class Relay:
    """Ask one site to relay its model to other sites, which the coordinator impersonates.

    identities: the others' signing keys; seals: their seal keys; signed: their signatures.
    """

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.identities = {site: new_signing_key() for site in OTHERS}
        self.seals = {site: public_half(new_secret()) for site in OTHERS}
        self.signed = {site: self.sign(site) for site in OTHERS}

    def sign(self, site: str, study: str = "") -> str:
        study = study or self.leader.site.agreement.digest
        secret = self.identities[site]
        return sign_seal_key(secret, study, site, self.seals[site]).hex()

    def refusal(self) -> str | None:
        """Return why the site rejects an instruction to relay its model."""
        config = replace(
            self.leader.site.agreement.config.training_config, stages=(TrainingStage(4),)
        )
        fit = Step("fit", "local", dict(self.leader.first_model()), config)
        steps = (fit, Step("relay", "model", {}))
        request = Request(key_of("0/train/0/0"), "training", 0, 0, steps)
        identities = {site: verify_key(secret) for site, secret in self.identities.items()}
        proofs = join_proofs(identities, self.signed)
        body = request_body(request, self.seals, proofs=proofs)
        return self.leader.send(self.leader.instruction(request, body=body)).refused


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    agreed = agreement("training=dpfl", "validation=0.3")
    leader = Leader(folder(tmp_path, agreed, brought=range(9)))
    yield Relay(leader)
    leader.ledger.close()


def test_a_site_encrypts_with_seal_keys_that_their_sites_signed(relay: Relay) -> None:
    assert relay.refusal() is None
    known = json.loads((relay.leader.site.path / PEERS).read_text())
    for site, secret in relay.identities.items():
        assert known[site] == b64encode(verify_key(secret)).decode()


def test_a_seal_key_of_the_coordinators_own_is_refused(relay: Relay) -> None:
    """With its own key, the coordinator could read the relayed model."""
    relay.seals["south"] = public_half(new_secret())
    why = str(relay.refusal())
    assert "the encryption key of site south" in why and "is not signed by that site" in why
    assert not (relay.leader.site.path / PEERS).exists()


def test_a_seal_key_under_an_identity_of_the_coordinators_own_is_refused(
    relay: Relay,
) -> None:
    known = b64encode(verify_key(relay.identities["south"])).decode()
    (relay.leader.site.path / PEERS).write_text(json.dumps({"south": known}))
    relay.identities["south"] = new_signing_key()
    relay.seals["south"] = public_half(new_secret())
    relay.signed["south"] = relay.sign("south")
    assert "site south sent another identity key" in str(relay.refusal())


def test_a_seal_key_without_a_signature_is_refused(relay: Relay) -> None:
    del relay.signed["west"]
    assert "has an encryption key of site west without a signature" in str(relay.refusal())


def test_a_seal_key_of_another_study_or_site_is_refused(relay: Relay) -> None:
    good = relay.signed["south"]
    relay.signed["south"] = relay.sign("south", study="0" * 32)
    assert "the encryption key of site south" in str(relay.refusal())
    relay.seals["south"] = relay.seals["west"]
    relay.identities["south"] = relay.identities["west"]
    relay.signed["south"] = relay.signed["west"]
    assert "the encryption key of site south" in str(relay.refusal())
    assert good != relay.signed["south"]


def test_a_site_passes_on_to_itself_with_its_own_seal_key_alone(relay: Relay) -> None:
    relay.seals[SITE] = public_half(new_secret())
    assert f"the encryption key of site {SITE}" in str(relay.refusal())
    relay.seals[SITE] = relay.leader.site.keys.seal_public
    assert relay.refusal() is None
