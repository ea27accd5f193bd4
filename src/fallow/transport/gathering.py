"""Collection of the replies of one exchange, with a time limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

from fallow.core.events import Event, EventHandler
from fallow.core.exchange_key import ExchangeKey
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId, Values
from fallow.core.version import __version__
from fallow.storage.plain import plain
from fallow.transport.checks import ResponseCheck
from fallow.transport.envelope import (
    Instruction,
    Reply,
    Transport,
    check_release,
    open_reply,
    sign_message,
)

EPSILON = "#epsilon"
"""Reserved field of a reply: the privacy cost of the exchange."""
LOOK = 1.0  # seconds between two checks of the time limits
REVOKED = "its keys were revoked"
AGAIN = 8  # number of retries after an unreadable instruction or reply
SOON = 5.0  # seconds until the first retry after a rejection, each later one waits twice as long
SELDOM = 60.0  # longest time between two retries


FindOdd = Callable[[Mapping[SiteId, Values]], Mapping[SiteId, str]]
"""Function that returns inconsistent replies and the reasons."""


def find_none_odd(replies: Mapping[SiteId, Values]) -> Mapping[SiteId, str]:
    """Accept all replies, for exchanges whose replies are not compared."""
    return {}


class Waiting(Protocol):
    """Time limits of an exchange in seconds: for all sites, then for ``quorum`` of them."""

    @property
    def timeout(self) -> float: ...
    @property
    def quorum(self) -> int | None: ...
    @property
    def patience(self) -> float: ...


class SealKey(NamedTuple):
    """Public key that encrypts peer messages to a site, with the site's signature (64 bytes)."""

    public: bytes
    signature: bytes


@dataclass(frozen=True)
class Keys:
    """Keys of an exchange.

    ``secret`` is the coordinator's signing key. ``sites`` verify the messages of each site.
    ``seals`` encrypt peer messages to each site.
    """

    secret: bytes
    sites: Mapping[SiteId, bytes]
    seals: Mapping[SiteId, SealKey] = field(default_factory=dict)


class ReplySource(Protocol):
    """State of all sites over many exchanges (`fallow.transport.remote.RemoteChannel`).

    ``absent`` are the sites that were missing in the last exchange. ``reported`` are the sites whose
    version was reported. ``revoked`` are the sites whose keys were revoked.
    """

    absent: set[SiteId]
    reported: set[SiteId]

    @property
    def revoked(self) -> Collection[SiteId]: ...
    @property
    def transport(self) -> Transport: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def waits(self) -> Waiting: ...
    @property
    def response_check(self) -> ResponseCheck: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def notify(self) -> EventHandler: ...


