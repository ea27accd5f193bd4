"""The door: a method's server half talks to sites through `Ask` and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from fallow.core.disclosure import Disclosure, payload
from fallow.core.plan import Plan
from fallow.core.types import Answer, SiteId

Kind = Literal["fit", "sum", "each", "keep", "relay"]
To = Mapping[SiteId, Answer]


@dataclass(frozen=True)
class Step:
    """One thing a site is asked to do: run a verb of a method, or train a model."""

    kind: Kind
    verb: str  # the verb, or for "fit" the name under which the site remembers the model
    args: Answer
    plan: Plan | None = None


@dataclass(frozen=True)
class Request:
    """Everything one site is sent in one exchange."""

    key: str  # the same key never means two things
    owner: str  # whose verbs: "query" or "training"
    cycle: int
    round: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Delivered:
    """What came back: an answer per site, and the bytes that crossed in each direction."""

    answers: dict[SiteId, Answer]
    bytes_up: int
    bytes_down: int


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


class Journal(Protocol):
    """Where exchanges are remembered, one transaction each."""

    def transaction(self) -> AbstractContextManager[None]: ...
    def recall(self, key: str, digest: str) -> dict[str, Any] | None: ...
    def record(self, key: str, digest: str, entry: dict[str, Any]) -> None: ...


@dataclass
class Ask:
    """The six operations of the door.

    ``ask.cohort``: the sites of this query or round, fixed when it starts.  An answer that the
    journal holds is returned without asking again; that is how a resumed run replays.
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
    _waiting: list[tuple[Step, To | None]] = field(default_factory=list)
    _turn: int = 0

    def __post_init__(self) -> None:
        self.cohort = tuple(sorted(self.cohort or self.carrier.sites))

    def sum(self, verb: str, bound: float | None = None, **tensors: Any) -> dict[str, Tensor]:
        """Key-wise totals in float64 over the cohort: the server half sees totals only.

        ``sites`` in the result is how many sites contributed.  ``bound``: the largest absolute
        value a site may add; a larger one is refused with the site and the field.
        """
        answers = self._exchange("sum", verb, None, tensors, bound=bound)
        return {name: torch.as_tensor(value) for name, value in answers[""].items()}

    def each(self, verb: str, to: To | None = None, **tensors: Any) -> dict[SiteId, Answer]:
        """Every site's answer: the server sees each."""
        return self._exchange("each", verb, to, tensors)

    def keep(self, verb: str, to: To | None = None, **tensors: Any) -> int:
        """The answer stays in the site's memory until the cycle ends: the server sees a count."""
        return whole(self._exchange("keep", verb, to, tensors), "count")

    def relay(self, verb: str, routes: Mapping[SiteId, Sequence[SiteId]], **tensors: Any) -> int:
        """Answers go from site to site, sealed: the server sees who and how many bytes (returned).

        routes: receiver -> senders.  A receiver finds ``memory["<verb>/<sender>"]``.
        """
        senders = sorted({s for froms in routes.values() for s in froms})
        to: To = {site: {} for site in senders}
        return whole(self._exchange("relay", verb, to, tensors, routes=routes), "bytes")

    def fit(self, plan: Plan | None, into: str, to: To | None = None, **state: Any) -> None:
        """Local training by the engine; reveals nothing until a verb sends the model.

        Nothing comes back, so the order waits for the next exchange and travels with it.
        ``plan=None`` hands the model over without training it.
        """
        self._waiting.append((Step("fit", into, dict(state), plan), to))

    def flush(self) -> None:
        """Send what still waits; the caller of a method does this when the method returns."""
        if self._waiting:
            self._exchange("fit", "", None, {})

    def _requests(self, steps: list[tuple[Step, To | None]], key: str) -> dict[SiteId, Request]:
        requests = {}
        for site in self.cohort:
            own = tuple(
                Step(s.kind, s.verb, {**s.args, **(to[site] if to else {})}, s.plan)
                for s, to in steps
                if to is None or site in to
            )
            if own:
                requests[site] = Request(key, self.owner, self.cycle, self.round, own)
        return requests

    def _exchange(
        self,
        kind: Kind,
        verb: str,
        to: To | None,
        args: Answer,
        bound: float | None = None,
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
    ) -> dict[SiteId, Answer]:
        last = [(Step(kind, verb, dict(args)), to)] if verb else []
        key = f"{self.key}/{self._turn}"
        steps = [*self._waiting, *last]
        requests = self._requests(steps, key)
        self._waiting, self._turn = [], self._turn + 1
        digest = digest_of(steps, self.cohort, bound, routes)
        entry = self.journal.recall(key, digest)
        if entry is None:
            with self.journal.transaction():
                sent = self.carrier.exchange(requests, routes)
                replies = {s: sent.answers[s] for s in sorted(sent.answers)} if verb else {}
                answers = {"": total(replies, verb, bound)} if kind == "sum" else replies
                entry = {"answers": answers, "up": sent.bytes_up, "down": sent.bytes_down}
                self.journal.record(key, digest, entry)
        what = self.reveals.get(verb, "nothing")
        name = verb or "fit"
        self.disclosure.add(kind, name, what, entry["up"], entry["down"], len(requests))
        found: dict[SiteId, Answer] = entry["answers"]
        return found


