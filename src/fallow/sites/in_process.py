"""All sites in this process: the simulator's runtime."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch

from fallow.core.disclosure import payload
from fallow.core.local import LocalTraining
from fallow.core.messages import Delivered, Request, payload_of
from fallow.core.plan import Plan
from fallow.core.refusal import words_stay
from fallow.core.totals import whole
from fallow.core.types import Answer, SiteId
from fallow.engine import Fitted, Job
from fallow.sites.answering import answer_step
from fallow.sites.site import Site
from fallow.sites.store import RelayedMessage


class Executor(Protocol):
    """Trains jobs of several sites."""

    def fit(
        self, method: LocalTraining, plan: Plan, round_: int, jobs: Sequence[Job]
    ) -> list[Fitted]: ...


Routes = Mapping[SiteId, Sequence[SiteId]]


@final
@dataclass
class InProcess:
    """Calls sites directly; fits of one exchange go to the executor together."""

    members: dict[SiteId, Site]
    executor: Executor

    @property
    def sites(self) -> tuple[SiteId, ...]:
        return tuple(sorted(self.members))

    def exchange(
        self, requests: Mapping[SiteId, Request], routes: Routes | None = None
    ) -> Delivered:
        before = spent(self.members)
        answers = perform(self.members, self.executor, requests)
        cost = dearest(before, spent(self.members))
        down = sum(payload_of(r) for r in requests.values())
        if is_relay(requests):
            sizes = deliver(self.members, requests, answers, routes or {})
            passed = whole(sizes, "bytes")  # from site to site: up and down
            return Delivered(sizes, passed, down + passed, cost)
        return Delivered(answers, sum(payload(a) for a in answers.values()), down, cost)


def is_relay(requests: Mapping[SiteId, Request]) -> bool:
    """Whether answers go to other sites: the server half has none of them, with or without a
    receiver."""
    return any(
        step.kind == "relay" for request in requests.values() for step in request.steps
    )


def spent(members: Mapping[SiteId, Site]) -> dict[SiteId, dict[str, float]]:
    """What every site has spent on noise so far, by exchange."""
    return {name: site.spent for name, site in members.items()}


def dearest(
    before: Mapping[SiteId, Mapping[str, float]],
    after: Mapping[SiteId, Mapping[str, float]],
) -> float:
    """The most that any site spent in between."""
    costs = (
        math.fsum(epsilon for key, epsilon in book.items() if key not in before[site])
        for site, book in after.items()
    )
    return max(costs, default=0.0)


def perform(
    members: Mapping[SiteId, Site], executor: Executor, requests: Mapping[SiteId, Request]
) -> dict[SiteId, Answer]:
    """Do what the requests ask, position by position, so that equal fits are trained together."""
    answers: dict[SiteId, Answer] = {site: {} for site in requests}
    for at in range(max((len(r.steps) for r in requests.values()), default=0)):
        fits: dict[tuple[str, Plan], list[Site]] = {}
        for name in sorted(requests):
            if at >= len(requests[name].steps):
                continue
            site, step = members[name], requests[name].steps[at]
            if step.kind != "fit":
                answers[name] = answer_step(site, step, requests[name])
            elif (plan := site.handed(step, requests[name])) is not None:
                fits.setdefault((step.verb, plan), []).append(site)
        for (_, plan), group in fits.items():
            _train(executor, plan, group, requests, at)
    return answers


def _train(
    executor: Executor,
    plan: Plan,
    group: list[Site],
    requests: Mapping[SiteId, Request],
    at: int,
) -> None:
    first = requests[group[0].id]
    method = group[0].local(first.steps[at], first)
    jobs = [site.job(requests[site.id].steps[at], requests[site.id]) for site in group]
    with words_stay():
        results = executor.fit(method, plan, first.round, jobs)
    for site, result in zip(group, results, strict=True):
        site.fitted(requests[site.id].steps[at], requests[site.id], result)


def deliver(
    members: Mapping[SiteId, Site],
    requests: Mapping[SiteId, Request],
    answers: Mapping[SiteId, Answer],
    routes: Routes,
) -> dict[SiteId, Answer]:
    """Hand relayed answers to their receivers, who share them; the server half learns sizes
    only."""
    receivers = Counter(sender for senders in routes.values() for sender in senders)
    letters = {
        s: RelayedMessage({k: torch.as_tensor(v) for k, v in answers[s].items()})
        for s in receivers
    }
    for verb in {requests[sender].steps[-1].verb for sender in receivers}:  # there is one
        for to, senders in routes.items():
            members[to].receive(verb, {sender: letters[sender] for sender in senders})
    return {s: {"bytes": payload(a) * receivers[s]} for s, a in answers.items()}
