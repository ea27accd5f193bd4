"""Live state of a running coordinator, and requests to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, final

from fallow.core.events import EventHandler, ignore_event
from fallow.core.types import SiteId, Tree
from fallow.report.live import read_live
from fallow.storage.errors import StorageError
from fallow.storage.files import FILE, private_folder, write_json
from fallow.transport.envelope import Transport

PAUSE = 0.5  # seconds between checks for requests
OFTEN = 2.0  # seconds between heartbeats on disk
KEPT = 20  # number of rejected and unusual replies shown

LABELING = "labeling"  # the phase that waits for annotators

Command = Literal["stop", "advance"]


class StopRequested(Exception):
    """The coordinator was asked to stop. It resumes when it is started again."""


class ProceedRequested(Exception):
    """The coordinator was asked to proceed without the pending sites of an exchange."""

    def __init__(self, sites: list[SiteId]) -> None:
        super().__init__(f"proceeding without {', '.join(sites)}")
        self.sites = sites


class RevocationRequested(Exception):
    """Keys of sites were revoked since the run was started or continued."""

    def __init__(self, sites: list[SiteId]) -> None:
        super().__init__(f"the keys of {', '.join(sites)} were revoked")
        self.sites = sites


@final
@dataclass(frozen=True)
class Control:
    """Requests to a running coordinator: files in a folder, read within two seconds."""

    folder: Path

    def tell(self, what: Command) -> None:
        """Send a request to the running coordinator."""
        private_folder(self.folder)
        (self.folder / what).touch(mode=FILE)

    def forget(self, what: Command) -> None:
        """Withdraw a request, if there is one."""
        (self.folder / what).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise StopRequested if a stop was requested."""
        if (self.folder / "stop").exists():
            raise StopRequested

    def take(self, what: Command) -> bool:
        """Return whether something was requested, and remove the request."""
        is_there = (self.folder / what).exists()
        self.forget(what)
        return is_there

    def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until a request arrives."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            if (self.folder / "advance").exists():
                return
            time.sleep(min(PAUSE, left))


@final
@dataclass
class StatusFile:
    """State of a run for other processes, in one small file that is replaced atomically.

    Times are seconds since 1970 in memory and UTC in the file.
    """

    path: Path
    clock: Callable[[], float] = time.time
    notify: EventHandler = ignore_event
    state: Tree = field(default_factory=dict)
    sites: dict[SiteId, Tree] = field(default_factory=dict)
    refusals: list[Tree] = field(default_factory=list)
    _written: float = 0.0
    _is_unwritable: bool = False

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that was read from disk."""
        self.state = dict(state)
        self.sites = self.state.pop("sites")
        self.refusals = self.state.pop("refusals", [])

    def put(self, **changes: object) -> None:
        """Write the state to disk after a change."""
        self.state |= changes
        self.write()

    def update_site(self, name: SiteId, **changes: object) -> None:
        """Update the state of a site, which is written with the next state."""
        self.sites.setdefault(name, {}).update(changes)

    def note_refusal(self, site: SiteId, exchange: str, reason: str) -> None:
        """Record a rejected or unusual reply and the reason, and write the state to disk."""
        at = utc(self.clock())
        line = {"at": at, "site": site, "exchange": exchange, "reason": reason}
        # list a repeated rejection of a site once, with its latest time
        lines: list[Tree] = []
        for other in self.refusals:
            if (other["site"], other["reason"]) != (site, reason):
                lines.append(other)
        lines.append(line)
        self.refusals = lines[-KEPT:]
        self.write()

    def beat(self) -> None:
        """Write a heartbeat at intervals."""
        if abs(self.clock() - self._written) >= OFTEN:
            self.write()

    def write(self) -> None:
        """Write the state. A failure is reported once and does not end the run."""
        self._written = self.clock()
        now = {"updated": utc(self._written)}
        state = self.state | now | {"sites": self.sites, "refusals": self.refusals}
        try:
            write_json(self.path, state)
        except StorageError as error:
            if not self._is_unwritable:
                self.notify({"event": "state", "reason": f"{error}; the run continues"})
            self._is_unwritable = True
        else:
            self._is_unwritable = False


def read_last(folder: Path) -> Mapping[str, Any] | None:
    """Return the last state in a coordinator's folder.

    Returns None if the file is missing or unreadable. The coordinator then replaces it.
    """
    with suppress(ValueError, OSError):
        return read_live(folder)
    return None


@final
@dataclass
class WatchedTransport:
    """Transport that records pending sites and received messages.

    A wait ends when a stop is requested. Received replies are stored, and the exchange is repeated
    after the restart.

    Messages to and from sites whose keys were revoked are dropped. ``revoked`` returns these sites.
    The run has been continued without those of ``removed``.
    """

    transport: Transport
    live: StatusFile
    control: Control
    revoked: Callable[[], Set[SiteId]] = frozenset
    removed: Set[SiteId] = frozenset()

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Send messages, and record since when their sites are pending."""
        revoked = self.revoked()
        open_to = {site: blob for site, blob in messages.items() if site not in revoked}
        for site in open_to:
            self.live.update_site(site, awaited=utc(self.live.clock()))
        self.transport.send(open_to)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Return the messages received.

        Raises StopRequested, ProceedRequested or RevocationRequested on a request.
        """
        self.control.check()
        revoked = self.revoked()
        if revoked - self.removed:
            raise RevocationRequested(sorted(revoked - self.removed))
        waiting = self.live.state.get("waiting") or {}
        if waiting.get("can_advance") and self.control.take("advance"):
            raise ProceedRequested(waiting["sites"])
        if not waiting and self.live.state.get("phase") != LABELING:
            self.control.forget("advance")  # the request came after the awaited reply
        online = self.transport.online()
        for site in self.live.sites:
            self.live.update_site(site, online=site in online)
        self.live.beat()
        result: list[tuple[SiteId, bytes]] = []
        for site, blob in self.transport.receive(seconds):
            if site not in revoked:
                result.append((site, blob))
        for site, _ in result:
            self.live.update_site(site, awaited=None, seen=utc(self.live.clock()))
        return result

    def online(self) -> set[SiteId]:
        """Return the sites that are connected now."""
        return self.transport.online()

    def close(self) -> None:
        """Close the connections to all sites."""
        self.transport.close()


def utc(seconds: float) -> str:
    """Format a time as ISO text, to the second.

    >>> utc(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def seconds_of(text: str) -> float:
    """Parse a time written by `utc`."""
    return datetime.fromisoformat(text).timestamp()
