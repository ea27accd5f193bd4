"""Which site has which message open, and what came back; several threads may use it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Queue
from threading import Lock
from time import monotonic

from fallow.core.types import SiteId
from fallow.network.answers import Answers, collect_answers
from fallow.network.https.signed import sum_of

GONE = 15.0  # seconds after its last word until a site counts as gone


def wake_nobody(site: SiteId) -> None:
    """Where nobody waits yet."""


class Mailbox:
    """The coordinator's end of the link, apart from how bytes travel.

    A message stays open until its own answer has come or another message replaces it, so it is
    handed out as often as its site asks.  An answer that belongs to no open message is dropped:
    one answer for one message is all that a site can leave here.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wake: Callable[[SiteId], None] = wake_nobody  # called when a message is there
        self._clock = clock
        self._lock = Lock()
        self._open: dict[SiteId, tuple[str, bytes]] = {}
        self._answers: Answers = Queue()
        self._here: dict[SiteId, int] = {}  # polls that wait now
        self._heard: dict[SiteId, float] = {}

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site."""
        with self._lock:
            for site, content in messages.items():
                self._open[site] = (sum_of(content), content)
        for site in messages:
            self.wake(site)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Answers that came, after waiting so many seconds for the first one."""
        return collect_answers(self._answers, seconds)

    def online(self) -> set[SiteId]:
        """The sites that wait for a message now, or did a moment ago."""
        now = self._clock()
        with self._lock:
            result = {site for site, heard in self._heard.items() if now - heard < GONE}
            return result | {site for site, polls in self._here.items() if polls}

    # -- the server's side ------------------------------------------------------------------

    def arrive(self, site: SiteId) -> None:
        """A site waits for a message from now on."""
        with self._lock:
            self._here[site] = self._here.get(site, 0) + 1

    def leave(self, site: SiteId) -> None:
        """It does not any more, but is likely to come back at once."""
        with self._lock:
            self._here[site] -= 1
            self._heard[site] = self._clock()

    def find(self, site: SiteId, at_work: str) -> bytes | None:
        """The open message of a site, unless the site has it at work."""
        with self._lock:
            name, content = self._open.get(site, ("", b""))
            if not name or name == at_work:
                return None
            return content

    def is_open(self, site: SiteId, order: str) -> bool:
        """Whether a site's message is still waited for."""
        with self._lock:
            return self._open.get(site, ("", b""))[0] == order

    def answer(self, site: SiteId, order: str, content: bytes) -> bool:
        """Take the answer to a message; False where nobody waits for it any more."""
        with self._lock:
            if self._open.get(site, ("", b""))[0] != order:
                return False
            del self._open[site]
            self._answers.put((site, content))
            return True
