"""Masked aggregates equal plain ones, and missing contributions are detected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.messages import Delivered, Masked
from fallow.experiment.event_log import EventLog
from fallow.privacy.masks import mask, new_secret, public_half
from fallow.privacy.secure_sum import (
    SecureSum,
    bits,
    decode,
    encode,
    encode_any,
    limit,
    mask_reply,
)
from fallow.privacy.settings import Privacy
from fallow.sites.in_process import InProcessChannel
from fallow.sites.replies import reply_to_step
from fallow.strategies import AHFAL
from fallow.strategies.ahfal import moments
from fallow.transport.serialized import SerializingChannel
from tests.keys import key_of
from tests.privacy.federation import SECURE, Asker, Losing, asking, protected
from tests.simulations import tables


def plain(function: str = "plain", **args: Any) -> dict[str, torch.Tensor]:
    return asking(protected(Privacy())).sum(getattr(Asker(), function), **args)


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_a_masked_sum_is_the_plain_sum_to_the_last_step(runtime: Any) -> None:
    federation = protected(SECURE, runtime=runtime)
    total = asking(federation).sum(Asker().plain, scale=2.0)
    expected = plain(scale=2.0)
    assert total.keys() == expected.keys() and float(total["sites"]) == 3
    for name, value in expected.items():
        assert total[name].dtype == torch.float64
        torch.testing.assert_close(total[name], value, rtol=0, atol=3 * 2.0**-41)


def test_keys_are_an_exchange_of_their_own_in_what_left() -> None:
    federation = protected(SECURE)
    asking(federation).sum(Asker().plain)
    keys, total = federation.shown.rows()
    assert (keys["kind"], keys["function"], keys["description"]) == (
        "each",
        "keys",
        "public keys",
    )
    assert keys["bytes"] == 3 * 32 and keys["exchanges"] == 1
    assert (total["kind"], total["function"], total["masked"]) == ("sum", "plain", True)


def test_what_waits_travels_with_the_keys_so_that_no_attempt_trains_twice() -> None:
    ask = asking(protected(SECURE, sites=tables(sites=4)))
    channel = Losing(ask.channel, {1: ["b"]})
    ask.channel = channel
    ask.fit(None, "global", None, w=torch.ones(21), stats=torch.zeros(0))
    ask.sum(Asker().plain)
    kinds = [[s.kind for s in request.steps] for request, _ in channel.seen]
    assert kinds == [["fit", "each"], ["sum"], ["each"], ["sum"]]


def test_keys_are_fresh_in_every_exchange() -> None:
    federation = protected(SECURE)
    channel = Losing(federation.channel)
    ask = asking(federation, channel)
    ask.sum(Asker().plain)
    ask.sum(Asker().plain)
    shown: set[bytes] = set()
    for exchange in (0, 2):
        for reply in channel.seen[exchange][1].values():
            shown.add(bytes(torch.as_tensor(reply["key"]).tolist()))
    assert len(shown) == 6


def test_ahfals_mean_and_spread_from_masked_totals() -> None:
    simulations = [
        protected(p, AHFAL(), tables(sites=10, labels=40)) for p in (Privacy(), SECURE)
    ]
    exact, close = (asking(w).sum(Asker().share) for w in simulations)
    (mean, spread), (mean_, spread_) = (
        moments(t["share"], t["square"], t["one"]) for t in (exact, close)
    )
    torch.testing.assert_close(mean_, mean, rtol=0, atol=1e-11)
    torch.testing.assert_close(spread_, spread, rtol=0, atol=2e-6)
    for line in torch.linspace(0, 40, 81, dtype=torch.float64):
        one = AHFAL(tau=float(line))
        apart = (100 * spread - line).abs() > 2e-4  # 2e-6, in percent
        assert torch.equal(
            one.low(mean, spread, exact)[apart], one.low(mean_, spread_, close)[apart]
        )


def test_the_picks_behind_masks_are_the_picks_without() -> None:
    one, other = (protected(p, AHFAL()) for p in (Privacy(), SECURE))
    for federation in (one, other):
        AHFAL().query(asking(federation), dict.fromkeys("abc", 4), {})
    for name in "abc":
        assert torch.equal(
            one.members[name].memory["selected"]["rows"],
            other.members[name].memory["selected"]["rows"],
        )


def test_a_spread_of_zero_stays_within_its_error() -> None:
    shares = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64).repeat(10, 1)
    coded = [encode("a", "v", "p", x, None, 10) for p in shares for x in (p, p**2)]
    first = decode(torch.stack(coded[::2]).sum(0), None, 10)
    second = decode(torch.stack(coded[1::2]).sum(0), None, 10)
    assert float(moments(first, second, torch.tensor(10.0))[1].max()) < 2e-6


# -- required sites --------------------------------------------------------------------


def test_two_sites_are_refused_with_the_reason() -> None:
    with pytest.raises(
        RuntimeError, match=r"'plain' has 2 sites left \(a, b\) but needs 3"
    ):
        asking(protected(SECURE, sites=tables(sites=2))).sum(Asker().plain)


@pytest.mark.parametrize("exchange", [0, 1])
def test_a_site_that_falls_silent_leads_to_a_fresh_attempt_among_the_others(
    exchange: int,
) -> None:
    federation = protected(SECURE, sites=tables(sites=4))
    channel = Losing(federation.channel, {exchange: ["b"]})
    total = asking(federation, channel).sum(Asker().plain)
    rest = protected(
        Privacy(), sites={k: v for k, v in tables(sites=4).items() if k != "b"}
    )
    torch.testing.assert_close(
        total["x"], asking(rest).sum(Asker().plain)["x"], rtol=0, atol=1e-10
    )
    assert float(total["sites"]) == 3
    asked = [request.steps[-1].masked for request, _ in channel.seen]
    attempts = [sum_request.attempt for sum_request in asked if sum_request]
    assert attempts == ([0, 0] if exchange == 0 else [0, 0, 1, 1])


def test_an_attempt_that_failed_is_never_added_up() -> None:
    federation = protected(SECURE, sites=tables(sites=4))
    ask = asking(federation, Losing(federation.channel, {1: ["b"]}), EventLog())
    ask.sum(Asker().plain)
    entries = ask.event_log._read("SELECT key FROM exchange ORDER BY key")  # type: ignore[attr-defined]
    assert [key for (key,) in entries] == [f"0/query/{n}" for n in range(4)]


def test_noise_is_drawn_once_for_all_attempts() -> None:
    federation = protected(
        Privacy(epsilon=1, secure_sum=True), sites=tables(sites=4), noise="os"
    )
    ask = asking(federation, Losing(federation.channel, {1: ["b"]}))
    total = ask.sum(Asker().share)["counts"]
    book = [federation.members[s].store.load_releases(s) for s in "acd"]
    assert [list(lines) for lines in book] == [["0/query/0"]] * 3
    released = sum(torch.as_tensor(lines["0/query/0"].reply["counts"]) for lines in book)
    torch.testing.assert_close(total, released, rtol=0, atol=1e-10)


def test_fewer_than_three_survivors_is_a_clear_failure() -> None:
    federation = protected(SECURE)
    with pytest.raises(
        RuntimeError, match=r"2 sites left .*nothing was unmasked: run again"
    ):
        asking(federation, Losing(federation.channel, {1: ["b"]})).sum(Asker().plain)


@pytest.mark.parametrize("exchange", [0, 1])
def test_when_more_sites_are_there_again_a_resume_ends_what_had_too_few(
    exchange: int,
) -> None:
    federation = protected(SECURE)
    event_log = EventLog()
    with pytest.raises(
        RuntimeError, match="run again with --resume when more sites are connected"
    ):
        asking(federation, Losing(federation.channel, {exchange: ["b"]}), event_log).sum(
            Asker().plain
        )
    total = asking(federation, event_log=event_log).sum(Asker().plain)
    torch.testing.assert_close(total["x"], plain()["x"], rtol=0, atol=1e-10)


def test_a_run_that_is_repeated_from_its_journal_gives_the_same_totals() -> None:
    federation = protected(SECURE, sites=tables(sites=4))
    event_log = EventLog()
    channel = Losing(federation.channel, {1: ["b"]})
    first = asking(federation, channel, event_log).sum(Asker().plain)
    nobody = Losing(None)  # type: ignore[arg-type]  # there is no site to reply
    again = asking(federation, nobody, event_log)
    again.cohort = federation.channel.sites
    assert torch.equal(again.sum(Asker().plain)["x"], first["x"])


class Damaging(Losing):
    """Loses a contribution and forwards another one in its place."""

    def exchange(self, requests: Any, routes: Any = None) -> Delivered:
        done = super().exchange(requests, routes)
        if len(self.seen) == 4:
            old = self.seen[1][1]["a"]
            return replace(done, replies={**done.replies, "a": old})
        return done


def test_a_part_of_another_exchange_is_noticed() -> None:
    federation = protected(SECURE)
    ask = asking(federation, Damaging(federation.channel))
    ask.sum(Asker().plain)
    with pytest.raises(RuntimeError, match=r"masks of 'plain' over a, b, c do not cancel"):
        ask.sum(Asker().plain)


def test_a_missing_share_is_noticed_in_the_arithmetic_too() -> None:
    federation = protected(SECURE, sites=tables(sites=4))
    channel = Losing(federation.channel)
    asking(federation, channel).sum(Asker().plain)
    parts = channel.seen[1][1]
    whole = SecureSum().total(parts, "query", "plain", None)
    assert float(torch.as_tensor(whole["sites"])) == 4
    with pytest.raises(RuntimeError, match="a contribution is missing"):
        SecureSum().total({s: parts[s] for s in "abc"}, "query", "plain", None)


# -- instructions refused by the site --------------------------------------------------


@pytest.mark.parametrize("kind", ["sum", "each"])
def test_a_site_with_secure_sums_lets_no_bare_part_out(kind: str) -> None:
    federation = protected(SECURE)
    ask = asking(federation)
    ask.masking = None  # a coordinator that requests unmasked values
    with pytest.raises(
        ValueError, match=f"site a does not answer 'plain' by {kind}: with secure"
    ):
        getattr(ask, kind)(Asker().plain)


def request(ask: Ask, sum_request: Masked, function: str = "plain", **args: Any) -> Any:
    """Request the contribution of site a alone."""
    return ask._exchange("sum", function, {"a": {}}, args, masked=sum_request)


def test_one_key_masks_one_part_for_one_cohort() -> None:
    federation = protected(SECURE, sites=tables(sites=4))
    channel = Losing(federation.channel)
    ask = asking(federation, channel)
    ask.sum(Asker().plain)
    step = channel.seen[1][0].steps[-1]
    assert step.masked is not None
    again = reply_to_step(federation.members["a"], step, channel.seen[1][0])
    first = channel.seen[1][1]["a"]["x"]
    assert torch.equal(torch.as_tensor(again["x"]), torch.as_tensor(first))  # replayed
    fewer = {s: k for s, k in step.masked.keys.items() if s != "d"}
    other = replace(step, masked=replace(step.masked, keys=fewer))
    with pytest.raises(
        ValueError, match="two aggregates with one key would reveal the difference"
    ):
        reply_to_step(federation.members["a"], other, channel.seen[1][0])


def test_a_site_masks_nothing_without_its_own_key_or_for_two_sites() -> None:
    federation = protected(SECURE)
    ask = asking(federation)
    site = federation.members["a"]
    masked = Masked(key_of("0/query/0"), 0, None)
    with pytest.raises(ValueError, match="site a has no key for attempt 0"):
        request(ask, replace(masked, keys={}))
    own = torch.as_tensor(site.guard.public_key(masked)["key"])
    keys: dict[str, Tensor] = {}
    for other in "bc":
        public = public_half(new_secret())
        keys[other] = torch.tensor(list(public), dtype=torch.uint8)
    for bad in ({"a": keys["b"], **keys}, {"a": own, "b": keys["b"]}, keys):
        with pytest.raises(ValueError, match="site a adds nothing to an aggregation"):
            request(ask, replace(masked, keys=bad))


def test_the_secret_is_gone_once_it_was_used() -> None:
    federation = protected(SECURE)
    asking(federation).sum(Asker().plain)
    for name, site in federation.members.items():
        secret = site.store.load_secret(name)
        assert secret is not None and "secret" not in secret
        assert not any("secret" in memory for memory in site.memory)


# -- fixed point -----------------------------------------------------------------------


def test_a_value_beyond_what_the_ring_can_hold_is_refused_and_names_the_sites() -> None:
    with pytest.raises(
        ValueError, match=r"site a: x for .* exceeds .* each of 3 contributions"
    ):
        asking(protected(SECURE)).sum(Asker().big)


@pytest.mark.parametrize("declared", [True, False])
def test_a_bound_makes_room_and_a_value_beyond_it_is_refused(declared: bool) -> None:
    privacy = replace(SECURE, bound=None if declared else 4e6)
    bound = 4e6 if declared else None
    total = asking(protected(privacy)).sum(Asker().big, bound)["x"]
    assert total.tolist() == pytest.approx([9e6, -4.5], abs=1e-5)
    with pytest.raises(
        ValueError, match=r"x for .* exceeds 2e\+06, .* raise privacy\.bound"
    ):
        asking(protected(replace(SECURE, bound=2e6))).sum(Asker().big)


@pytest.mark.parametrize("size", [1.0, 1e7, 1e18, 1e30, 1e300])
def test_numbers_beyond_a_named_bound_wrap_around_and_cancel_in_the_total(
    size: float,
) -> None:
    values = torch.tensor([size, -3 * size, 0.25], dtype=torch.float64)
    parts = encode_any(values, 1.0, 3) + encode_any(-values, 1.0, 3)
    assert decode(parts, 1.0, 3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("sites", [3, 10, 1000])
@pytest.mark.parametrize("bound", [None, 1e-3, 1.0, 12345.6, 1e12, 1e30])
def test_sums_at_the_bound_never_wrap_around(bound: float | None, sites: int) -> None:
    bound_of_sum = limit(bound, sites)
    for sign in (1, -1):
        part = encode(
            "a",
            "v",
            "x",
            torch.tensor(sign * bound_of_sum, dtype=torch.float64),
            bound,
            sites,
        )
        assert abs(sites * int(part)) < 2**63
        back = decode(torch.stack([part] * sites).sum(0), bound, sites)
        assert float(back) == pytest.approx(sign * bound_of_sum * sites, rel=1e-9)
    assert bits(bound, sites) <= 40


def test_a_part_that_is_not_finite_is_named() -> None:
    with pytest.raises(
        ValueError, match="site a replied to 'v' with x that is NaN or infinite"
    ):
        encode("a", "v", "x", torch.tensor([float("nan")]), None, 3)


@pytest.mark.parametrize("changed", [{"exchange": "0/query/1"}, {"attempt": 1}])
def test_the_same_keys_give_other_masks_in_another_exchange_or_attempt(
    changed: dict[str, Any],
) -> None:
    """Check that masks differ, since the difference of two contributions would be plain."""
    secrets = {s: new_secret() for s in "abc"}
    keys: dict[str, Tensor] = {}
    for name, secret in secrets.items():
        keys[name] = torch.tensor(list(public_half(secret)), dtype=torch.uint8)
    masked = Masked(key_of("0/query/0"), 0, None, keys)
    parts = []
    for item in (masked, replace(masked, **changed)):
        part = mask_reply(
            {"x": torch.arange(8.0)},
            site="a",
            secret=secrets["a"],
            function="plain",
            cohort=item,
            bound=None,
        )
        parts.append(torch.as_tensor(part["x"]))
    assert bool((parts[0] != parts[1]).all())


def test_the_masks_of_all_sites_are_zero_together_and_of_fewer_are_not() -> None:
    secrets = {s: new_secret() for s in "abcd"}
    publics = {s: public_half(k) for s, k in secrets.items()}
    masks = {s: mask(s, secrets[s], publics, "purpose", 50) for s in secrets}
    assert not torch.stack(list(masks.values())).sum(0).any()
    assert bool(torch.stack([masks[s] for s in "abc"]).sum(0).all())
