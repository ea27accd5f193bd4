"""Federations of `tests.worlds` whose sites guard what leaves them; carriers that lose parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from fallow.core.ask import Ask, Carrier
from fallow.core.contract import Contract
from fallow.core.messages import Delivered, Request
from fallow.core.types import Answer
from fallow.core.view import Release, View
from fallow.privacy import Privacy, SecureSum
from fallow.sites.in_process import InProcess
from tests.worlds import Simulation, Tables, tables, world

SECURE = Privacy(secure_sum=True)
TOLD = {verb: f"what {verb} tells" for verb in ("share", "plain", "big", "select")}


@dataclass(frozen=True)
class Asker:
    """A method that asks one thing and tells it as its memo."""

    verb: str = "share"

    contract: ClassVar[Contract] = Contract(
        "Asker", "-", 0, sum=TOLD, each=TOLD, keep=TOLD, relay=TOLD
    )

    def query(self, ask: Ask, budget: Any, memo: Any) -> Any:
        return ask.sum(getattr(self, self.verb))

    def share(self, view: View, times: float = 1) -> Release:
        return Release(times * view.counts, sensitivity=2 * times)

    def plain(self, view: View, scale: float = 1.0) -> Answer:
        return {"x": scale * view.rows().double().mean(0), "n": float(view.pool)}

    def big(self, view: View) -> Answer:
        return {"x": torch.tensor([3e6, -1.5])}


def protected(
    privacy: Privacy,
    strategy: Any = None,
    sites: Tables | None = None,
    runtime: Any = InProcess,
    strategies: int = 1,
    **parts: Any,
) -> Simulation:
    """Sites that run ``strategy`` behind ``privacy``."""
    made = world(sites or tables(), strategy or Asker(), runtime=runtime)
    for site in made.members.values():
        site.parts = replace(site.parts, privacy=privacy.over(strategies), **parts)
    return made


def asking(
    federation: Simulation, carrier: Any = None, journal: Any = None, cycle: int = 0
) -> Ask:
    """The door of a query, with secure sums where the sites have them."""
    ask = federation.ask(cycle=cycle)
    privacy = next(iter(federation.members.values())).parts.privacy
    ask.masking = SecureSum(privacy.bound) if privacy.secure_sum else None
    ask.carrier = carrier or ask.carrier
    ask.journal = journal or ask.journal
    return ask


@dataclass
class Losing:
    """A carrier that loses answers: ``lost`` says which sites fall silent in the n-th exchange.
    It keeps all that came through, and what was lost, as a late message would."""

    carrier: Carrier
    lost: Mapping[int, Sequence[str]] = field(default_factory=dict)
    seen: list[tuple[Request, dict[str, Answer]]] = field(default_factory=list)
    late: list[dict[str, Answer]] = field(default_factory=list)

    @property
    def sites(self) -> tuple[str, ...]:
        return self.carrier.sites

    def exchange(self, requests: Mapping[str, Request], routes: Any = None) -> Delivered:
        done = self.carrier.exchange(requests, routes)
        value = self.lost.get(len(self.seen), ())
        arrived = {site: a for site, a in done.answers.items() if site not in value}
        late = {site: a for site, a in done.answers.items() if site in value}
        self.late.append(late)
        self.seen.append((next(iter(requests.values())), arrived))
        return replace(done, answers=arrived)
