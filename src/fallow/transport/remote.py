"""Exchanges with remote sites: requests are signed and sent over a transport."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, final

from torch import Tensor

from fallow.core.aggregation import sum_whole
from fallow.core.disclosure import payload
from fallow.core.events import EventHandler
from fallow.core.exchange_key import LARGEST, ExchangeKey
from fallow.core.messages import Delivered, Masked, Request, payload_of
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId, Values
from fallow.sites.in_process import Routes
from fallow.storage.plain import plain
from fallow.transport.checks import ResponseCheck, check_plain, find_inconsistent, is_ragged
from fallow.transport.envelope import Instruction, Transport
from fallow.transport.gathering import (
    FindOdd,
    Keys,
    ReplyCollector,
    SealKey,
    Waiting,
    find_none_odd,
)
from fallow.transport.peer_messages import (
    BYTES,
    PEER_MESSAGE,
    InstructionBody,
    check_peer_messages,
    delivery_body,
    request_body,
    tensor_to_bytes,
)
from fallow.transport.sum_keys import SIGNED, check_sum_key, find_shown, join_proofs

GLANCE = 120.0
"""Seconds that sites have to reply with their progress. Later replies are ignored."""

# keys in the event log
AGAIN = "again/"  # of a phase: number of retries
BEFORE = "before"  # exchanges that counted before the last one
SIGNATURES = "signatures"  # signatures of the latest public keys of the sites


class NoteStore(Protocol):
    """Coordinator's state of its sites, written in the transaction of the exchange."""

    def read_note(self, name: str) -> str | None: ...
    def note(self, name: str, value: str) -> None: ...