def whole(answers: Mapping[SiteId, Answer], name: str) -> int:
    """The total of a whole number that every site answered; anything else is refused."""
    result = 0
    for site, answer in answers.items():
        value = answer.get(name)
        if not isinstance(value, int):
            raise ValueError(f"site {site} answered {name} with {value!r}, not a whole number")
        result += value
    return result


def total(answers: Mapping[SiteId, Answer], verb: str, bound: float | None) -> Answer:
    """The key-wise float64 total over sites in sorted order; bad addends are named."""
    result: dict[str, Tensor] = {}
    sites = sorted(answers)
    for site in sites:
        if result and answers[site].keys() != result.keys():
            raise ValueError(
                f"site {site} answered {verb!r} with {sorted(answers[site])}, others with "
                f"{sorted(result)}: all sites must run the same version"
            )
        for name, value in answers[site].items():
            addend = torch.as_tensor(value, dtype=torch.float64)
            check_addend(site, verb, name, addend, bound)
            if name in result and result[name].shape != addend.shape:
                raise ValueError(
                    f"site {site} answered {verb!r} with {name} of shape {tuple(addend.shape)}, "
                    f"others with {tuple(result[name].shape)}: all sites must use one model"
                )
            result[name] = result[name] + addend if name in result else addend
    return {**result, "sites": torch.tensor(float(len(sites)), dtype=torch.float64)}


def check_addend(site: SiteId, verb: str, name: str, value: Tensor, bound: float | None) -> None:
    """Raise when an addend is not finite or beyond its declared bound."""
    if not bool(torch.isfinite(value).all()):
        raise ValueError(
            f"site {site} answered {verb!r} with {name} that is NaN or infinite: its training "
            "diverged or its data is damaged; lower the learning rate or check the site's rows"
        )
    if bound is not None and bool((value.abs() > bound).any()):
        raise ValueError(f"site {site} answered {verb!r} with {name} beyond the bound {bound}")


def digest_of(
    steps: Sequence[tuple[Step, To | None]],
    cohort: Sequence[SiteId],
    bound: float | None = None,
    routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
) -> str:
    """A digest of what is asked of whom: the same key with other contents is noticed."""
    ways = sorted((to, list(senders)) for to, senders in (routes or {}).items())
    h = hashlib.sha256(repr((list(cohort), bound, ways)).encode())
    for step, to in steps:
        asked = None if to is None else sorted(to)
        h.update(repr((step.kind, step.verb, step.plan, asked)).encode())
        for args in (step.args, *((to or {})[site] for site in asked or [])):
            _hash_args(h, args)
    return h.hexdigest()


def _hash_args(h: Any, args: Answer) -> None:
    for name in sorted(args):
        value = args[name]
        h.update(f"|{name}=".encode())
        if isinstance(value, Tensor):
            h.update(str((value.dtype, tuple(value.shape))).encode())
            h.update(value.detach().contiguous().numpy().tobytes())
        else:
            h.update(repr(value).encode())


def payload_of(request: Request) -> int:
    """Bytes of tensors and numbers that a request carries to its site."""
    return sum(payload(step.args) for step in request.steps)
