"""Open messages of the sites and received replies, for use by several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Queue
from threading import Lock
from time import monotonic

from fallow.core.types import SiteId
from fallow.transport.factory import Replies, collect_replies
from fallow.transport.https.signed import sum_of

OFFLINE_AFTER = 15.0  # seconds after its last request until a site counts as offline


def ignore_wake(site: SiteId) -> None:
    """Default notification, without a waiting poll."""


class Mailbox:
    """Mailbox of the coordinator, independent of the transport."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wake: Callable[[SiteId], None] = ignore_wake  # notifies about a new message
        self._clock = clock
        self._lock = Lock()
        self._open: dict[SiteId, tuple[str, bytes]] = {}
        self._replies: Replies = Queue()
        self._here: dict[SiteId, int] = {}  # number of waiting polls
        self._heard: dict[SiteId, float] = {}

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site."""
        with self._lock:
            for site, content in messages.items():
                self._open[site] = (sum_of(content), content)
        for site in messages:
            self.wake(site)

    def drop(self, site: SiteId) -> None:
        """Remove the open message of a site, whose reply is then ignored."""
        with self._lock:
            self._open.pop(site, None)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Return the received replies after waiting up to ``seconds`` for the first one."""
        return collect_replies(self._replies, seconds)

    def online(self) -> set[SiteId]:
        """Return the sites that are polling now or did so shortly before."""
        now = self._clock()
        with self._lock:
            result = {
                site for site, heard in self._heard.items() if now - heard < OFFLINE_AFTER
            }
            return result | {site for site, polls in self._here.items() if polls}

    # -- interface for the server ------------------------------------------------------------

    def arrive(self, site: SiteId) -> None:
        """Record that a site starts to wait for a message."""
        with self._lock:
            self._here[site] = self._here.get(site, 0) + 1

    def leave(self, site: SiteId) -> None:
        """Record that a site stops waiting. It usually waits again immediately."""
        with self._lock:
            self._here[site] -= 1
            self._heard[site] = self._clock()

    def find(self, site: SiteId, at_work: str) -> bytes | None:
        """Return the open message of a site, unless the site is processing it."""
        with self._lock:
            name, content = self._open.get(site, ("", b""))
            if not name or name == at_work:
                return None
            return content

    def is_open(self, site: SiteId, instruction: str) -> bool:
        """Return whether a site's message is still open."""
        with self._lock:
            return self._open.get(site, ("", b""))[0] == instruction

    def reply(self, site: SiteId, instruction: str, content: bytes) -> bool:
        """Store the reply to a message. Returns False if the message is no longer open."""
        with self._lock:
            if self._open.get(site, ("", b""))[0] != instruction:
                return False
            del self._open[site]
            self._replies.put((site, content))
            return True
