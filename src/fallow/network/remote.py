"""Real sites: requests become signed orders, and a link carries them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from fallow.core.disclosure import payload
from fallow.core.events import Say
from fallow.core.messages import Delivered, Request, payload_of
from fallow.core.totals import sum_whole
from fallow.core.types import Answer, SiteId
from fallow.network.checks import ResponseCheck
from fallow.network.envelope import Errand, Link, Order, sign_message
from fallow.network.gathering import Keys, ReplyCollector, Waiting
from fallow.network.plausible import last_norms
from fallow.network.relays import (
    ANEW,
    BYTES,
    DELIVER,
    LETTER,
    LONGEST,
    NEWS,
    check_letters,
    delivery,
    request_body,
)
from fallow.sites.in_process import Routes
from fallow.storage.plain import plain

GLANCE = (
    120.0  # seconds that sites have to say how labelling goes; a later answer is not heard
)

AGAIN, BEFORE, NORMS = "again/", "before", "norms"
"""What is noted: how often a step was asked anew, what had counted before the last exchange, and
the norms of the model that sites were brought last."""
TOLD = "told/"
"""What is noted of each site: the news that came with orders which it has answered."""


BETWEEN = "; "
"""Stands between two pieces of news in one order."""


def step_of(key: str) -> str:
    """The step that an exchange, or a part of a step, belongs to.

    >>> step_of("0/train/3/0"), step_of("1/query/2"), step_of("0/initial/features/0")
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
        return tuple(sorted(self.keys.sites.keys() - self.left))

    def wire_key(self, key: str) -> str:
        """The key under which sites know an exchange: its own, unless its step was asked anew."""
        times = self.book.read_note(f"{AGAIN}{step_of(key)}")
        return f"{key}{ANEW}{times}" if times else key

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """What sites answer; those that did not are missing from it.

        Raises RuntimeError when too few answer.  Then nothing is noted, and the same exchange may
        be asked again by another process: sites that have answered it answer the same.
        """
        self.asking = next(iter(requests.values())).key if requests else None
        self._note_norms(requests)
        down = sum(map(payload_of, requests.values()))
        if routes is not None:
            found = self._relay(requests, routes, down)
        else:
            found = self._plain(requests, down)
        self.newest, self.asking = self.asking, None  # an error leaves the latter as it is
        return found

    def _plain(self, requests: Mapping[SiteId, Request], down: int) -> Delivered:
        bodies = {
            site: request_body(request, news=self._news_to(site))
            for site, request in requests.items()
        }

        def taken(site: SiteId, answer: Answer) -> Answer:
            return self.border.check(site, requests[site], answer)

        def strange(found: Mapping[SiteId, Answer]) -> dict[SiteId, str]:
            return self.border.refusals(requests, found)

        needs_all = any(request.needs_all for request in requests.values())
        found = self._gather(requests, bodies, taken, needs_all=needs_all, odd=strange)
        up = sum(map(payload, found.answers.values()))
        answers, cut = self.border.weighed(requests, found.answers)
        for site, why in cut.items():
            self.say({"event": "weighed", "site": site, "key": found.key, "why": why})
        return Delivered(answers, up, down, found.dearest)

    def progress(self) -> dict[SiteId, Answer]:
        """How labelling goes at the sites that say so soon; changes nothing."""
        key = f"progress/{secrets.token_hex(8)}"  # an earlier one's late answer is another one's
        orders = {site: self._order(site, key, None, "progress", 0) for site in self.sites}
        waits = min(GLANCE, self.waits.timeout)
        return (
            ReplyCollector(self, orders, self.border.progress, 0, waits).gathered().answers
        )

    # -- relays -----------------------------------------------------------------------------

    def _relay(
        self, requests: Mapping[SiteId, Request], routes: Routes, down: int
    ) -> Delivered:
        """Two legs: senders answer with sealed letters, receivers are brought them."""
        receivers: dict[SiteId, set[SiteId]] = {}
        for to, senders in routes.items():
            for sender in senders:
                receivers.setdefault(sender, set()).add(to)
        bodies = {
            site: request_body(
                request, self._seals(receivers.get(site, set())), self._news_to(site)
            )
            for site, request in requests.items()
        }

        def sent(site: SiteId, answer: Answer) -> Answer:
            if site in receivers:
                return check_letters(answer, receivers[site])
            return self.border.check(site, requests[site], answer)

        found = self._gather(requests, bodies, sent, needs_all=True)
        if receivers:
            self._deliver(requests[min(receivers)], found.answers, routes)
        sizes: dict[SiteId, Answer] = {
            s: {BYTES: found.answers[s][BYTES]} for s in receivers
        }
        passed = sum_whole(sizes, BYTES)  # from site to site: up and down
        return Delivered(sizes, passed, down + passed, found.dearest)

    def _deliver(
        self, request: Request, answers: Mapping[SiteId, Answer], routes: Routes
    ) -> None:
        verb, cycle = request.steps[-1].verb, request.cycle
        bodies = {
            to: delivery(verb, {s: answers[s][f"{LETTER}{to}"] for s in senders}, cycle)
            for to, senders in routes.items()
            if senders
        }
        key = f"{self.wire_key(request.key)}{DELIVER}"
        self._gather(
            dict.fromkeys(bodies, key), bodies, self._taken, "deliver", needs_all=True
        )

    def _taken(self, site: SiteId, answer: Answer) -> Answer:
        """A site that refused letters has gone on without these."""
        answer = self.border.plain(site, answer)
        if why := answer.get("refused"):
            self.say({"event": "refused", "site": site, "key": "", "why": plain(why)})
        return answer

    def _seals(self, to: set[SiteId]) -> dict[SiteId, bytes]:
        if unknown := sorted(to - self.keys.seals.keys()):
            raise RuntimeError(
                f"site {unknown[0]} has no seal key here, so that nothing can be passed on to it; "
                "admit it again"
            )
        return {site: self.keys.seals[site] for site in sorted(to)}

    # -- orders -----------------------------------------------------------------------------

    def _gather(
        self,
        asked: Mapping[SiteId, Request | str],
        bodies: Mapping[SiteId, Any],
        accept: Callable[[SiteId, Answer], Answer],
        errand: Errand = "request",
        needs_all: bool = False,
        odd: Callable[[Mapping[SiteId, Answer]], Mapping[SiteId, str]] = lambda found: {},
    ) -> ReplyCollector:
        """One leg.  What sites did counts: it is noted in the transaction in which the caller
        records the exchange."""
        keys = {
            site: a if isinstance(a, str) else self.wire_key(a.key)
            for site, a in asked.items()
        }
        orders = {s: self._order(s, keys[s], body, errand) for s, body in bodies.items()}
        need = len(orders) if needs_all else self._need(len(orders))
        found = ReplyCollector(
            self, orders, accept, need, self.waits.timeout, odd
        ).gathered()
        self.book.note("place", str(self._place() + 1))
        if errand == "request":
            self._note_before(found.answers)
        for site in found.answers:
            self.book.note(f"counted/{site}", keys[site])
            if errand == "request":
                self._note_told(site)
        return found

    # -- news -------------------------------------------------------------------------------

    def sign_news(self, site: SiteId, sentence: str) -> bytes:
        """A message with nothing but a sentence, for a site that is sent no other order."""
        key = f"progress/{secrets.token_hex(8)}"
        order = self._order(site, key, {NEWS: sentence}, "progress", 0)
        return sign_message(self.keys.secret, order)

    def _news_to(self, site: SiteId) -> str:
        """What comes with the next order to a site: the same until the site has answered it."""
        return BETWEEN.join(self._untold(site))

    def _untold(self, site: SiteId) -> list[str]:
        """The first news that a site has not heard, as many as an order holds."""
        told = self._told(site)
        chosen: list[str] = []
        length = 0
        for sentence in self.news(site):
            if sentence in told:
                continue
            length += len(sentence) + len(BETWEEN)
            if chosen and length > LONGEST:
                break
            chosen.append(sentence)
        return chosen

    def _told(self, site: SiteId) -> list[str]:
        found: list[str] = json.loads(self.book.read_note(f"{TOLD}{site}") or "[]")
        return found

    def _note_told(self, site: SiteId) -> None:
        fresh = self._untold(site)
        if fresh:
            self.book.note(f"{TOLD}{site}", json.dumps([*self._told(site), *fresh]))

    def _note_norms(self, requests: Mapping[SiteId, Request]) -> None:
        """How long the models are that sites are brought.  Under secure sums they travel with the
        exchange before the sum, which a restart may lie between."""
        brought = {n: size for n, size in last_norms(requests.values()).items() if size}
        if brought:
            self.border.last = brought
            self.book.note(NORMS, json.dumps(brought))
        elif not self.border.last:
            self.border.last = json.loads(self.book.read_note(NORMS) or "{}")

    def _note_before(self, sites: Iterable[SiteId]) -> None:
        """What had counted before an exchange, in case that it has to be taken back."""
        counted = {site: self.book.read_note(f"counted/{site}") for site in sites}
        about = {site: key for site, key in counted.items() if key is not None}
        self.book.note(BEFORE, json.dumps({"key": self.asking, "counted": about}))

    def _need(self, asked: int) -> int:
        """How many of so many sites must answer: a quorum says how many of all may be missing."""
        quorum = self.waits.quorum
        if quorum is None:
            return asked
        return min(max(asked - (len(self.sites) - quorum), 1), asked)

    def _place(self) -> int:
        return int(self.book.read_note("place") or 0)

    def _order(
        self, site: SiteId, key: str, body: Any, errand: Errand, further: int = 1
    ) -> Order:
        counted = self.book.read_note(f"counted/{site}")
        place = self._place() + further
        about = (self.study, self.run, site, key, place, errand, counted)
        return Order(*about, body, life=self.life)
