"""What a running coordinator shows of itself, and what it can be told while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, final

from fallow.core.events import Say, stay_silent
from fallow.core.types import SiteId, Tree
from fallow.network.envelope import Link
from fallow.report.live import read_live
from fallow.storage.errors import Failed
from fallow.storage.files import write_json
from fallow.storage.private import FILE, private_folder

PAUSE = 0.5  # seconds between looks at the folder of requests
OFTEN = 2.0  # seconds between states on disk while nothing new happens
KEPT = 20  # refusals that are shown

LABELING = "people label"  # the phase in which people are waited for

Command = Literal["stop", "advance"]


class StopRequested(Exception):
    """The coordinator was asked to stop; started again, it goes on."""


class Advanced(Exception):
    """Somebody decided to go on without the sites that an exchange waits for."""

    def __init__(self, sites: list[SiteId]) -> None:
        super().__init__(f"going on without {', '.join(sites)}")
        self.sites = sites


@final
@dataclass(frozen=True)
class Control:
    """Requests to a running coordinator: files in a folder, seen within a second or two."""

    folder: Path

    def tell(self, what: Command) -> None:
        """Ask the running coordinator for something."""
        private_folder(self.folder)
        (self.folder / what).touch(mode=FILE)

    def forget(self, what: Command) -> None:
        """Take a request back, if there is one."""
        (self.folder / what).unlink(missing_ok=True)

    def check(self) -> None:
        """Raise Stopped where somebody asked for it."""
        if (self.folder / "stop").exists():
            raise StopRequested

    def take(self, what: Command) -> bool:
        """Whether somebody asked for it, once."""
        is_there = (self.folder / what).exists()
        self.forget(what)
        return is_there

    def pause(self, seconds: float) -> None:
        """Wait, unless there is something to do."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            if (self.folder / "advance").exists():
                return
            time.sleep(min(PAUSE, left))


@final
@dataclass
class Live:
    """The state of a run as others read it: one small file, always whole.

    Times are seconds since 1970 in memory and UTC in the file.
    """

    path: Path
    clock: Callable[[], float] = time.time
    say: Say = stay_silent
    about: Tree = field(default_factory=dict)
    sites: dict[SiteId, Tree] = field(default_factory=dict)
    refusals: list[Tree] = field(default_factory=list)
    _written: float = 0.0
    _is_unwritable: bool = False

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that was read from the disk."""
        self.about = dict(state)
        self.sites = self.about.pop("sites")
        self.refusals = self.about.pop("refusals", [])

    def put(self, **about: object) -> None:
        """Something new: it is on disk when this returns."""
        self.about |= about
        self.write()

    def update_site(self, name: SiteId, **about: object) -> None:
        """Note something of a site; it is on disk with the next state."""
        self.sites.setdefault(name, {}).update(about)

    def note_refusal(self, site: SiteId, why: str) -> None:
        """An answer that did not count, and why: on disk when this returns."""
        line = {"at": utc(self.clock()), "site": site, "why": why}
        # the same sentence of the same site is shown once, with its newest time
        lines: list[Tree] = []
        for other in self.refusals:
            if (other["site"], other["why"]) != (site, why):
                lines.append(other)
        lines.append(line)
        self.refusals = lines[-KEPT:]
        self.write()

    def beat(self) -> None:
        """Still alive: now and then on disk."""
        if abs(self.clock() - self._written) >= OFTEN:
            self.write()

    def write(self) -> None:
        """A state that cannot be written ends no run, and is said once."""
        self._written = self.clock()
        now = {"updated": utc(self._written)}
        state = self.about | now | {"sites": self.sites, "refusals": self.refusals}
        try:
            write_json(self.path, state)
        except Failed as error:
            if not self._is_unwritable:
                self.say({"event": "state", "why": f"{error}; the run goes on"})
            self._is_unwritable = True
        else:
            self._is_unwritable = False


def read_last(folder: Path) -> Mapping[str, Any] | None:
    """The state that a coordinator left in its folder; None where there is none, or none that can be
    read: it is written anew."""
    with suppress(ValueError, OSError):
        return read_live(folder)
    return None


@final
@dataclass
class WatchedLink:
    """A link that knows who is awaited since when and who was heard, and ends a wait when somebody
    stops the coordinator: what sites have answered is safe, and the exchange is asked again."""

    link: Link
    live: Live
    control: Control

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Pass messages on, and note since when their sites are awaited."""
        for site in messages:
            self.live.update_site(site, awaited=utc(self.live.clock()))
        self.link.send(messages)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """What has arrived; raises Stopped or Advanced where somebody asked for that."""
        self.control.check()
        waiting = self.live.about.get("waiting") or {}
        if waiting.get("can_advance") and self.control.take("advance"):
            raise Advanced(waiting["sites"])
        if not waiting and self.live.about.get("phase") != LABELING:
            self.control.forget("advance")  # it came as what was waited for was there
        online = self.link.online()
        for site in self.live.sites:
            self.live.update_site(site, online=site in online)
        self.live.beat()
        result = self.link.receive(seconds)
        for site, _ in result:
            self.live.update_site(site, awaited=None, seen=utc(self.live.clock()))
        return result

    def online(self) -> set[SiteId]:
        """The sites that are there now."""
        return self.link.online()

    def close(self) -> None:
        """End the connection to all sites."""
        self.link.close()


def utc(seconds: float) -> str:
    """A time as ISO text, to the second.

    >>> utc(0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def seconds_of(text: str) -> float:
    """The time that `utc` wrote."""
    return datetime.fromisoformat(text).timestamp()
