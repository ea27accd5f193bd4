"""The coordinator's half of the socket: which site has which message, and what comes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from threading import Event, Lock, Thread
from time import monotonic

from fallow.core.events import Say, stay_silent
from fallow.core.types import SiteId
from fallow.network.answers import Answers, collect_answers
from fallow.network.flower.app.fallow_pipe.pipe import (
    ANSWER,
    MESSAGE,
    NODE,
    NODES,
    NUMBER,
    read,
    write,
)
from fallow.network.flower.sockets import accept, listening

# seconds before a lost message is sent again; they double from the first to the last
SHORTEST = 1.0
LONGEST = 60.0
# seconds before it is sent again though nobody said that it was lost; they double too
AGAIN = 120.0
SELDOM = 1800.0
"""Flower says nothing where the process that had a message, or its answer, was killed."""
TURN = 0.1


@dataclass(frozen=True)
class Node:
    """A SuperNode that is there; ``since`` is another one when it was started again."""

    number: int
    since: str


@dataclass
class Parcel:
    """A message that its site has not answered, and where it is on its way."""

    content: bytes
    due: float = 0.0  # when it is sent (again)
    pause: float = SHORTEST
    silence: float = AGAIN  # seconds without a word after which it may be lost
    numbers: set[int] = field(
        default_factory=set
    )  # under which it was sent in this connection
    node: Node | None = None  # to which it was sent last

    def send_again(self, due: float) -> None:
        """Send it once more, not before ``due``, wherever it was sent last."""
        self.due = due
        self.node = None


class Hub:
    """Waits at ``place`` for Flower's app and sends through it; a `Link` once that is connected.

    Flower's app may end and be started again at any time: the newest connection counts, and
    whatever has no answer is sent again through it.  Answers of a message that `send` has replaced
    are dropped.
    """

    def __init__(self, place: Path, say: Say = stay_silent, silence: float = AGAIN) -> None:
        self.place = place
        self.say = say
        self._silence = silence
        self._lock = Lock()
        self._stop = Event()
        self._parcels: dict[SiteId, Parcel] = {}
        self._nodes: dict[SiteId, Node] = {}
        self._answers: Answers = Queue()
        self._app: socket.socket | None = None
        self._last = 0  # number that was given last
        self._threads = [
            Thread(target=run, daemon=True) for run in (self._listen, self._push)
        ]

    def start(self) -> None:
        """Listen for the app, and push what is due."""
        for thread in self._threads:
            thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether Flower's app runs."""
        return self._app is not None

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site; it is sent until it is answered."""
        with self._lock:
            for site, content in messages.items():
                self._parcels[site] = Parcel(content, silence=self._silence)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Answers that came, after waiting so many seconds for the first one."""
        return collect_answers(self._answers, seconds)

    def online(self) -> set[SiteId]:
        """The sites whose SuperNode is there now."""
        with self._lock:
            return set(self._nodes)

    def close(self) -> None:
        """End the connection and both threads."""
        self._stop.set()
        self._drop(self._app)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _listen(self) -> None:
        with listening(self.place) as server:
            while not self._stop.is_set():
                if (connection := accept(server)) is not None:
                    self._drop(self._app)
                    with self._lock:
                        self._app = connection
                    Thread(target=self._read, args=(connection,), daemon=True).start()

    def _drop(self, connection: socket.socket | None) -> None:
        """Forget a connection, and that anything was sent through it."""
        with self._lock:
            if connection is None or connection is not self._app:
                return
            self._app = None
            self._nodes = {}
            for parcel in self._parcels.values():
                parcel.send_again(0.0)
                parcel.numbers.clear()
        with suppress(OSError):  # it may have ended already
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
        connection.close()

    def _read(self, connection: socket.socket) -> None:
        """Take what Flower's app brings, until it ends; always at once, for it waits meanwhile."""
        try:
            while (frame := read(connection)) is not None:
                kind, payload = frame
                self._take(connection, kind, payload)
        except (OSError, ValueError) as error:
            self.say(
                {"event": "pipe", "why": f"the connection to Flower's app broke: {error}"}
            )
        self._drop(connection)

    def _find_site(self, number: int) -> SiteId | None:
        """Whose parcel travels under a number; None for one that nobody waits for any more."""
        for site, parcel in self._parcels.items():
            if number in parcel.numbers:
                return site
        return None

    def _take(self, connection: socket.socket, kind: bytes, payload: bytes) -> None:
        with self._lock:
            if connection is not self._app:
                return
            if kind == NODES:
                return self._note_nodes(json.loads(payload))
            (number,) = NUMBER.unpack_from(payload)
            site = self._find_site(number)
            if site is None:
                return
            if kind == ANSWER:
                del self._parcels[site]
                self._answers.put((site, payload[NUMBER.size :]))
                return
            parcel = self._parcels[site]
            parcel.numbers.discard(number)
            parcel.send_again(monotonic() + parcel.pause)
            parcel.pause = min(2 * parcel.pause, LONGEST)
        why = payload[NUMBER.size :].decode(errors="replace")
        self.say({"event": "lost", "site": site, "why": why})

    def _note_nodes(self, nodes: list[tuple[int, SiteId, str]]) -> None:
        """Note who is there.  What was sent to a node that has since been restarted is lost."""
        newest = sorted(nodes, key=lambda node: node[2])  # the last one counts
        self._nodes = {site: Node(number, since) for number, site, since in newest}
        for site, parcel in self._parcels.items():
            node = self._nodes.get(site)
            if node and parcel.node and node != parcel.node:
                parcel.send_again(0.0)

    def _push(self) -> None:
        while not self._stop.wait(TURN):
            with self._lock:
                app = self._app
                ready = self._collect_due()
            try:
                for content in ready:
                    if app is not None:
                        write(app, MESSAGE, content)
            except OSError:
                self._drop(app)

    def _collect_due(self) -> list[bytes]:
        """The messages to send now, each with a new number and its node."""
        ready = []
        for site, parcel in self._parcels.items():
            node = self._nodes.get(site)
            if node is not None and monotonic() >= parcel.due:
                self._last += 1
                parcel.numbers.add(self._last)
                parcel.node = node
                parcel.due = monotonic() + parcel.silence
                parcel.silence = min(2 * parcel.silence, SELDOM)
                ready.append(NODE.pack(self._last, node.number) + parcel.content)
        return ready
