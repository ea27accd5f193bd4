"""All sites in this process, and an oracle with every label: the simulator's runtime."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import final

import torch
from torch import Tensor

from fallow.core.aggregation import sum_whole
from fallow.core.client import (
    Declaration,
    find_not_finite,
    find_wrong_form,
)
from fallow.core.disclosure import payload
from fallow.core.messages import Delivered, Request, payload_of
from fallow.core.refusal import words_stay
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, Values
from fallow.core.values import resolve_dims
from fallow.engine.executors import Executor
from fallow.sites.replies import reply_to_step
from fallow.sites.site import LocalSite
from fallow.sites.store import PeerMessage

Routes = Mapping[SiteId, Sequence[SiteId]]
"""Routes of a relay: the senders of each receiver."""


@final
@dataclass
class InProcessChannel:
    """Transport that calls sites in this process and trains the fits of one exchange together."""

    members: dict[SiteId, LocalSite]
    executor: Executor

    @property
    def sites(self) -> tuple[SiteId, ...]:
        """Return the names of the sites, sorted."""
        return tuple(sorted(self.members))

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        """Send each site its request and deliver relayed replies to their receivers."""
        before = collect_costs(self.members)
        replies = perform(self.members, self.executor, requests)
        check_replies(self.members, requests, replies)
        cost = find_largest_cost(before, collect_costs(self.members))
        down = sum(payload_of(request) for request in requests.values())
        if is_relay(requests):
            sizes = deliver(self.members, requests, replies, routes or {})
            # sent from site to site, so it counts in both directions
            passed = sum_whole(sizes, "bytes")
            return Delivered(
                replies=sizes, bytes_up=passed, bytes_down=down + passed, epsilon=cost
            )
        up = sum(payload(reply) for reply in replies.values())
        return Delivered(replies=replies, bytes_up=up, bytes_down=down, epsilon=cost)


def check_replies(
    members: Mapping[SiteId, LocalSite],
    requests: Mapping[SiteId, Request],
    replies: Mapping[SiteId, Values],
) -> None:
    """Raise ValueError for a reply with other fields, types or shapes than declared, or with NaN.

    Joint bounds of several fields are checked at real sites and in tests.
    """
    known: dict[tuple[str, str], Declaration | None] = {}
    sizes: dict[str, int] = {}
    for name, request in requests.items():
        step = request.steps[-1]
        if step.kind not in ("sum", "each", "relay") or step.masked is not None:
            continue
        site = members[name]
        function = (request.owner, step.function)
        if function not in known:
            known[function] = site.parts.declarations[request.owner].get(step.function)
        declaration = known[function]
        if declaration is None or declaration.returns is None:
            continue
        if not sizes:  # equal for all sites
            sizes = resolve_dims(site.parts.layout, site.parts.classes, len(members))
        why = find_wrong_form(declaration.returns, replies[name], sizes)
        if why is None and step.kind != "sum":  # sums are checked as they are added
            why = find_not_finite(declaration.returns, replies[name], sizes)
        if why is not None:
            method = type(site.method(request.owner)).__name__
            raise ValueError(f"{method}.{step.function} at site {name}: {why}")


def is_relay(requests: Mapping[SiteId, Request]) -> bool:
    """Return whether replies go to other sites only."""
    steps = chain.from_iterable(request.steps for request in requests.values())
    return any(step.kind == "relay" for step in steps)


def collect_costs(members: Mapping[SiteId, LocalSite]) -> dict[SiteId, dict[str, float]]:
    """Return the privacy budget that every site has spent, by exchange."""
    return {name: site.spent for name, site in members.items()}


def find_largest_cost(
    before: Mapping[SiteId, Mapping[str, float]],
    after: Mapping[SiteId, Mapping[str, float]],
) -> float:
    """Return the largest privacy budget that one site spent between two states."""
    largest = 0.0
    for site, releases in after.items():
        new = releases.keys() - before[site].keys()
        # exact, so the order does not matter
        added = math.fsum(releases[key] for key in new)
        largest = max(largest, added)
    return largest


def perform(
    members: Mapping[SiteId, LocalSite],
    executor: Executor,
    requests: Mapping[SiteId, Request],
) -> dict[SiteId, Values]:
    """Perform the requests position by position, so that equal fits are trained together."""
    replies: dict[SiteId, Values] = {site: {} for site in requests}
    n_steps = max((len(request.steps) for request in requests.values()), default=0)
    for position in range(n_steps):
        fits: dict[tuple[str, TrainingConfig], list[LocalSite]] = {}
        for name in sorted(requests):
            request = requests[name]
            if position >= len(request.steps):
                continue
            site = members[name]
            step = request.steps[position]
            if step.kind != "fit":
                replies[name] = reply_to_step(site, step, request)
                continue
            training_config = site.accept_fit(step, request)
            if training_config is not None:
                fits.setdefault((step.function, training_config), []).append(site)
        for (_, training_config), group in fits.items():
            _train(executor, training_config, group, requests=requests, position=position)
    return replies


def _train(
    executor: Executor,
    training_config: TrainingConfig,
    group: list[LocalSite],
    *,
    requests: Mapping[SiteId, Request],
    position: int,
) -> None:
    """Train the sites of a group together; their steps at this position are the same fit."""
    steps = {site.id: requests[site.id].steps[position] for site in group}
    first = group[0]
    request = requests[first.id]
    method = first.local(steps[first.id], request)
    jobs = [site.job(steps[site.id], requests[site.id]) for site in group]
    with words_stay():
        results = executor.fit(method, training_config, request.round, jobs)
    for site, result in zip(group, results, strict=True):
        site.remember_fit(steps[site.id], requests[site.id], result)


def deliver(
    members: Mapping[SiteId, LocalSite],
    requests: Mapping[SiteId, Request],
    replies: Mapping[SiteId, Values],
    routes: Routes,
) -> dict[SiteId, Values]:
    """Deliver relayed replies to their receivers; the server side learns sizes only."""
    n_receivers = Counter(chain.from_iterable(routes.values()))  # by sender
    messages: dict[SiteId, PeerMessage] = {}
    for sender in n_receivers:
        state = {name: torch.as_tensor(v) for name, v in replies[sender].items()}
        messages[sender] = PeerMessage(state)
    # exactly one
    functions = {requests[sender].steps[-1].function for sender in n_receivers}
    for function in functions:
        for to, senders in routes.items():
            members[to].receive(function, {sender: messages[sender] for sender in senders})
    sizes: dict[SiteId, Values] = {}
    for sender, reply in replies.items():
        sizes[sender] = {"bytes": payload(reply) * n_receivers[sender]}
    return sizes


@final
@dataclass
class Simulated:
    """Hidden labels of a simulation, with a counter.

    ``hidden``: labels of all examples of each site, (n,). ``limit``: maximum number of labels, per
    site or (as a number) for all sites together; None for no limit.
    """

    hidden: Mapping[SiteId, Tensor]
    limit: Mapping[SiteId, int] | int | None = None
    spent: dict[SiteId, int] = field(default_factory=dict)
    _replies: dict[SiteId, dict[int, float]] = field(default_factory=dict)

    def submit(self, queries: Mapping[SiteId, Tensor]) -> None:
        """Request the labels of examples.

        Raises ValueError if a site would exceed its label budget.
        """
        for site, rows in queries.items():
            left = self._count_left(site)
            if left is not None and len(rows) > left:
                raise ValueError(
                    f"site {site} requests {len(rows)} labels, but its label budget "
                    f"has {left} left"
                )
            self.spent[site] = self.spent.get(site, 0) + len(rows)
            replies = self._replies.setdefault(site, {})
            values = self.hidden[site][rows].tolist()
            for row, value in zip(rows.tolist(), values, strict=True):
                replies[row] = float(value)

    def _count_left(self, site: SiteId) -> int | None:
        """Return how many labels a site may still request; None for no limit."""
        if self.limit is None:
            return None
        if isinstance(self.limit, int):
            return self.limit - sum(self.spent.values())
        return self.limit[site] - self.spent.get(site, 0)

    def poll(self) -> dict[SiteId, dict[int, float]]:
        """Return the labels since the last call: site -> position -> label."""
        replies = self._replies
        self._replies = {}
        return replies

    def cancel(self, site: SiteId) -> int:
        """Cancel a site's open labeling tasks, refund their budget, and return their number."""
        count = len(self._replies.pop(site, {}))
        self.spent[site] = self.spent.get(site, 0) - count
        return count

    def totals(self, site: SiteId, classes: int) -> Tensor:
        """Return the number of labels of each class at a site, (C,), for reports and upper bounds
        only."""
        return torch.bincount(self.hidden[site].long().clamp_min(0), minlength=classes)
