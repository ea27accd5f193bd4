"""Federations with privacy settings, and transports that lose messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from fallow.core.ask import Ask, Channel
from fallow.core.client import OPERATIONS, ClientFunction
from fallow.core.contract import Contract
from fallow.core.messages import Delivered, Request
from fallow.core.types import Values
from fallow.core.view import Release, View
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.sites.in_process import InProcessChannel
from tests.simulations import Simulation, Tables, simulation, tables

SECURE = Privacy(secure_sum=True)


def asked_by_all(function: Any) -> Any:
    """Declare a function that every operation may call."""
    for operation in OPERATIONS:
        ClientFunction(operation, f"what {function.__name__} tells")(function)
    return function


@dataclass(frozen=True)
class Asker:
    """A method that asks one thing and tells it as its memo."""

    function: str = "share"

    contract: ClassVar[Contract] = Contract("Asker")

    def query(self, ask: Ask, budget: Any, memo: Any) -> Any:
        return ask.sum(getattr(self, self.function))

    @asked_by_all
    def share(self, view: View, times: float = 1) -> Release:
        return Release(times * view.counts, sensitivity=2 * times)

    @asked_by_all
    def plain(self, view: View, scale: float = 1.0) -> Values:
        return {"x": scale * view.rows().double().mean(0), "n": float(view.pool)}

    @asked_by_all
    def big(self, view: View) -> Values:
        return {"x": torch.tensor([3e6, -1.5])}


def protected(
    privacy: Privacy,
    strategy: Any = None,
    sites: Tables | None = None,
    runtime: Any = InProcessChannel,
    strategies: int = 1,
    **parts: Any,
) -> Simulation:
    """Return sites that run ``strategy`` with ``privacy``."""
    made = simulation(sites or tables(), strategy or Asker(), runtime=runtime)
    for site in made.members.values():
        site.parts = replace(site.parts, privacy=privacy.over(strategies), **parts)
    return made


def asking(
    federation: Simulation, channel: Any = None, event_log: Any = None, cycle: int = 0
) -> Ask:
    """Return an `Ask` for a query, with secure aggregation if the sites have it."""
    ask = federation.ask(cycle=cycle)
    privacy = next(iter(federation.members.values())).parts.privacy
    ask.masking = SecureSum(privacy.bound) if privacy.secure_sum else None
    ask.channel = channel or ask.channel
    ask.event_log = event_log or ask.event_log
    return ask


@dataclass
class Losing:
    """Transport that loses replies.

    ``lost`` gives the silent sites of the n-th exchange. All delivered and lost messages
    are kept, so that tests can replay late ones.
    """

    channel: Channel
    lost: Mapping[int, Sequence[str]] = field(default_factory=dict)
    seen: list[tuple[Request, dict[str, Values]]] = field(default_factory=list)
    late: list[dict[str, Values]] = field(default_factory=list)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.channel.sites

    def exchange(self, requests: Mapping[str, Request], routes: Any = None) -> Delivered:
        done = self.channel.exchange(requests, routes)
        value = self.lost.get(len(self.seen), ())
        arrived = {site: a for site, a in done.replies.items() if site not in value}
        late = {site: a for site, a in done.replies.items() if site in value}
        self.late.append(late)
        self.seen.append((next(iter(requests.values())), arrived))
        return replace(done, replies=arrived)