@dataclass
class ReplyCollector:
    """One part of an exchange: instructions to sites and their replies.

    ``accept`` returns a valid reply or raises ValueError. ``need`` is the required number of
    replies. ``key`` is the key of the exchange. ``find_inconsistent`` returns inconsistent replies
    and the reasons. ``renew`` returns
    an instruction under a new key, because a site repeats its reply under a known one; None repeats
    the same instruction.

    If rejections leave too few sites, these sites are asked again until ``waits.patience``: a full
    disk or a damaged example of one site does not end the run of all.
    """

    remote: ReplySource
    instructions: dict[SiteId, Instruction]
    accept: Callable[[SiteId, Values], Values]
    need: int
    timeout: float
    find_inconsistent: FindOdd = find_none_odd
    renew: Callable[[SiteId], Instruction] | None = None
    accepted: dict[SiteId, Values] = field(default_factory=dict)
    refused: dict[SiteId, str] = field(default_factory=dict)
    costs: dict[SiteId, float] = field(default_factory=dict)
    damaged: Counter[SiteId] = field(default_factory=Counter)
    retries: int = 0
    retry_at: float | None = None
    reported: dict[SiteId, str] = field(default_factory=dict)
    announced: set[SiteId] = field(default_factory=set)
    key: ExchangeKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = next(iter(self.instructions.values())).key

    @property
    def replies(self) -> dict[SiteId, Values]:
        """Return the accepted replies, with sites in sorted order."""
        return {site: self.accepted[site] for site in sorted(self.accepted)}

    @property
    def dearest(self) -> float:
        """Return the largest epsilon that a site spent."""
        return max((self.costs[site] for site in self.accepted), default=0.0)

    @property
    def missing(self) -> set[SiteId]:
        """Return the sites without a reply or an error."""
        return set(self.instructions) - self.accepted.keys() - self.refused.keys()

    @property
    def pending(self) -> set[SiteId]:
        """Return the sites that the exchange waits for."""
        return self.missing | self.retriable if self.are_too_few else self.missing

    @property
    def are_too_few(self) -> bool:
        """Return whether rejections leave fewer sites than the exchange needs."""
        return len(self.accepted) + len(self.missing) < self.need

    @property
    def retriable(self) -> set[SiteId]:
        """Return the rejected sites that are asked again.

        A study does not start before all sites agree, and revoked keys stay revoked.
        """
        if self.key.phase == "hello":
            return set()
        return self.refused.keys() - set(self.remote.revoked)

    def gather(self) -> ReplyCollector:
        """Send the instructions and wait for the replies.

        Raises RunHalted if fewer than ``need`` sites can reply, or do so within ``waits.patience``.
        """
        remote = self.remote
        begin = remote.clock()
        for site in sorted(self.instructions.keys() & set(remote.revoked)):
            self._refuse(site, REVOKED)
        self._send(self.missing)
        while not self._is_over(waited := remote.clock() - begin):
            self._check_hope(waited)
            if self.are_too_few and self.retry_at is None:
                self.retry_at = waited + min(SOON * 2**self.retries, SELDOM)
            is_late = waited >= self.timeout or (self.are_too_few and not self.missing)
            if is_late and not self.pending <= self.announced:
                self.announced |= self.pending
                self._announce_waiting(waited)
            if self.retry_at is not None and waited >= self.retry_at:
                self._retry()
            if self.pending:
                end = remote.waits.patience
                if waited < self.timeout:
                    end = self.timeout
                self._receive(min(LOOK, end - waited))

        if self.missing:
            self._notify("missing", sites=sorted(self.missing))
        elif self.announced:
            self._notify("gathered", sites=sorted(self.missing))
        heard = self.accepted.keys() | self.refused.keys()
        remote.absent = (remote.absent | self.missing) - heard
        return self

    def _is_over(self, waited: float) -> bool:
        """Return whether enough sites have replied and no other reply is pending.

        Inconsistent replies have been rejected by then.
        """
        removed = self.remote.absent - self.remote.transport.online()
        is_time = waited >= self.timeout or not self.missing - removed
        return is_time and len(self.accepted) >= self.need and not self._refuse_odd()

    def _check_hope(self, waited: float) -> None:
        """Raise RunHalted if too few sites can reply, or if the time limit has passed."""
        reasons = [f"site {site}: {why}" for site, why in sorted(self.refused.items())]
        listed = "; ".join(reasons)
        hopeful = len(self.accepted) + len(self.missing) + len(self.retriable)
        if hopeful < self.need:
            raise RunHalted(
                f"{self.key} needs replies from {self.need} of {len(self.instructions)} "
                f"sites, but {len(self.refused)} replies are rejections or invalid: "
                f"{listed}; fix the cause and start again to resume the run"
            )
        if waited >= self.remote.waits.patience:
            raise RunHalted(
                f"{len(self.accepted)} of {len(self.instructions)} sites replied to "
                f"{self.key} in {waited:.0f} seconds, but {self.need} are necessary; "
                f"missing: {', '.join(sorted(self.missing))}; rejected: "
                f"{listed or 'none'}; start again when the sites are "
                "connected to resume the run"
            )

    def _retry(self) -> None:
        """Ask the rejected sites again."""
        self.retries += 1
        self.retry_at = None
        again = self.retriable
        for site in again:
            del self.refused[site]
            if self.renew is not None:
                self.instructions[site] = self.renew(site)
        self._send(again)

    # -- messages ---------------------------------------------------------------------------

    def _send(self, sites: set[SiteId]) -> None:
        secret = self.remote.keys.secret
        messages = {
            site: sign_message(secret, self.instructions[site]) for site in sorted(sites)
        }
        self.remote.transport.send(messages)

    def _receive(self, seconds: float) -> None:
        for site, blob in self.remote.transport.receive(seconds):
            if site in self.missing:
                self._open_reply(site, blob)

    def _open_reply(self, site: SiteId, blob: bytes) -> None:
        """Process one message.

        A message without a valid signature may come from anyone, so it does not count as a reply of
        the site.
        """
        remote = self.remote
        instruction = self.instructions[site]
        try:
            remote.response_check.check_size(site, blob)
            reply = open_reply(remote.keys.sites[site], blob, site)
        except ValueError as error:
            self._ask_again(site, str(error))
            return
        if (reply.run, reply.key) == (instruction.run, instruction.key):
            is_of_this_life = reply.life == instruction.life  # not of an earlier process
            if reply.refused is None or is_of_this_life:
                self._enter(site, reply, len(blob))
            return
        # a site that could not read an instruction does not know its key
        if not reply.refused or reply.key:
            return
        is_hopeful = self._ask_again(site, reply.refused)
        if not is_hopeful:
            self._refuse(site, reply.refused)

    def _enter(self, site: SiteId, reply: Reply, n_bytes: int) -> None:
        try:
            if reply.refused is not None:
                raise ValueError(reply.refused)
            self._compare(site, reply.version)
            values = dict(reply.body)
            cost = values.pop(EPSILON, 0.0)
            if type(cost) not in (int, float) or not 0 <= cost < float("inf"):
                raise ValueError(
                    f"{EPSILON} is {cost!r:.40}; it must be a nonnegative finite number"
                )
            self.accepted[site] = self._look_at(site, values)
            self.costs[site] = float(cost)
        except ValueError as error:
            self._refuse(site, str(error))
        else:
            self._notify("replied", site=site, bytes=n_bytes, epsilon=float(cost))

    def _look_at(self, site: SiteId, reply: Values) -> Values:
        """Return a valid reply. Raises ValueError for any other.

        A site may send anything. An unforeseen error in a check counts as an invalid reply, so that
        it does not end the exchange for all sites.
        """
        try:
            return self.accept(site, reply)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(
                "its reply does not have the format of this version of Fallow "
                f"({type(error).__name__}: {error})"
            ) from error

    def _compare(self, site: SiteId, version: str) -> None:
        """Check the version of a reply.

        Raises ValueError for another release, and reports another patch version once.
        """
        check_release(version, f"site {site}", mine="the coordinator")
        if version != __version__ and site not in self.remote.reported:
            self.remote.reported.add(site)
            why = (
                f"site {site} has Fallow {version} and the coordinator {__version__}: upgrade "
                "the older"
            )
            self._notify("version", site=site, reason=plain(f"{why} one when convenient"))

    def _ask_again(self, site: SiteId, reason: str) -> bool:
        """Send a damaged instruction again, or one with a damaged reply.

        Returns False after too many attempts.
        """
        self.damaged[site] += 1
        if self.damaged[site] > AGAIN:
            return False
        self._notify("refused", site=site, reason=plain(reason))
        self._send({site})
        return True

    def _refuse(self, site: SiteId, reason: str) -> None:
        """Reject a reply. The reason may include text of the site."""
        reason = plain(reason)
        self.accepted.pop(site, None)
        self.refused[site] = reason
        if self.reported.get(site) != reason:  # once, however often it is asked again
            self.reported[site] = reason
            self._notify("refused", site=site, reason=reason)

    def _refuse_odd(self) -> bool:
        strange = self.find_inconsistent(self.accepted)
        for site, why in strange.items():
            self._refuse(site, why)
        return bool(strange)

    # -- messages for users ------------------------------------------------------------------

    def _notify(self, kind: str, **details: object) -> None:
        """Report an event of this exchange."""
        event = {"event": kind, "key": str(self.key), "exchange": self.key, **details}
        self.remote.notify(cast(Event, event))

    def _announce_waiting(self, waited: float) -> None:
        """Report the pending sites, the elapsed and the largest time, and the required replies."""
        self._notify(
            "waiting",
            sites=sorted(self.pending),
            needed=self.need,
            asked=len(self.instructions),
            waited=waited,
            left=max(self.remote.waits.patience - waited, 0.0),
        )
