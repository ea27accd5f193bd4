"""Real sites: requests become signed orders, and a link carries them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

from torch import Tensor

from fallow.core.disclosure import payload
from fallow.core.events import Say
from fallow.core.messages import Delivered, Masked, Request, payload_of
from fallow.core.refusal import Halted
from fallow.core.totals import sum_whole
from fallow.core.types import Answer, SiteId
from fallow.network.checks import ResponseCheck
from fallow.network.envelope import Errand, Link, Order, sign_message
from fallow.network.gathering import (
    FindOdd,
    Keys,
    ReplyCollector,
    Waiting,
    find_none_odd,
)
from fallow.network.plausible import find_last_norms
from fallow.network.relays import (
    ANEW,
    BYTES,
    DELIVER,
    LETTER,
    LONGEST,
    NEWS,
    OrderBody,
    check_letters,
    delivery_body,
    request_body,
    tensor_to_bytes,
)
from fallow.network.sum_keys import SIGNED, check_sum_key, find_shown, join_proofs
from fallow.sites.in_process import Routes
from fallow.storage.plain import plain

GLANCE = 120.0
"""Seconds that sites have to say how labeling goes; a later answer is not heard."""

# what is noted
AGAIN = "again/"  # of a step: how often it was asked anew
BEFORE = "before"  # what had counted before the last exchange
SIGNATURES = "signatures"  # of the public keys that sites have shown last
NORMS = "norms"  # of the model that sites were brought last
TOLD = "told/"  # of a site: the news that came with orders which it has answered


BETWEEN = "; "
"""Stands between two pieces of news in one order."""


def find_step(key: str) -> str:
    """The step that an exchange, or a part of a step, belongs to.

    >>> find_step("0/train/3/0"), find_step("1/query/2"), find_step("0/initial/features/0")
    ('0/train', '1/query', '0/initial')
    """
    return "/".join(key.partition(ANEW)[0].split("/")[:2])


class Book(Protocol):
    """What the coordinator remembers of its sites, written in the transaction of the exchange."""

    def read_note(self, name: str) -> str | None: ...
    def note(self, name: str, value: str) -> None: ...


@final
@dataclass
class Remote:
    """A carrier to sites on other machines.

    An exchange waits for all its sites until ``waits.timeout``; from then on it ends when no more
    of them are missing than a quorum of all sites leaves out, and at ``waits.patience`` it fails.
    A relay needs all its senders and receivers, because nobody would notice what is missing, and
    so does what a method needs of all.  A site that was missing the last time and is not online is
    not waited for beyond the quorum.

    say: is told of ``answered``, ``refused`` and ``version`` (with site and key; why), and of
    ``waiting`` and ``missing`` (with sites and key).  border: ``border.rows`` and ``border.sizes``
    are filled in by who knows them.  left: sites that the study goes on without.  news: all that a
    site is told beside its orders, a sentence each, which it hears once.  asking: the key of the
    exchange that is under way, or during which the run ended; newest: of the last one that sites
    have answered.
    """

    link: Link
    book: Book
    keys: Keys
    study: str
    run: str
    waits: Waiting
    say: Say
    border: ResponseCheck = field(default_factory=ResponseCheck)
    clock: Callable[[], float] = time.monotonic
    absent: set[SiteId] = field(default_factory=set)
    told: set[SiteId] = field(default_factory=set)  # sites whose version was remarked on
    life: str = field(default_factory=lambda: secrets.token_hex(8))
    left: frozenset[SiteId] = frozenset()
    news: Callable[[SiteId], Sequence[str]] = lambda site: ()
    asking: str | None = None
    newest: str | None = None

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """The sites that are in the study, in sorted order."""
        return tuple(sorted(self.keys.sites.keys() - self.left))

    def wire_key(self, key: str) -> str:
        """The key under which sites know an exchange: its own, unless its step was asked anew."""
        times = self.book.read_note(f"{AGAIN}{find_step(key)}")
        if not times:
            return key
        return f"{key}{ANEW}{times}"

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """What sites answer; those that did not are missing from it.

        Raises Halted when too few answer.  Then nothing is noted, and the same exchange may
        be asked again by another process: sites that have answered it answer the same.
        """
        self.asking = None
        if requests:
            self.asking = next(iter(requests.values())).key
        self._note_norms(requests)
        down = sum(payload_of(request) for request in requests.values())
        if routes is not None:
            result = self._relay(requests, routes, down)
        else:
            result = self._exchange_plain(requests, down)
        # an error does not come here: then the exchange is still the one that is asked
        self.newest = self.asking
        self.asking = None
        return result

    def _exchange_plain(self, requests: Mapping[SiteId, Request], down: int) -> Delivered:
        bodies: dict[SiteId, OrderBody] = {}
        for site, request in requests.items():
            proofs = self._find_proofs(request)
            bodies[site] = request_body(request, news=self._join_news(site), proofs=proofs)
        signatures: dict[SiteId, str] = {}  # of public keys for a sum

        def accept(site: SiteId, answer: Answer) -> Answer:
            shown = find_shown(requests[site])
            if shown is None:
                return self.border.check(site, requests[site], answer)
            signature = answer.pop(SIGNED, None)
            checked = self.border.check(site, requests[site], answer)
            signatures[site] = self._check_signature(site, shown, checked, signature)
            return checked

        def find_strange(found: Mapping[SiteId, Answer]) -> dict[SiteId, str]:
            return self.border.refusals(requests, found)

        needs_all = any(request.needs_all for request in requests.values())
        result = self._gather(
            keys=self._wire_keys(requests),
            bodies=bodies,
            accept=accept,
            needs_all=needs_all,
            find_odd=find_strange,
        )
        if signatures:
            counted = {site: signatures[site] for site in result.answers}
            self.book.note(SIGNATURES, json.dumps(counted))
        up = sum(payload(answer) for answer in result.answers.values())
        answers, cut = self.border.limit_weights(requests, result.answers)
        for site, why in cut.items():
            self.say({"event": "weighed", "site": site, "key": result.key, "why": why})
        return Delivered(answers, up, down, result.dearest)

    # -- keys of secure sums ----------------------------------------------------------------

    def _check_signature(
        self, site: SiteId, about: Masked, answer: Answer, signature: object
    ) -> str:
        """The signature of a public key, in hexadecimal digits.  Raises ValueError for any other:
        the other sites would refuse, and it is held against the site that sent it."""
        signed = tensor_to_bytes(signature, "the signature of its public key")
        check_sum_key(
            self.keys.sites[site],
            signed,
            study=self.study,
            run=self.run,
            site=site,
            about=about,
            key=answer["key"],
        )
        return signed.hex()

    def _find_proofs(self, request: Request) -> dict[SiteId, Tensor]:
        """Of the sites whose public keys a request has, what shows that these are theirs."""
        details = request.steps[-1].masked
        if details is None or not details.keys:
            return {}
        noted = json.loads(self.book.read_note(SIGNATURES) or "{}")
        signatures = {site: noted[site] for site in details.keys if site in noted}
        return join_proofs(self.keys.sites, signatures)

    def progress(self) -> dict[SiteId, Answer]:
        """How labeling goes at the sites that say so soon; changes nothing."""
        key = f"progress/{secrets.token_hex(8)}"  # an earlier one's late answer is another one's
        orders = {
            site: self._make_order(site, key, body=None, errand="progress", further=0)
            for site in self.sites
        }
        collector = ReplyCollector(
            remote=self,
            orders=orders,
            accept=self.border.check_progress,
            need=0,
            timeout=min(GLANCE, self.waits.timeout),
        )
        return collector.gather().answers

    # -- relays -----------------------------------------------------------------------------

    def _relay(
        self, requests: Mapping[SiteId, Request], routes: Routes, down: int
    ) -> Delivered:
        """Two legs: senders answer with sealed letters, receivers are brought them."""
        receivers: dict[SiteId, set[SiteId]] = {}  # by sender
        for to, senders in routes.items():
            for sender in senders:
                receivers.setdefault(sender, set()).add(to)
        bodies: dict[SiteId, OrderBody] = {}
        for site, request in requests.items():
            seals = self._find_seals(receivers.get(site, set()))
            bodies[site] = request_body(request, to=seals, news=self._join_news(site))

        def accept(site: SiteId, answer: Answer) -> Answer:
            if site in receivers:
                return check_letters(answer, receivers[site])
            return self.border.check(site, requests[site], answer)

        result = self._gather(
            keys=self._wire_keys(requests), bodies=bodies, accept=accept, needs_all=True
        )
        if receivers:
            self._deliver(requests[min(receivers)], result.answers, routes)
        sizes: dict[SiteId, Answer] = {
            sender: {BYTES: result.answers[sender][BYTES]} for sender in receivers
        }
        passed = sum_whole(sizes, BYTES)  # from site to site: up and down
        return Delivered(sizes, passed, down + passed, result.dearest)

    def _deliver(
        self, request: Request, answers: Mapping[SiteId, Answer], routes: Routes
    ) -> None:
        """The second leg: what senders answered is brought to its receivers."""
        verb = request.steps[-1].verb
        bodies: dict[SiteId, OrderBody] = {}
        for to, senders in routes.items():
            if senders:
                letters = {sender: answers[sender][f"{LETTER}{to}"] for sender in senders}
                bodies[to] = delivery_body(verb, letters, request.cycle)
        key = f"{self.wire_key(request.key)}{DELIVER}"
        self._gather(
            keys=dict.fromkeys(bodies, key),
            bodies=bodies,
            accept=self._accept_delivery,
            errand="deliver",
            needs_all=True,
        )

    def _accept_delivery(self, site: SiteId, answer: Answer) -> Answer:
        """A site that refused letters has gone on without these."""
        answer = self.border.check_plain(site, answer)
        if why := answer.get("refused"):
            self.say({"event": "refused", "site": site, "key": "", "why": plain(why)})
        return answer

    def _find_seals(self, to: set[SiteId]) -> dict[SiteId, bytes]:
        """The public keys by which letters to these sites are sealed."""
        if unknown := sorted(to - self.keys.seals.keys()):
            raise Halted(
                f"site {unknown[0]} has no seal key here, so that nothing can be passed on to it; "
                "admit it again"
            )
        return {site: self.keys.seals[site] for site in sorted(to)}

    # -- orders -----------------------------------------------------------------------------

    def _wire_keys(self, requests: Mapping[SiteId, Request]) -> dict[SiteId, str]:
        return {site: self.wire_key(request.key) for site, request in requests.items()}

    def _gather(
        self,
        *,
        keys: Mapping[SiteId, str],
        bodies: Mapping[SiteId, OrderBody],
        accept: Callable[[SiteId, Answer], Answer],
        errand: Errand = "request",
        needs_all: bool = False,
        find_odd: FindOdd = find_none_odd,
    ) -> ReplyCollector:
        """One leg.  What sites did counts: it is noted in the transaction in which the caller
        records the exchange.

        keys: under which each site knows it; the others as `ReplyCollector` has them.
        """
        orders = {
            site: self._make_order(site, keys[site], body, errand)
            for site, body in bodies.items()
        }
        need = len(orders)
        if not needs_all:
            need = self._find_quorum(len(orders))
        collector = ReplyCollector(
            remote=self,
            orders=orders,
            accept=accept,
            need=need,
            timeout=self.waits.timeout,
            find_odd=find_odd,
        )
        result = collector.gather()
        self.book.note("place", str(self._find_place() + 1))
        if errand == "request":
            self._note_before(result.answers)
        for site in result.answers:
            self.book.note(f"counted/{site}", keys[site])
            if errand == "request":
                self._note_told(site)
        return result

    # -- news -------------------------------------------------------------------------------

    def sign_news(self, site: SiteId, sentence: str) -> bytes:
        """A message with nothing but a sentence, for a site that is sent no other order."""
        key = f"progress/{secrets.token_hex(8)}"
        body = {NEWS: sentence}
        order = self._make_order(site, key, body=body, errand="progress", further=0)
        return sign_message(self.keys.secret, order)

    def _join_news(self, site: SiteId) -> str:
        """What comes with the next order to a site: the same until the site has answered it."""
        return BETWEEN.join(self._choose_news(site))

    def _choose_news(self, site: SiteId) -> list[str]:
        """The first news that a site has not heard, as many as an order holds."""
        output = self._load_told(site)
        chosen: list[str] = []
        length = 0
        for sentence in self.news(site):
            if sentence in output:
                continue
            length += len(sentence) + len(BETWEEN)
            if chosen and length > LONGEST:
                break
            chosen.append(sentence)
        return chosen

    def _load_told(self, site: SiteId) -> list[str]:
        result: list[str] = json.loads(self.book.read_note(f"{TOLD}{site}") or "[]")
        return result

    def _note_told(self, site: SiteId) -> None:
        fresh = self._choose_news(site)
        if fresh:
            self.book.note(f"{TOLD}{site}", json.dumps([*self._load_told(site), *fresh]))

    def _note_norms(self, requests: Mapping[SiteId, Request]) -> None:
        """How long the models are that sites are brought.  Under secure sums they travel with the
        exchange before the sum, which a restart may lie between."""
        brought: dict[str, float] = {}
        for name, norm in find_last_norms(requests.values()).items():
            if norm:
                brought[name] = norm
        if brought:
            self.border.last = brought
            self.book.note(NORMS, json.dumps(brought))
        elif not self.border.last:
            self.border.last = json.loads(self.book.read_note(NORMS) or "{}")

    def _note_before(self, sites: Iterable[SiteId]) -> None:
        """What had counted before an exchange, in case that it has to be taken back."""
        counted: dict[SiteId, str] = {}
        for site in sites:
            key = self.book.read_note(f"counted/{site}")
            if key is not None:
                counted[site] = key
        self.book.note(BEFORE, json.dumps({"key": self.asking, "counted": counted}))

    def _find_quorum(self, asked: int) -> int:
        """How many of so many sites must answer: a quorum says how many of all may be missing."""
        quorum = self.waits.quorum
        if quorum is None:
            return asked
        may_be_missing = len(self.sites) - quorum
        return min(max(asked - may_be_missing, 1), asked)

    def _find_place(self) -> int:
        return int(self.book.read_note("place") or 0)

    def _make_order(
        self,
        site: SiteId,
        key: str,
        body: OrderBody | None,
        errand: Errand,
        further: int = 1,
    ) -> Order:
        """The next order to a site; ``further``: by how many exchanges, 0 for what is none."""
        return Order(
            study=self.study,
            run=self.run,
            site=site,
            key=key,
            place=self._find_place() + further,
            errand=errand,
            counted=self.book.read_note(f"counted/{site}"),
            body=body,
            life=self.life,
        )