class Weights(Protocol):
    """Comparison of the replies of an exchange, and limits on the weight of a site."""

    def note_sent(self, requests: Iterable[Request], event_log: NoteStore) -> None:
        """Store what later replies are compared with."""

    def find_outliers(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> dict[SiteId, str]:
        """Return the sites whose reply does not count because of the other replies, and why."""

    def limit(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> tuple[dict[SiteId, Values], dict[SiteId, str]]:
        """Return the replies with limited weights, and a sentence for each limited one."""


@final
@dataclass
class RemoteChannel:
    """Connection to remote sites: exchanges of instructions and replies.

    An exchange waits for all of its sites until ``waits.timeout``. After that it ends as soon as
    the quorum permits the number of missing sites, and it fails at ``waits.patience``. A relay
    needs all senders and receivers, because missing messages would not be noticed. The same holds
    for requests that an algorithm needs from all sites. Beyond the quorum, the exchange does not
    wait for a site that is offline and was missing in the last one.

    Attributes
    ----------
    notify
        Receives the events ``replied``, ``refused`` and ``version`` (with site and key, or reason),
        and ``waiting`` and ``missing`` (with sites and key).
    response_check
        Validates replies. The coordinator's program sets its ``rows`` and ``sizes``.
    weights
        Compares replies with each other, and limits the weight of a site.
    reported
        Sites whose version was reported.
    left
        Returns the sites that were removed from the study.
    revoked
        Sites whose keys were revoked. They receive no instructions, and their replies are rejected.
    asking
        Key of the exchange in progress, or of the one in which the run ended.
    newest
        Key of the last completed exchange.
    """

    transport: Transport
    event_log: NoteStore
    keys: Keys
    study: str
    run: str
    waits: Waiting
    notify: EventHandler
    response_check: ResponseCheck
    weights: Weights
    clock: Callable[[], float] = time.monotonic
    absent: set[SiteId] = field(default_factory=set)
    reported: set[SiteId] = field(default_factory=set)  # sites whose version was reported
    life: str = field(default_factory=lambda: secrets.token_hex(8))
    left: Callable[[], Collection[SiteId]] = frozenset
    revoked: frozenset[SiteId] = frozenset()
    asking: ExchangeKey | None = None
    newest: ExchangeKey | None = None

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """Return the sites of the study in sorted order."""
        return tuple(sorted(self.keys.sites.keys() - set(self.left())))

    def wire_key(self, key: ExchangeKey) -> ExchangeKey:
        """Return the key of an exchange at the sites, which includes the retries of its phase."""
        times = self.event_log.read_note(f"{AGAIN}{key.phase_name}")
        return replace(key, retry=int(times or 0))

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """Return the replies of the sites, without those that did not reply.

        Raises RunHalted if too few sites reply. Nothing is stored in that case, and another process
        may repeat the exchange: sites that have replied send the same reply.
        """
        self.asking = None
        if requests:
            self.asking = next(iter(requests.values())).key
        self.weights.note_sent(requests.values(), self.event_log)
        down = sum(payload_of(request) for request in requests.values())
        if routes is not None:
            result = self._relay(requests, routes, down)
        else:
            result = self._exchange_plain(requests, down)
        # after an error, the exchange remains pending
        self.newest = self.asking
        self.asking = None
        return result

    def _exchange_plain(self, requests: Mapping[SiteId, Request], down: int) -> Delivered:
        bodies: dict[SiteId, InstructionBody] = {}
        for site, request in requests.items():
            proofs = self._find_proofs(request)
            bodies[site] = request_body(request, proofs=proofs)
        signatures: dict[SiteId, str] = {}  # signatures of public keys for a sum

        def accept(site: SiteId, reply: Values) -> Values:
            shown = find_shown(requests[site])
            if shown is None:
                return self.response_check.check(site, requests[site], reply)
            signature = reply.pop(SIGNED, None)
            checked = self.response_check.check(site, requests[site], reply)
            signatures[site] = self._check_signature(site, shown, checked, signature)
            return checked

        def find_strange(replies: Mapping[SiteId, Values]) -> dict[SiteId, str]:
            return self._find_strange(requests, replies)

        needs_all = any(request.needs_all for request in requests.values())
        result = self._gather(
            keys=self._wire_keys(requests),
            bodies=bodies,
            accept=accept,
            needs_all=needs_all,
            find_inconsistent=find_strange,
            is_renewed=True,
        )
        if signatures:
            counted = {site: signatures[site] for site in result.replies}
            self.event_log.note(SIGNATURES, json.dumps(counted))
        up = sum(payload(reply) for reply in result.replies.values())
        replies, cut = self.weights.limit(requests, result.replies)
        for site, why in cut.items():
            self.notify(
                {"event": "weighed", "site": site, "key": str(result.key), "reason": why}
            )
        return Delivered(replies, up, down, result.dearest)

    def _find_strange(
        self, requests: Mapping[SiteId, Request], replies: Mapping[SiteId, Values]
    ) -> dict[SiteId, str]:
        """Return the replies that are inconsistent with the others, and why.

        The check runs before a reply is accepted, so that the event log has no reply on which the
        server side would fail.
        """
        asked: dict[SiteId, Values] = {}
        for site, reply in replies.items():
            if requests[site].steps[-1].kind != "fit":
                asked[site] = reply
        are_ragged = any(is_ragged(request) for request in requests.values())
        are_masked = any(request.steps[-1].masked for request in requests.values())
        strange = find_inconsistent(asked, are_ragged)
        if strange or are_masked:
            return strange
        return self.weights.find_outliers(requests, asked)

    # -- keys of secure aggregation -----------------------------------------------------------

    def _check_signature(
        self, site: SiteId, masked: Masked, reply: Values, signature: object
    ) -> str:
        """Return the signature of a public key in hexadecimal digits.

        Raises ValueError for an invalid signature, because the other sites would reject it and the
        sender is responsible.
        """
        signed = tensor_to_bytes(signature, "the signature of its public key")
        check_sum_key(
            self.keys.sites[site],
            signed,
            study=self.study,
            run=self.run,
            site=site,
            masked=masked,
            key=reply["key"],
        )
        return signed.hex()

    def _find_proofs(self, request: Request) -> dict[SiteId, Tensor]:
        """Return the signatures of the public keys in a request, by site."""
        details = request.steps[-1].masked
        if details is None or not details.keys:
            return {}
        noted = json.loads(self.event_log.read_note(SIGNATURES) or "{}")
        signatures = {site: noted[site] for site in details.keys if site in noted}
        return join_proofs(self.keys.sites, signatures)

    def progress(self) -> dict[SiteId, Values]:
        """Return the labeling progress of the sites that reply quickly. Nothing is stored."""
        key = _name_progress()
        instructions = {
            site: self._make_instruction(site, key, body=None, further=0)
            for site in self.sites
        }
        collector = ReplyCollector(
            remote=self,
            instructions=instructions,
            accept=self.response_check.check_progress,
            need=0,
            timeout=min(GLANCE, self.waits.timeout),
        )
        return collector.gather().replies

    # -- relays -----------------------------------------------------------------------------

    def _relay(
        self, requests: Mapping[SiteId, Request], routes: Routes, down: int
    ) -> Delivered:
        """Run a relay: collect encrypted messages from senders and deliver them to receivers."""
        receivers: dict[SiteId, set[SiteId]] = {}  # receivers by sender
        for to, senders in routes.items():
            for sender in senders:
                receivers.setdefault(sender, set()).add(to)
        bodies: dict[SiteId, InstructionBody] = {}
        for site, request in requests.items():
            seals = self._find_seals(receivers.get(site, set()))
            bodies[site] = request_body(
                request,
                to={to: seal.public for to, seal in seals.items()},
                proofs=self._prove_seals(seals),
            )

        def accept(site: SiteId, reply: Values) -> Values:
            if site in receivers:
                return check_peer_messages(reply, receivers[site])
            return self.response_check.check(site, requests[site], reply)

        result = self._gather(
            keys=self._wire_keys(requests), bodies=bodies, accept=accept, needs_all=True
        )
        if receivers:
            self._deliver(requests[min(receivers)], result.replies, routes)
        sizes: dict[SiteId, Values] = {
            sender: {BYTES: result.replies[sender][BYTES]} for sender in receivers
        }
        passed = sum_whole(sizes, BYTES)  # peer messages are uploaded and downloaded
        return Delivered(sizes, passed, down + passed, result.dearest)

    def _deliver(
        self, request: Request, replies: Mapping[SiteId, Values], routes: Routes
    ) -> None:
        """Deliver the messages of the senders to their receivers."""
        function = request.steps[-1].function
        bodies: dict[SiteId, InstructionBody] = {}
        for to, senders in routes.items():
            if senders:
                messages = {
                    sender: replies[sender][f"{PEER_MESSAGE}{to}"] for sender in senders
                }
                bodies[to] = delivery_body(function, messages, request.cycle)
        key = replace(self.wire_key(request.key), is_delivery=True)
        self._gather(
            keys=dict.fromkeys(bodies, key),
            bodies=bodies,
            accept=self._accept_delivery,
            needs_all=True,
        )

    def _accept_delivery(self, site: SiteId, reply: Values) -> Values:
        """Accept the confirmation of a delivery. A site proceeds without rejected messages."""
        reply = check_plain(reply)
        if why := reply.get("refused"):
            self.notify({"event": "refused", "site": site, "key": "", "reason": plain(why)})
        return reply

    def _find_seals(self, to: set[SiteId]) -> dict[SiteId, SealKey]:
        """Return the public keys that encrypt messages to these sites."""
        if unknown := sorted(to - self.keys.seals.keys()):
            raise RunHalted(
                f"site {unknown[0]} has no encryption key here, so peer messages "
                "cannot be sent to it; admit it again"
            )
        return {site: self.keys.seals[site] for site in sorted(to)}

    def _prove_seals(self, seals: Mapping[SiteId, SealKey]) -> dict[SiteId, Tensor]:
        """Return the proofs of seal keys, by which senders verify them."""
        signatures = {site: seal.signature.hex() for site, seal in seals.items()}
        return join_proofs(self.keys.sites, signatures)

    # -- instructions ----------------------------------------------------------------------

    def _wire_keys(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, ExchangeKey]:
        return {site: self.wire_key(request.key) for site, request in requests.items()}

    def _gather(
        self,
        *,
        keys: Mapping[SiteId, ExchangeKey],
        bodies: Mapping[SiteId, InstructionBody],
        accept: Callable[[SiteId, Values], Values],
        needs_all: bool = False,
        find_inconsistent: FindOdd = find_none_odd,
        is_renewed: bool = False,
    ) -> ReplyCollector:
        """Run one part of an exchange, which the caller records in the same transaction.

        ``keys`` are the keys of the exchange at each site. ``is_renewed``: a site whose reply was
        rejected is asked again under a new key. See `ReplyCollector` for the others.
        """
        instructions = {
            site: self._make_instruction(site, keys[site], body)
            for site, body in bodies.items()
        }

        def renew(site: SiteId) -> Instruction:
            key = replace(keys[site], retry=secrets.randbelow(LARGEST - 1) + 1)
            return self._make_instruction(site, key, bodies[site])

        need = len(instructions)
        if not needs_all:
            able = len(instructions.keys() - self.revoked)
            need = min(self._find_quorum(len(instructions)), able)
        collector = ReplyCollector(
            remote=self,
            instructions=instructions,
            accept=accept,
            need=need,
            timeout=self.waits.timeout,
            find_inconsistent=find_inconsistent,
            renew=renew if is_renewed else None,
        )
        result = collector.gather()
        self.event_log.note("place", str(self._find_place() + 1))
        is_request = not any(key.is_delivery for key in keys.values())
        if is_request:
            self._note_before(result.replies)
        for site in result.replies:
            self.event_log.note(f"counted/{site}", str(result.instructions[site].key))
        return result

    def _note_before(self, sites: Iterable[SiteId]) -> None:
        """Store which exchanges counted before an exchange, so that it can be rolled back."""
        counted: dict[SiteId, str] = {}
        for site in sites:
            key = self.event_log.read_note(f"counted/{site}")
            if key is not None:
                counted[site] = key
        self.event_log.note(
            BEFORE, json.dumps({"key": str(self.asking), "counted": counted})
        )

    def _find_quorum(self, asked: int) -> int:
        """Return the required number of replies. The quorum limits the missing sites of all."""
        quorum = self.waits.quorum
        if quorum is None:
            return asked
        may_be_missing = len(self.sites) - quorum
        return min(max(asked - may_be_missing, 1), asked)

    def _find_place(self) -> int:
        return int(self.event_log.read_note("place") or 0)

    def _make_instruction(
        self,
        site: SiteId,
        key: ExchangeKey,
        body: InstructionBody | None,
        further: int = 1,
    ) -> Instruction:
        """Return the next instruction to a site.

        ``further`` is the increase of the exchange number, 0 for messages that are not exchanges.
        """
        return Instruction(
            study=self.study,
            run=self.run,
            site=site,
            key=key,
            number=self._find_place() + further,
            counted=self.event_log.read_note(f"counted/{site}"),
            body=body,
            life=self.life,
        )


def _name_progress() -> ExchangeKey:
    """Return the key of a new progress request, so that late replies to others are ignored."""
    return ExchangeKey("progress", "progress", turn=secrets.randbelow(LARGEST))
