"""A coordinator that puts keys of its own into a secure sum: a site adds nothing to it."""

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
from fallow.deployment.site.peers import PEERS, Peers
from fallow.experiment.journal import Journal
from fallow.privacy.masks import new_secret, public_half
from fallow.privacy.signing import SMALL_ORDER, new_signing_key, verify_key
from fallow.transport.envelope import Order
from fallow.transport.relays import bytes_to_tensor, request_body
from fallow.transport.sum_keys import SIGNED, check_sum_key, join_proofs, sign_sum_key
from tests.deployment.hosts import RUN, SECOND, SITE, SITES, Leader, agreement, folder

pytest.importorskip("cryptography")

ABOUT = Masked("0/train/0/0", 0, None)
OTHERS = [site for site in SITES if site != SITE]


class Sum:
    """A coordinator that asks one site for its part of a sum with others whom it plays.

    identities: the others' signing keys; keys: the public keys for the sum; signed: their proofs.
    """

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.identities = {site: new_signing_key() for site in OTHERS}
        state = leader.first_model()
        fit = Step(
            "fit", "local", dict(state), leader.site.agreement.recipe.training_config
        )
        asked = Request(
            "0/train/0/0", "training", 0, 0, (fit, Step("each", KEYS, {}, masked=ABOUT))
        )
        self.own = leader.exchange({SITE: asked}).answers[SITE]
        self.keys = {site: bytes_to_tensor(public_half(new_secret())) for site in OTHERS}
        self.signed = {site: self.sign(site, self.identities[site]) for site in OTHERS}

    def sign(self, site: str, secret: bytes, about: Masked = ABOUT, run: str = "") -> str:
        study = self.leader.site.agreement.digest
        order = Order(study, run or self.leader.run, site, "", 0)
        return (
            sign_sum_key(secret, order, site, about, self.keys[site])
            .numpy()
            .tobytes()
            .hex()
        )

    def refusal(self, is_proven: bool = True) -> str | None:
        """What the site says to the order for its part."""
        keys: dict[str, Tensor] = {SITE: torch.as_tensor(self.own["key"]), **self.keys}
        step = Step("sum", "upload", {}, masked=replace(ABOUT, keys=keys))
        request = Request("0/train/0/1", "training", 0, 0, (step,))
        identities = {site: verify_key(secret) for site, secret in self.identities.items()}
        proofs = join_proofs(identities, self.signed) if is_proven else None
        body = request_body(request, {}, proofs=proofs)
        return self.leader.send(self.leader.order(request, body=body)).refused


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
    about: dict[str, Any] = {
        "study": site.agreement.digest,
        "run": RUN,
        "site": SITE,
        "about": ABOUT,
    }
    check_sum_key(site.keys.verify, signature, key=asked.own["key"], **about)
    others: tuple[dict[str, Any], ...] = (
        {"study": "0" * 32},
        {"run": SECOND},
        {"site": "south"},
        {"about": replace(ABOUT, attempt=1)},
        {"about": replace(ABOUT, exchange="0/train/0/2")},
    )
    for other in others:
        with pytest.raises(ValueError, match="is not signed by that site"):
            check_sum_key(
                site.keys.verify, signature, key=asked.own["key"], **{**about, **other}
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
        {"about": replace(ABOUT, attempt=1)},
        {"about": replace(ABOUT, exchange="0/train/1/0")},
        {"run": SECOND},
    ],
    ids=["attempt", "exchange", "run"],
)
def test_a_key_of_another_sum_is_refused(other: dict[str, object], asked: Sum) -> None:
    asked.signed["south"] = asked.sign("south", asked.identities["south"], **other)  # type: ignore[arg-type]
    assert "is not signed by that site" in str(asked.refusal())


def test_an_identity_key_is_held_to_over_runs_and_processes(asked: Sum) -> None:
    """The coordinator would sign as another site with a key of its own."""
    assert asked.refusal() is None
    asked.leader.again()
    asked.leader.journal = Journal()
    asked.leader.run = SECOND
    another = Sum(asked.leader)
    why = str(another.refusal())
    assert "site south shows another identity key than site north knows of it" in why
    assert f"correct {PEERS}" in why


def test_an_identity_key_that_people_entered_before_is_held_to(asked: Sum) -> None:
    stranger = b64encode(verify_key(new_signing_key())).decode()
    (asked.leader.site.path / PEERS).write_text(json.dumps({"west": stranger}))
    assert "site west shows another identity key" in str(asked.refusal())


def test_an_identity_key_with_which_anybody_can_sign_is_refused(asked: Sum) -> None:
    """Such a key verifies signatures that nobody made."""
    peers = Peers(asked.leader.site.path, SITE)
    for y in SMALL_ORDER:
        with pytest.raises(ValueError, match="site south shows a key with which anybody"):
            peers.hold({"south": y.to_bytes(32, "little")})
