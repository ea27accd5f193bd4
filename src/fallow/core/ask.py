"""Exchanges with sites: the server side of an algorithm uses `Ask` and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fallow.core.aggregation import Implausible, sum_replies, sum_whole
from fallow.core.client import ClientCall, name_call
from fallow.core.disclosure import Disclosure, count_relayed_messages
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import (
    KEYS,
    Delivered,
    ExchangeEntry,
    Kind,
    Masked,
    Request,
    StateName,
    Step,
    Steps,
    To,
    digest_exchange,
    list_replaced,
)
from fallow.core.refusal import RunHalted
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, Values


class Channel(Protocol):
    """Transport of requests to sites.

    ``routes`` (relay only): the senders whose encrypted replies each site receives.
    """

    @property
    def sites(self) -> tuple[SiteId, ...]: ...
    def exchange(
        self,
        requests: Mapping[SiteId, Request],
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
    ) -> Delivered: ...


class Masking(Protocol):
    """Server side of secure aggregation."""

    def check(
        self, sites: Sequence[SiteId], function_name: str
    ) -> None: ...  # raises if too few
    def total(
        self,
        replies: Mapping[SiteId, Values],
        owner: str,
        function_name: str,
        bound: float | None,
    ) -> Values: ...  # raises unless all masks cancel, with `Implausible` for a retry


class ExchangeLog(Protocol):
    """Event log of exchanges, one transaction each.

    ``replaces``: states of sites that the transaction replaces before it reads them.
    """

    def transaction(
        self, replaces: Collection[StateName] = ()
    ) -> AbstractContextManager[None]: ...
    def recall(self, key: ExchangeKey, digest: str) -> ExchangeEntry | None: ...
    def record(self, key: ExchangeKey, digest: str, entry: ExchangeEntry) -> None: ...


@dataclass
class Ask:
    """The six operations with which the server side communicates with sites.

    An operation takes a client function of an algorithm, such as ``ask.sum(self.share)``.  Only its
    declared name is sent: a site runs the function of its own instance.

    ``ask.cohort`` contains the sites of this query or round and is fixed at its start.  A reply in
    the event log is returned without an exchange; this is how a resumed run replays.  ``key`` is
    that of the first exchange.  ``masking``: use secure aggregation.
    ``needs_all``: see `Request`; applies to the next exchanges.
    """

    channel: Channel
    event_log: ExchangeLog
    disclosure: Disclosure
    key: ExchangeKey
    owner: str = "query"
    cycle: int = 0
    cohort: tuple[SiteId, ...] = ()
    reveals: Mapping[str, str] = field(default_factory=dict)
    masking: Masking | None = None
    needs_all: bool = False
    _waiting: Steps = field(default_factory=list)
    _turn: int = 0

    def __post_init__(self) -> None:
        self.cohort = tuple(sorted(self.cohort or self.channel.sites))

    @property
    def round(self) -> int:
        """Return the round of training, or 0 outside a round."""
        return self.key.round

    def sum(
        self, function: ClientCall, bound: float | None = None, **tensors: Any
    ) -> dict[str, Tensor]:
        """Return the key-wise aggregates in float64 over the cohort; contributions stay hidden.

        ``sites`` in the result is the number of contributing sites.  ``bound``: the largest
        absolute value that a site may contribute; a larger one is rejected with the names of the
        site and the field.
        """
        function_name = name_call(function, "sum")
        if self.masking is not None:
            totals = self._masked_sum(self.masking, function_name, bound, tensors)
        else:
            totals = self._exchange("sum", function_name, None, tensors, bound=bound)[""]
        return {name: torch.as_tensor(value) for name, value in totals.items()}

    def each(
        self, function: ClientCall, to: To | None = None, **tensors: Any
    ) -> dict[SiteId, Values]:
        """Return the reply of every site, which the server side sees."""
        return self._exchange("each", name_call(function, "each"), to, tensors)

    def keep(self, function: ClientCall, to: To | None = None, **tensors: Any) -> int:
        """Store the reply in the site's memory until the end of the cycle; return a count."""
        function_name = name_call(function, "keep")
        return sum_whole(self._exchange("keep", function_name, to, tensors), "count")

    def relay(
        self,
        function: ClientCall,
        routes: Mapping[SiteId, Sequence[SiteId]],
        **tensors: Any,
    ) -> int:
        """Send encrypted replies from site to site; return the number of bytes.

        The server side sees senders, receivers and sizes.  routes: receiver -> senders.  A receiver
        reads ``memory["<name>/<sender>"]``.
        """
        function_name = name_call(function, "relay")
        senders = set().union(*routes.values())
        to: To = {site: {} for site in sorted(senders)}
        return sum_whole(
            self._exchange("relay", function_name, to, tensors, routes=routes), "bytes"
        )

    def fit(
        self,
        training_config: TrainingConfig | None,
        into: str,
        to: To | None = None,
        **state: Any,
    ) -> None:
        """Train locally with the engine; nothing is disclosed until the model is sent.

        There is no reply, so the instruction is sent with the next exchange.
        ``training_config=None`` sends the model without training it.  A query need not send a
        model: the global one was sent before it began.
        """
        self._waiting.append((Step("fit", into, dict(state), training_config), to))

    def flush(self) -> None:
        """Send pending instructions; the caller of an algorithm does this when it returns."""
        if self._waiting:
            self._exchange("fit", "", None, {})

    def _masked_sum(
        self, masking: Masking, function_name: str, bound: float | None, args: Values
    ) -> Values:
        """Exchange public keys, then masked contributions.

        When a site does not reply, the exchange is repeated with the others and new keys:
        contributions masked for the previous cohort are never unmasked.  An exchange with too few
        replies is not recorded, so a resumed run repeats it.
        """
        attempt = Masked(replace(self.key, turn=self._turn), 0, bound)
        cohort = self.cohort
        masking.check(cohort, function_name)
        while True:
            to: To = {site: {} for site in cohort}
            with self.event_log.transaction():
                shown = self._exchange("each", KEYS, to, {}, masked=attempt)
                masking.check(sorted(shown), function_name)

            keys = {site: torch.as_tensor(shown[site]["key"]) for site in sorted(shown)}
            to = {site: {} for site in keys}
            masked = replace(attempt, keys=keys)
            with self.event_log.transaction():
                replies = self._exchange(
                    "sum", function_name, to, args, bound=bound, masked=masked
                )
                if "" in replies:
                    return replies[""]
                masking.check(sorted(replies), function_name)

            cohort = tuple(sorted(replies))
            attempt = replace(attempt, attempt=attempt.attempt + 1)

    def _requests(
        self, steps: Steps, key: ExchangeKey, bound: float | None
    ) -> dict[SiteId, Request]:
        """Return the request of each site: its steps, with its own arguments."""
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
        function_name: str,
        to: To | None,
        args: Values,
        bound: float | None = None,
        routes: Mapping[SiteId, Sequence[SiteId]] | None = None,
        masked: Masked | None = None,
    ) -> dict[SiteId, Values]:
        """Run one exchange.  masked: parameters of secure aggregation for the sites."""
        steps = list(self._waiting)
        if function_name:
            steps.append((Step(kind, function_name, dict(args), masked=masked), to))
        key = replace(self.key, turn=self._turn)
        requests = self._requests(steps, key, bound)
        self._waiting = []
        self._turn += 1

        digest = digest_exchange(steps, self.cohort, bound, routes)
        entry = self.event_log.recall(key, digest)
        if entry is None:
            with self.event_log.transaction(list_replaced(requests)):
                delivered = self.channel.exchange(requests, routes)
                asked: set[SiteId] = set()  # others only received pending instructions
                if function_name:
                    asked = set(requests)
                if function_name and to is not None:
                    asked = set(to)
                replies = {
                    site: reply
                    for site, reply in sorted(delivered.replies.items())
                    if site in asked
                }
                if self.needs_all and len(replies) < len(self.cohort):
                    raise RunHalted(
                        f"{len(replies)} of {len(self.cohort)} sites replied to {function_name!r}, "
                        "and all are needed; run again with --resume when they are connected "
                        "(coordinate start resumes without the option)"
                    )
                if kind == "sum":
                    replies = self._add_up(
                        replies, function_name, to, bound, masked is not None
                    )
                entry = {
                    "replies": replies,
                    "up": delivered.bytes_up,
                    "down": delivered.bytes_down,
                }
                if delivered.epsilon:
                    entry["epsilon"] = delivered.epsilon
                self.event_log.record(key, digest, entry)

        what = self.reveals.get(function_name, "nothing")
        if function_name == KEYS and masked is not None:
            what = "public keys"
        passed = None
        if routes is not None:
            passed = count_relayed_messages(routes)
        self.disclosure.add(
            kind,
            function_name or "fit",
            what,
            up=entry["up"],
            down=entry["down"],
            sites=len(requests),
            epsilon=entry.get("epsilon", 0.0),
            masked=kind == "sum" and masked is not None,
            passed=passed,
        )
        return entry["replies"]

    def _add_up(
        self,
        replies: dict[SiteId, Values],
        function_name: str,
        to: To | None,
        bound: float | None,
        is_masked: bool,
    ) -> dict[SiteId, Values]:
        """Return the aggregates under ``""``.

        If secure aggregation misses a site, or its aggregate is not plausible, return the sites
        that replied, for a retry.
        """
        if not is_masked or self.masking is None:
            return {"": sum_replies(replies, function_name, bound)}
        if replies.keys() != (to or {}).keys():
            return {site: {} for site in replies}
        try:
            return {"": self.masking.total(replies, self.owner, function_name, bound)}
        except Implausible:
            return {site: {} for site in replies}


def sum_of_all(
    ask: Ask, function: ClientCall, bound: float | None = None, **args: Any
) -> dict[str, Tensor]:
    """Run `Ask.sum` with contributions from all sites.

    A transport waits for the last site until its timeout.  Raises RunHalted if a site did not
    reply.  The exchange is then not recorded, so a resumed run repeats it.
    """
    with _needing_all(ask):
        return ask.sum(function, bound, **args)


def each_of_all(ask: Ask, function: ClientCall, **args: Any) -> dict[SiteId, Values]:
    """Run `Ask.each` with replies from all sites, like `sum_of_all`."""
    with _needing_all(ask):
        return ask.each(function, **args)


@contextmanager
def _needing_all(ask: Ask) -> Iterator[None]:
    before = ask.needs_all
    ask.needs_all = True
    try:
        yield
    finally:
        ask.needs_all = before
