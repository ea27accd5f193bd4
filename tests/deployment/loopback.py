"""A transport to sites in this process, with simulated time and seeded faults: messages are
lost, duplicated, delayed or damaged, and processes at both ends die."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fallow.core.types import SiteId

Handle = Callable[[bytes], bytes | None]
"""Function from a message to the reply of a site; None: the reply is lost."""
AGAIN = 5.0  # seconds after which an unanswered message is sent again


@dataclass(frozen=True)
class Faults:
    """Probabilities that a message is lost, sent twice or damaged, and that its site dies
    before or after performing it; and the maximum delay of a message in seconds."""

    lost: float = 0.0
    twice: float = 0.0
    damaged: float = 0.0
    dies_before: float = 0.0
    dies_after: float = 0.0
    late: float = 0.0


@dataclass
class Loopback:
    """Implement `Transport` in simulated time.

    restart: returns the handler of a site whose process died. down: sites that receive no
    messages while they are in this set. pause: real seconds to sleep in a wait without
    events, for callers that use a real clock. ``seconds`` is the simulated time, which
    passes only in a wait.
    """

    handlers: Mapping[SiteId, Handle]
    faults: Faults = Faults()
    seed: int = 0
    restart: Callable[[SiteId], Handle] | None = None
    down: set[SiteId] = field(default_factory=set)
    pause: float = 0.0
    seconds: float = 0.0
    deaths: int = 0
    delivered: list[tuple[SiteId, bytes]] = field(default_factory=list)
    revoked: list[SiteId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alive = dict(self.handlers)
        self._draw = np.random.default_rng(self.seed)
        self._open: dict[SiteId, bytes] = {}  # the newest unanswered message to each site
        self._agenda: list[tuple[float, int, str, SiteId, bytes, bytes]] = []
        self._turn = 0

    # -- Transport -------------------------------------------------------------------------

    def start(self) -> None:
        """Do nothing: the sites are in this process."""

    def limit(self, bound: Callable[[SiteId], int]) -> None:
        """Ignore the size limit of replies."""

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        for site, blob in messages.items():
            self._open[site] = blob
            self._carry("down", site, blob, blob)
            self._training_config(AGAIN, "again", site, blob, blob)

    def revoke(self, site: SiteId) -> None:
        """Drop all messages to or from the site that are in transit."""
        self.revoked.append(site)
        self._open.pop(site, None)
        self._agenda = [line for line in self._agenda if line[3] != site]
        heapq.heapify(self._agenda)

    def comes_late(self, site: SiteId, blob: bytes) -> None:
        """Deliver a reply to a message that was sent before this transport was created."""
        self._carry("up", site, blob, b"")

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        end = self.seconds + seconds
        while self._agenda and self._agenda[0][0] <= end:
            at, _, what, site, blob, asked = heapq.heappop(self._agenda)
            self.seconds = max(self.seconds, at)
            if what == "up":
                if self._open.get(site) == asked:
                    del self._open[site]
                return [(site, blob)]
            if what == "down":
                self._arrive(site, blob, asked)
            elif self._open.get(site) == blob:  # "again"
                self.send({site: blob})
        self.seconds = end
        time.sleep(self.pause)
        return []

    def online(self) -> set[SiteId]:
        return set(self.alive) - self.down

    def close(self) -> None:
        self._agenda.clear()

    def clock(self) -> float:
        return self.seconds

    # -- events in transit -----------------------------------------------------------------

    def _chance(self, likely: float) -> bool:
        return likely > 0 and bool(self._draw.random() < likely)

    def _training_config(
        self, after: float, what: str, site: SiteId, blob: bytes, asked: bytes
    ) -> None:
        self._turn += 1
        line = (self.seconds + after, self._turn, what, site, blob, asked)
        heapq.heappush(self._agenda, line)

    def _carry(self, what: str, site: SiteId, blob: bytes, asked: bytes) -> None:
        for _ in range(1 + self._chance(self.faults.twice)):
            if self._chance(self.faults.lost):
                continue
            sent = self._damage(blob) if self._chance(self.faults.damaged) else blob
            late = (
                float(self._draw.random()) * self.faults.late if self.faults.late else 0.0
            )
            self._training_config(late, what, site, sent, asked)

    def _damage(self, blob: bytes) -> bytes:
        at = int(self._draw.integers(len(blob)))
        return (
            blob[:at]
            + bytes([blob[at] ^ (1 << int(self._draw.integers(8)))])
            + blob[at + 1 :]
        )

    def _arrive(self, site: SiteId, blob: bytes, asked: bytes) -> None:
        if site in self.down:
            return
        if self._chance(self.faults.dies_before):
            self._die(site)
            return
        self.delivered.append((site, blob))
        answer = self.alive[site](blob)
        if self._chance(self.faults.dies_after):
            self._die(site)
        elif answer is not None:
            self._carry("up", site, answer, asked)

    def _die(self, site: SiteId) -> None:
        self.deaths += 1
        if self.restart is not None:
            self.alive[site] = self.restart(site)
