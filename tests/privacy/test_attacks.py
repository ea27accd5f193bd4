"""Attacks by an observer of all messages at the coordinator, and their limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import stats

from fallow.core.messages import Kind, Masked, Request, Step
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.privacy.masks import mask, new_secret, public_half
from fallow.privacy.secure_sum import decode
from fallow.privacy.settings import Privacy
from fallow.sites.replies import reply_to_step
from fallow.storage.packing import pack
from fallow.strategies import AHFAL
from fallow.training import FedAvg
from tests.keys import key_of
from tests.privacy.federation import SECURE, Asker, Losing, asking, protected
from tests.simulations import tables

ONE = Privacy(epsilon=1.0)


def uniform(words: torch.Tensor) -> float:
    """Return the p-value of a chi-squared test of uniform bytes of (n,) int64 words."""
    seen = np.bincount(words.numpy().view(np.uint8), minlength=256)
    return float(stats.chisquare(seen).pvalue)


def test_a_single_masked_upload_looks_like_uniform_noise() -> None:
    federation = protected(SECURE)
    w = 0.01 * torch.randn(45_050, generator=stream(0, "w"))
    ask = asking(federation)
    channel = ask.channel = Losing(ask.channel)
    ask.owner = "training"
    for site in federation.members.values():
        site.remember("local", {"w": w, "stats": torch.zeros(0)})
    total = ask.sum(FedAvg().upload)
    uploads = channel.seen[1][1]
    for reply in uploads.values():
        assert uniform(torch.as_tensor(reply["w"])) > 1e-4
    rows = [len(site.labels) for site in federation.members.values()]
    torch.testing.assert_close(total["w"], sum(rows) * w.double(), rtol=0, atol=1e-10)
    bare = (rows[0] * w.double() * 2.0**40).round().long()
    assert uniform(bare) < 1e-4  # the test detects unmasked values


def test_two_uploads_of_the_same_model_have_nothing_in_common() -> None:
    federation = protected(SECURE)
    channel = Losing(federation.channel)
    ask = asking(federation, channel)
    ask.sum(Asker().plain)
    ask.sum(Asker().plain)
    first, second = (torch.as_tensor(channel.seen[at][1]["a"]["x"]) for at in (1, 3))
    assert not bool((first == second).any())


def test_the_transcript_of_the_server_holds_no_part_of_a_site() -> None:
    federation = protected(SECURE, AHFAL())
    channel = Losing(federation.channel)
    AHFAL().query(asking(federation, channel), dict.fromkeys("abc", 4), {})
    sent = b"".join(
        pack(reply) for _, replies in channel.seen for reply in replies.values()
    )
    for site in federation.members.values():
        counts = torch.bincount(site.labels, minlength=3).double()
        share = counts / counts.sum()
        for bare in (share, share**2, (share * 2.0**40).round().long()):
            assert bare.numpy().tobytes() not in sent


def request(kind: Any, function: str, **step: Any) -> Request:
    """Return an instruction of a malicious coordinator, which bypasses `Ask`."""
    return Request(key_of("0/query/0"), "query", 0, 0, (Step(kind, function, {}, **step),))


@pytest.mark.parametrize("kind", [k for k in get_args(Kind) if k not in ("keep", "relay")])
def test_no_kind_of_request_brings_a_bare_part_out_under_secure_sums(kind: str) -> None:
    site = protected(SECURE).members["a"]
    sent = request(kind, "plain")
    why = "the contract" if kind == "fit" else "with secure"
    with pytest.raises(
        ValueError, match=f"site a does not answer 'plain' by {kind}: {why}"
    ):
        reply_to_step(site, sent.steps[0], sent)


def test_a_relay_without_receivers_brings_nothing_to_the_server_under_secure_sums() -> None:
    sent = protected(SECURE).channel.exchange({"a": request("relay", "plain")})
    assert sent.replies == {"a": {"bytes": 0}}


def make_keys(site: Any, others: dict[str, bytes]) -> Masked:
    """Return the key message of an aggregate with ``others`` and their public keys."""
    masked = Masked(key_of("0/query/0"), 0, None)
    keys = {
        name: torch.tensor(list(half), dtype=torch.uint8) for name, half in others.items()
    }
    return replace(masked, keys={site.id: site.guard.public_key(masked)["key"], **keys})


def test_a_coordinator_that_passes_on_keys_of_its_own_opens_a_part() -> None:
    """Attack with substituted keys, which succeeds here.

    Masks alone protect only from a coordinator that follows the protocol. With real sites
    it would need their signatures: `tests/deployment/test_sum_keys.py`.
    """
    site = protected(SECURE).members["a"]
    secrets = {s: new_secret() for s in "bc"}
    details = make_keys(site, {s: public_half(secret) for s, secret in secrets.items()})
    sent = request("sum", "share", masked=details)
    part = torch.as_tensor(reply_to_step(site, sent.steps[0], sent)["counts"])
    publics = {s: bytes(torch.as_tensor(key).tolist()) for s, key in details.keys.items()}
    purpose = "fallow secure sum|0/query/0|0|share"
    for s, secret in secrets.items():
        to_a = {"a": publics["a"], s: publics[s]}
        part = (
            part + mask(s, secret, to_a, purpose, 4)[:3]
        )  # the mask that s would have canceled
    counts = torch.bincount(site.labels, minlength=3).double()
    torch.testing.assert_close(decode(part, None, 3), counts, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bound", [1e-3, 0.5, 1.0, 3.0, 1e6])
def test_a_bound_of_the_coordinators_choice_tells_nothing_of_one_part(bound: float) -> None:
    """Refusals by size would allow a bitwise search of a contribution."""
    federation = protected(SECURE)
    total = asking(federation).sum(Asker().plain, bound)
    assert float(total["sites"]) == 3
    exact = asking(protected(Privacy())).sum(Asker().plain)
    torch.testing.assert_close(total["x"], exact["x"], rtol=0, atol=1e-10)


def test_a_bound_that_rounds_single_parts_away_is_refused_whatever_they_are() -> None:
    with pytest.raises(ValueError, match="aggregation with the bound 1e\\+15"):
        asking(protected(SECURE)).sum(Asker().plain, 1e15)


@pytest.mark.parametrize("key", [bytes(32), bytes(5)])
def test_a_public_key_that_gives_no_secret_is_refused_with_its_owner(key: bytes) -> None:
    site = protected(SECURE).members["a"]
    sent = request(
        "sum", "share", masked=make_keys(site, {"b": key, "c": public_half(new_secret())})
    )
    with pytest.raises(ValueError, match="site a cannot use the public key of site b"):
        reply_to_step(site, sent.steps[0], sent)


def test_an_owner_that_a_site_does_not_know_is_refused_in_words() -> None:
    site = protected(ONE).members["a"]
    sent = replace(request("each", "share"), owner="boss")
    with pytest.raises(ValueError, match="site a has no algorithm for 'boss'"):
        reply_to_step(site, sent.steps[0], sent)


def test_one_step_of_training_tells_the_counts_that_noise_covers() -> None:
    """Attack that succeeds: ε does not cover models, and this one is a histogram."""
    federation = protected(ONE)
    ask = asking(federation)
    ask.owner = "training"
    training_config = TrainingConfig(
        batch_size=64, optimizer=Optimizer(lr=1.0, momentum=0.0)
    )  # one step from zero
    ask.fit(
        training_config,
        "local",
        None,
        w=torch.zeros(21, dtype=torch.float64),
        stats=torch.zeros(0),
    )
    ask.channel = channel = Losing(ask.channel)
    ask.sum(FedAvg().upload)
    for name, reply in channel.seen[0][1].items():
        bias = torch.as_tensor(reply["w"])[-3:] / torch.as_tensor(
            reply["n"]
        )  # shares - 1/3
        counts = torch.bincount(federation.members[name].labels, minlength=3).double()
        torch.testing.assert_close(bias + 1 / 3, counts / counts.sum())
        assert federation.members[name].spent == {}


def test_asking_again_does_not_average_the_noise_away() -> None:
    federation = protected(ONE, noise="os")
    asked = [asking(federation).sum(Asker().share)["counts"] for _ in range(50)]
    truth = asking(protected(Privacy())).sum(Asker().share)["counts"]
    assert all(torch.equal(reply, asked[0]) for reply in asked)
    assert not torch.allclose(torch.stack(asked).mean(0), truth)
    assert federation.members["a"].spent == {"0/query/0": 1.0}


@pytest.mark.long
def test_under_other_keys_the_noise_averages_away_and_the_ledger_stops_it() -> None:
    """Attack that the ledger prevents: with an unlimited budget it succeeds."""
    endless = protected(replace(ONE, total=1e6))
    truth = asking(protected(Privacy())).sum(Asker().share)["counts"]
    asked = [asking(endless, cycle=c).sum(Asker().share)["counts"] for c in range(600)]
    assert float((torch.stack(asked).mean(0) - truth).abs().max()) < 0.6
    assert float((asked[0] - truth).abs().max()) > 0.6
    guarded = protected(ONE, strategies=2)
    with pytest.raises(ValueError, match="has spent epsilon 2 of 2"):
        for cycle in range(600):
            asking(guarded, cycle=cycle).sum(Asker().share)


def test_two_sums_over_cohorts_that_differ_by_one_site_reveal_that_site() -> None:
    """Attack that succeeds: masks protect contributions within one aggregate only."""
    federation = protected(SECURE, sites=tables(sites=4))
    everyone = asking(federation)
    rest = asking(federation, cycle=1)
    rest.cohort = ("a", "b", "c")
    difference = everyone.sum(Asker().share)["counts"] - rest.sum(Asker().share)["counts"]
    counts = torch.bincount(federation.members["d"].labels, minlength=3).double()
    torch.testing.assert_close(difference, counts, rtol=0, atol=1e-10)


def test_a_late_part_beside_a_fresh_attempt_reveals_its_site() -> None:
    """Attack that succeeds: the coordinator is trusted to discard late contributions."""
    federation = protected(SECURE, sites=tables(sites=4))
    channel = Losing(federation.channel, {1: ["d"]})
    rest = asking(federation, channel).sum(Asker().share)["counts"]
    first = [*channel.seen[1][1].values(), channel.late[1]["d"]]
    whole = (
        torch.stack([torch.as_tensor(part["counts"]) for part in first]).sum(0).double()
        / 2**40
    )
    counts = torch.bincount(federation.members["d"].labels, minlength=3).double()
    torch.testing.assert_close(whole - rest, counts, rtol=0, atol=1e-10)
    alone = torch.as_tensor(channel.late[1]["d"]["counts"]).double() / 2**40
    assert not torch.allclose(
        alone, counts
    )  # the late contribution alone discloses nothing


def test_noise_behind_the_masks_covers_what_differences_reveal() -> None:
    federation = protected(
        Privacy(epsilon=0.5, secure_sum=True), sites=tables(sites=4), strategies=2
    )
    everyone = asking(federation)
    rest = asking(federation, cycle=1)
    rest.cohort = ("a", "b", "c")
    difference = everyone.sum(Asker().share)["counts"] - rest.sum(Asker().share)["counts"]
    counts = torch.bincount(federation.members["d"].labels, minlength=3).double()
    assert not torch.allclose(difference, counts, atol=0.1)
