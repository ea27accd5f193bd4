"""The door: a method's server half talks to sites through `Ask` and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fallow.core.digests import digest_exchange
from fallow.core.disclosure import Disclosure, count_relayed_answers
from fallow.core.messages import (
    KEYS,
    Delivered,
    ExchangeEntry,
    Kind,
    Masked,
    Request,
    Step,
    Steps,
    To,
)
from fallow.core.totals import Implausible, sum_answers, sum_whole
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Answer, SiteId


class Carrier(Protocol):
    """Who carries requests to sites (a runtime).

    ``routes`` (relay only): which senders' answers each site receives, sealed.
    """

    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    def exchange(
        self,
        requests: Mapping[SiteId, Request],
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
    ) -> Delivered: ...


class Masking(Protocol):
    """The server half of secure sums."""

    def check(self, sites: Sequence[SiteId], verb: str) -> None: ...  # raises if too few
    def total(
        self, answers: Mapping[SiteId, Answer], verb: str, bound: float | None
    ) -> (
        Answer
    ): ...  # raises unless the masks of all parts cancel, `Implausible` to begin again


class Journal(Protocol):
    """Where exchanges are remembered, one transaction each."""

    def transaction(self) -> AbstractContextManager[None]: ...
    def recall(self, key: str, digest: str) -> ExchangeEntry | None: ...
    def record(self, key: str, digest: str, entry: ExchangeEntry) -> None: ...


@dataclass
class Ask:
    """The six operations of the door.

    ``ask.cohort``: the sites of this query or round, fixed when it starts.  An answer that the
    journal holds is returned without asking again; that is how a resumed run replays.
    ``masking``: sums are secure sums.
    ``needs_all``: as in `Request`, for what comes next.
    """

    carrier: Carrier
    journal: Journal
    disclosure: Disclosure
    key: str
    owner: str = "query"
    cycle: int = 0
    round: int = 0
    cohort: tuple[SiteId, ...] = ()
    reveals: Mapping[str, str] = field(default_factory=dict)
    masking: Masking | None = None
    needs_all: bool = False
    _waiting: Steps = field(default_factory=list)
    _turn: int = 0

    def __post_init__(self) -> None:
        self.cohort = tuple(sorted(self.cohort or self.carrier.sites))

    def sum(
        self, verb: str, bound: float | None = None, **tensors: Any
    ) -> dict[str, Tensor]:
        """Key-wise totals in float64 over the cohort: the server half sees totals only.

        ``sites`` in the result is how many sites contributed.  ``bound``: the largest absolute
        value a site may add; a larger one is refused with the site and the field.
        """
        if self.masking is not None:
            totals = self._masked_sum(self.masking, verb, bound, tensors)
        else:
            totals = self._exchange("sum", verb, None, tensors, bound=bound)[""]
        return {name: torch.as_tensor(value) for name, value in totals.items()}

    def each(self, verb: str, to: To | None = None, **tensors: Any) -> dict[SiteId, Answer]:
        """Every site's answer: the server sees each."""
        return self._exchange("each", verb, to, tensors)

    def keep(self, verb: str, to: To | None = None, **tensors: Any) -> int:
        """The answer stays in the site's memory until the cycle ends: the server sees a count."""
        return sum_whole(self._exchange("keep", verb, to, tensors), "count")

    def relay(
        self, verb: str, routes: Mapping[SiteId, Sequence[SiteId]], **tensors: Any
    ) -> int:
        """Answers go from site to site, sealed: the server sees who and how many bytes (returned).

        routes: receiver -> senders.  A receiver finds ``memory["<verb>/<sender>"]``.
        """
        senders = set().union(*routes.values())
        to: To = {site: {} for site in sorted(senders)}
        return sum_whole(self._exchange("relay", verb, to, tensors, routes=routes), "bytes")

    def fit(
        self,
        training_config: TrainingConfig | None,
        into: str,
        to: To | None = None,
        **state: Any,
    ) -> None:
        """Local training by the engine; reveals nothing until a verb sends the model.

        Nothing comes back, so the order waits for the next exchange and travels with it.
        ``training_config=None`` hands the model over without training it.  A query need not send
        a model: the global one was handed over before it began.
        """
        self._waiting.append((Step("fit", into, dict(state), training_config), to))

    def flush(self) -> None:
        """Send what still waits; the caller of a method does this when the method returns."""
        if self._waiting:
            self._exchange("fit", "", None, {})

    def _masked_sum(
        self, masking: Masking, verb: str, bound: float | None, args: Answer
    ) -> Answer:
        """Public keys, then masked parts.  When a site falls silent all of it begins again among
        the others with new keys: what was masked for the old cohort is never unmasked.  An exchange
        that too few answer is not recorded, so that a resumed run asks again."""
        attempt = Masked(f"{self.key}/{self._turn}", 0, bound)
        cohort = self.cohort
        masking.check(cohort, verb)
        while True:
            to: To = {site: {} for site in cohort}
            with self.journal.transaction():
                shown = self._exchange("each", KEYS, to, {}, masked=attempt)
                masking.check(sorted(shown), verb)

            keys = {site: torch.as_tensor(shown[site]["key"]) for site in sorted(shown)}
            to = {site: {} for site in keys}
            masked = replace(attempt, keys=keys)
            with self.journal.transaction():
                answers = self._exchange("sum", verb, to, args, bound=bound, masked=masked)
                if "" in answers:
                    return answers[""]
                masking.check(sorted(answers), verb)

            cohort = tuple(sorted(answers))
            attempt = replace(attempt, attempt=attempt.attempt + 1)

    def _requests(
        self, steps: Steps, key: str, bound: float | None
    ) -> dict[SiteId, Request]:
        """What each site is sent: the steps that are for it, with arguments of its own."""
        requests = {}
        for site in self.cohort:
            own: list[Step] = []
            for step, to in steps:
                if to is None:
                    own.append(step)
                elif site in to:
                    own.append(replace(step, args={**step.args, **to[site]}))
            if own:
                requests[site] = Request(
                    key=key,
                    owner=self.owner,
                    cycle=self.cycle,
                    round=self.round,
                    steps=tuple(own),
                    bound=bound,
                    needs_all=self.needs_all,
                )
        return requests

    def _exchange(
        self,
        kind: Kind,
        verb: str,
        to: To | None,
        args: Answer,
        bound: float | None = None,
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
        masked: Masked | None = None,
    ) -> dict[SiteId, Answer]:
        """masked: of a secure sum, what its sites need to know."""
        steps = list(self._waiting)
        if verb:
            steps.append((Step(kind, verb, dict(args), masked=masked), to))
        key = f"{self.key}/{self._turn}"
        requests = self._requests(steps, key, bound)
        self._waiting = []
        self._turn += 1

        digest = digest_exchange(steps, self.cohort, bound, routes)
        entry = self.journal.recall(key, digest)
        if entry is None:
            with self.journal.transaction():
                delivered = self.carrier.exchange(requests, routes)
                asked: set[SiteId] = set()  # whoever is not in `to` only got what waited
                if verb and to is None:
                    asked = set(requests)
                elif verb and to is not None:
                    asked = set(to)
                answers = {}
                for site in sorted(delivered.answers):
                    if site in asked:
                        answers[site] = delivered.answers[site]
                if kind == "sum":
                    answers = self._add_up(answers, verb, to, bound, masked is not None)
                entry = {
                    "answers": answers,
                    "up": delivered.bytes_up,
                    "down": delivered.bytes_down,
                }
                if delivered.epsilon:
                    entry["epsilon"] = delivered.epsilon
                self.journal.record(key, digest, entry)

        what = self.reveals.get(verb, "nothing")
        if verb == KEYS and masked is not None:
            what = "public keys"
        passed = None
        if routes is not None:
            passed = count_relayed_answers(routes)
        self.disclosure.add(
            kind,
            verb or "fit",
            what,
            up=entry["up"],
            down=entry["down"],
            sites=len(requests),
            epsilon=entry.get("epsilon", 0.0),
            masked=kind == "sum" and masked is not None,
            passed=passed,
        )
        return entry["answers"]

    def _add_up(
        self,
        replies: dict[SiteId, Answer],
        verb: str,
        to: To | None,
        bound: float | None,
        is_masked: bool,
    ) -> dict[SiteId, Answer]:
        """The totals under ``""``; of a secure sum that misses a site, or whose total cannot be,
        only who answered: then it begins again."""
        if not is_masked or self.masking is None:
            return {"": sum_answers(replies, verb, bound)}
        if replies.keys() != (to or {}).keys():
            return {site: {} for site in replies}
        try:
            return {"": self.masking.total(replies, verb, bound)}
        except Implausible:
            return {site: {} for site in replies}
