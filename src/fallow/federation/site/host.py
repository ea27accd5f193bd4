"""A site at work: signed orders in, signed replies out, each performed once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from fallow.core.ask import KEYS, Request
from fallow.core.plain import plain
from fallow.core.refusal import Refusal
from fallow.core.streams import seed_of
from fallow.core.types import Answer
from fallow.federation.agreement import Agreement
from fallow.federation.ledger import Ledger
from fallow.federation.ledger.draft import Draft
from fallow.federation.made import made
from fallow.federation.people import PICKED, Office, People, begin_cycle
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.refusals import ErrorLog, told_outside
from fallow.federation.site.rows import SiteRows
from fallow.lab.errors import Failed
from fallow.lab.steps import held_back
from fallow.runtimes.border import check_order, stats_of
from fallow.runtimes.envelope import Order, Reply, open_order, seal
from fallow.runtimes.gathering import EPSILON
from fallow.runtimes.inprocess import perform
from fallow.runtimes.relays import (
    DELIVER,
    Brought,
    read_delivery,
    read_request,
    sealed_letters,
    tensor_of,
)
from fallow.runtimes.release import HERE, check_release
from fallow.runtimes.site import Parts, Site
from fallow.runtimes.store import Label


@final
class Host:
    """One site of a study.

    `handle` never raises: what goes wrong is a signed reply that says so, in words that may leave
    (`federation.site.refusals`); the others stay in ``errors.log``.  An order and its answer
    are one transaction of the ledger, so that the same order has the same answer, also after the
    process died in the middle of it, and an order that fails changes nothing.  What the site did
    after the exchange that the coordinator counted last came too late: its memory is put back
    before the next order; labels, questions, releases and secrets stay.
    """

    def __init__(self, folder: SiteFolder, ledger: Ledger) -> None:
        agreement = folder.agreement
        self._folder, self._ledger, self._agreement = folder, ledger, agreement
        self._made = made(agreement)
        privacy = agreement.recipe.privacy.over(agreement.recipe.cycles)
        self._parts = Parts(
            self._made.model,
            self._made.layout,
            self._made.methods,
            self._made.classes,
            agreement.seed,
            self._made.fresh,
            privacy=privacy,
            noise="os",
        )
        self._x = folder.rows.x.to(self._made.dtype)
        self._tests = rows_to_score(agreement, folder.tests)
        self._draft = Draft(ledger.store)
        self._people = People()
        self._turn = threading.Lock()
        self._site: Site | None = None
        ledger.orders.holds(len(self._x))

    def handle(self, blob: bytes) -> bytes:
        """The reply to a message, both as bytes."""
        run = key = life = ""
        name, order = self._folder.name, None
        with self._turn:
            try:
                order = open_order(self._agreement.coordinator, blob)
                run, key, life = order.run, order.key, order.life
                reply = Reply(run, name, key, self._answer(order), life=life)
                return seal(self._folder.keys.sign, reply)
            except (Exception, SystemExit) as error:
                log = ErrorLog(self._folder.path)
                why = told_outside(name, self._function(order), error, log)
                refusal = Reply(run, name, key, refused=why, life=life)
        return seal(self._folder.keys.sign, refusal)

    def _function(self, order: Order | None) -> str:
        """What an order asks for, in words of the order and of the agreement alone."""
        if order is None:
            return "what a message asks for"
        if order.errand != "request":
            return {"deliver": "the delivery of letters", "progress": "progress"}[
                order.errand
            ]
        try:
            request = read_request(order)[0]
        except ValueError:
            return "a request"
        if not request.steps:
            return "a request without steps"
        step = request.steps[-1]
        method = self._made.methods.get(request.owner)
        owner = request.owner if method is None else type(method).__name__
        return f"{owner}.{step.verb}" if step.kind != "fit" else f"the training of {owner}"

    # -- which orders are performed ---------------------------------------------------------

    def _answer(self, order: Order) -> Answer:
        self._check_addressed(order)
        if order.errand == "progress":
            self._counted(order)
            return self._people.progress(self._office(order.run))
        with self._ledger.transaction():
            self._enter(order.run)
            stored = self._ledger.orders.recall(order)
            if stored is not None:
                return stored
            self._take_turn(order)
        try:
            return self._performed(order)
        except BaseException:
            self._draft.clear()
            self._site = None  # what the order did to it is forgotten with it
            raise

    def _check_addressed(self, order: Order) -> None:
        if order.site != self._folder.name:
            raise Refusal(f"an order to site {order.site} came to site {self._folder.name}")
        check_release(order.version, "the coordinator", HERE, f"site {order.site}")
        if order.study != self._agreement.digest:
            raise Refusal(
                f"site {order.site} has agreed on study {self._agreement.digest} and not on "
                f"{order.study}: compare its study.toml with the coordinator's"
            )

    def _enter(self, run: str) -> None:
        """Go on with the newest run, or begin a new one, to which earlier labels are brought."""
        orders, store = self._ledger.orders, self._ledger.store
        newest = orders.newest_run()
        if run != newest:
            if orders.is_known(run):
                raise Refusal(
                    f"site {self._folder.name} has left run {run} for {newest}: this is a replay, "
                    "or two coordinators lead one study"
                )
            if newest is not None and run < newest:  # names sort by when runs began
                raise Refusal(
                    f"site {self._folder.name} is in run {newest}, and run {run} began before it: "
                    "this is a replay, or the coordinator's clock was set back; set it right and "
                    "begin in a new folder"
                )
            store.run = newest or run
            store.trust(self._parts.privacy.epsilon)
            orders.begin(run)
            store.clear()
            store.bring()
            self._bring()
            self._site = None
        store.run = run

    def _bring(self) -> None:
        """Enter the labels of the site's file, which cost nothing."""
        taken = self._ledger.purchases.taken("", -1)
        brought = [
            Label(row, value, -1)
            for row, value in enumerate(self._folder.rows.labels)
            if value is not None and row not in taken
        ]
        drawn = seed_of(self._agreement.seed, "validation", "brought", self._folder.name)
        share, is_class = self._agreement.recipe.validation, bool(self._made.classes)
        held = held_back(brought, share, is_class, drawn)
        self._ledger.store.write(self._folder.name, held)

    def _take_turn(self, order: Order) -> None:
        """Put back what came too late.  Raises ValueError for an order that is none of the next.

        The second leg of a relay goes on from the first, which does not count before both are done.
        """
        orders, store, site = self._ledger.orders, self._ledger.store, self._folder.name
        place, newest = orders.standing(order.run)
        if order.place < place:
            raise Refusal(
                f"site {site} is at exchange {place} and order {order.key} is number "
                f"{order.place}: this is a replay, or the coordinator's folder was put back"
            )
        if order.key == f"{newest}{DELIVER}":
            return
        store.settle(self._counted(order))
        orders.drop()
        if store.restore():
            self._site = None

    def _counted(self, order: Order) -> int:
        """The number of the exchange that counted last; ValueError where it is not known here."""
        orders, site = self._ledger.orders, self._folder.name
        found = 0 if order.counted is None else orders.number(order.run, order.counted)
        if found is None:
            raise Refusal(
                f"site {site} knows nothing of exchange {order.counted}, which the coordinator has "
                "counted: its ledger is older, perhaps from a backup; put the newest one back, or "
                "let the study go on without this site until a new run, which keeps its labels"
            )
        return found

    # -- what they do -----------------------------------------------------------------------

    def _performed(self, order: Order) -> Answer:
        """Do it; the answer and every change are written in one transaction, and last."""
        if order.errand == "deliver":
            brought = self._delivered(order)
            told = plain("; ".join(brought.refused.values()))
            return self._finished(order, brought.verb, {"refused": told})
        request, to = read_request(order)
        check_order(request, self._parts)
        verb = request.steps[-1].verb or request.steps[-1].kind
        is_writing = request.owner == "people" and verb in self._people.writes
        with self._ledger.transaction() if is_writing else nullcontext():
            answer = (
                self._about_people(order, request)
                if request.owner == "people"
                else (self._by_method(request))
            )
            if request.steps[-1].kind == "relay":
                answer = sealed_letters(order, answer, to)
            answer = self._finished(
                order, verb, answer, is_closing=is_writing and verb == "close"
            )
        if is_writing and verb == "close":
            with suppress(
                Failed, OSError
            ):  # all is safe in the ledger; the next close tries again
                self._ledger.backup()
        return answer

    def _finished(
        self, order: Order, verb: str, answer: Answer, is_closing: bool = False
    ) -> Answer:
        """A cycle that is closed stays closed, whether or not that counted."""
        orders, store, epsilon = (
            self._ledger.orders,
            self._ledger.store,
            self._draft.epsilon,
        )
        answer = {**answer, EPSILON: epsilon} if epsilon else answer
        with self._ledger.transaction():
            store.exchange = orders.finish(order, verb, answer)
            self._draft.flush(self._folder.name)
            if is_closing:
                store.settle(store.exchange)
                store.trust(self._parts.privacy.epsilon)
        return answer

    def _delivered(self, order: Order) -> Brought:
        sizes = {"w": self._parts.layout.d, "stats": stats_of(self._parts)}
        brought = read_delivery(order, self._folder.keys.seal, sizes)
        site = self._here()
        begin_cycle(site, brought.cycle, self._agreement.recipe)
        site.receive(brought.verb, brought.letters)
        return brought

    def _by_method(self, request: Request) -> Answer:
        site = self._here(request)
        begin_cycle(site, request.cycle, self._agreement.recipe)
        before = site.memory.get("picks")
        with self._fresh_held(site, request):
            answer = perform({site.id: site}, self._made.executor, {site.id: request})[
                site.id
            ]
        if site.memory.get("picks") is not before:
            step = request.key.rpartition("/")[0]
            site.remember(PICKED, {"step": tensor_of(step.encode())})
        return answer

    def _about_people(self, order: Order, request: Request) -> Answer:
        """Verbs of `People`, whose answers are masked where sums are secure sums."""
        step, site = request.steps[-1], self._here(request)
        if step.masked is not None and step.verb == KEYS:
            return site.guard.public_key(step.masked)
        if len(request.steps) > 1 or step.kind in ("fit", "relay"):
            raise Refusal(f"site {site.id} has no {step.kind} of people: {order.key}")
        if step.verb == "score":
            site.guard.check(step)
        answer: Answer = getattr(self._people, step.verb)(
            self._office(order.run), **step.args
        )
        if step.kind == "keep":
            return {"count": answer["count"]}
        return site.guard.out(step, request, answer) if step.kind == "sum" else answer

    # -- the site ---------------------------------------------------------------------------

    def _here(self, request: Request | None = None) -> Site:
        """The site as the ledger has it.  Rows that were withdrawn leave before the first exchange
        of a round or a query: a method may remember something of each row from one exchange to the
        next."""
        is_first, is_new = (
            request is not None and request.key.endswith("/0"),
            self._site is None,
        )
        if is_first:
            self._ledger.purchases.let_go()
        site = self._site or Site(
            self._folder.name, self._x, self._own_parts(), self._draft
        )
        if is_first or is_new:
            site.leave(self._ledger.purchases.left())
        self._site = site
        return site

    def _own_parts(self) -> Parts:
        """With secret draws of this run, the same after a restart: from the site's own key."""
        draws = hashlib.sha256(
            b"draws|" + self._ledger.store.run.encode() + self._folder.keys.seal
        )
        return replace(self._parts, secret=int.from_bytes(draws.digest()))

    def _office(self, run: str) -> Office:
        return Office(
            self._here(),
            self._ledger,
            self._agreement,
            *self._tests,
            run,
            self._folder.keys.seal_public,
            self._folder.path,
        )

    @contextmanager
    def _fresh_held(self, site: Site, request: Request) -> Iterator[None]:
        """In the first round after a query, where the recipe says ``fresh_first``: the labels that
        it bought validate and do not train."""
        is_round = request.owner == "training" and request.key.split("/")[-2:-1] == ["0"]
        before = site.held.clone()
        if self._agreement.recipe.fresh_first and request.cycle and is_round:
            bought = self._ledger.store.written(site.id)
            site.held[
                [label.row for label in bought if label.cycle == request.cycle - 1]
            ] = True
        try:
            yield
        finally:
            site.held = before


def rows_to_score(agreement: Agreement, tests: SiteRows | None) -> tuple[Tensor, Tensor]:
    """Test rows as models see them, (m, ...), and their labels, (m,); none where there are none."""
    if tests is None:
        return agreement.example.x[:0], torch.zeros(0)
    return tests.x, torch.tensor(tests.labels, dtype=torch.float32)
