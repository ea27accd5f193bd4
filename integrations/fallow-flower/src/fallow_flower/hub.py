"""Coordinator's end of the socket: open messages of each site, and received replies."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from threading import Event, Lock, Thread
from time import monotonic

from fallow.core.events import EventHandler, ignore_event
from fallow.core.types import SiteId
from fallow.transport.factory import Replies, collect_replies
from fallow_flower.app.fallow_pipe.pipe import (
    MESSAGE,
    NODE,
    NODES,
    NUMBER,
    REPLY,
    read,
    write,
)
from fallow_flower.sockets import accept, listening

# seconds before a lost message is sent again, doubled from the first to the last value
MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
# seconds before a message without a loss report is sent again, doubled as well
MIN_SILENCE_SECONDS = 120.0
MAX_SILENCE_SECONDS = 1800.0
"""Retry interval in seconds, because Flower does not report a killed process."""
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ConnectedNode:
    """A connected SuperNode. ``since`` changes when it is restarted."""

    number: int
    since: str


@dataclass
class Parcel:
    """A message without a reply, and its delivery state."""

    content: bytes
    due: float = 0.0  # time of the next delivery
    pause: float = MIN_RETRY_SECONDS
    silence: float = MIN_SILENCE_SECONDS  # seconds of silence after which it may be lost
    numbers: set[int] = field(
        default_factory=set
    )  # number of the delivery in this connection
    node: ConnectedNode | None = None  # receiver of the last delivery

    def send_again(self, due: float) -> None:
        """Schedule another delivery, not before ``due``."""
        self.due = due
        self.node = None


class Hub:
    """Socket server at ``path`` for Flower's app; a `Transport` once the app is connected.

    Flower's app may end and restart at any time. The newest connection is used, and all messages
    without a reply are sent again. Replies to a message that `send` has replaced are ignored.
    """

    def __init__(
        self,
        folder: Path,
        notify: EventHandler = ignore_event,
        silence: float = MIN_SILENCE_SECONDS,
    ) -> None:
        self.path = folder
        self.notify = notify
        self._silence = silence
        self._lock = Lock()
        self._stop = Event()
        self._parcels: dict[SiteId, Parcel] = {}
        self._nodes: dict[SiteId, ConnectedNode] = {}
        self._replies: Replies = Queue()
        self._app: socket.socket | None = None
        self._last = 0  # number of the last delivery
        self._threads = [
            Thread(target=run, daemon=True) for run in (self._listen, self._push)
        ]

    def start(self) -> None:
        """Listen for the app and deliver pending messages."""
        for thread in self._threads:
            thread.start()

    @property
    def is_connected(self) -> bool:
        """Return whether Flower's app is connected."""
        return self._app is not None

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site. It is sent until the site replies."""
        with self._lock:
            for site, content in messages.items():
                self._parcels[site] = Parcel(content, silence=self._silence)

    def drop(self, site: SiteId) -> None:
        """Discard the open message of a site, so that a reply to it is ignored."""
        with self._lock:
            self._parcels.pop(site, None)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Return the received replies after waiting up to ``seconds`` for the first one."""
        return collect_replies(self._replies, seconds)

    def online(self) -> set[SiteId]:
        """Return the sites whose SuperNode is connected."""
        with self._lock:
            return set(self._nodes)

    def close(self) -> None:
        """Close the connection and end both threads."""
        self._stop.set()
        self._drop(self._app)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _listen(self) -> None:
        with listening(self.path) as server:
            while not self._stop.is_set():
                if (connection := accept(server)) is not None:
                    self._drop(self._app)
                    with self._lock:
                        self._app = connection
                    Thread(target=self._read, args=(connection,), daemon=True).start()

    def _drop(self, connection: socket.socket | None) -> None:
        """Discard a connection and its delivery states."""
        with self._lock:
            if connection is None or connection is not self._app:
                return
            self._app = None
            self._nodes = {}
            for parcel in self._parcels.values():
                parcel.send_again(0.0)
                parcel.numbers.clear()
        with suppress(OSError):  # it may be closed already
            connection.shutdown(socket.SHUT_RDWR)  # wakes the reader thread
        connection.close()

    def _read(self, connection: socket.socket) -> None:
        """Process messages of Flower's app until it ends, without delay because the app waits."""
        try:
            while (frame := read(connection)) is not None:
                kind, payload = frame
                self._take(connection, kind, payload)
        except (OSError, ValueError, TypeError, LookupError, struct.error) as error:
            self.notify(
                {
                    "event": "transport",
                    "reason": f"the connection to Flower's app broke: {error}",
                }
            )
        finally:
            self._drop(connection)

    def _find_site(self, number: int) -> SiteId | None:
        """Return the site of a delivery number, or None if the message is no longer open."""
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
            if kind == REPLY:
                del self._parcels[site]
                self._replies.put((site, payload[NUMBER.size :]))
                return
            parcel = self._parcels[site]
            parcel.numbers.discard(number)
            parcel.send_again(monotonic() + parcel.pause)
            parcel.pause = min(2 * parcel.pause, MAX_RETRY_SECONDS)
        why = payload[NUMBER.size :].decode(errors="replace")
        self.notify({"event": "lost", "site": site, "reason": why})

    def _note_nodes(self, nodes: list[tuple[int, SiteId, str]]) -> None:
        """Record the connected nodes. Messages to a restarted node are lost."""
        newest = sorted(nodes, key=lambda node: node[2])  # the newest node of a site counts
        self._nodes = {site: ConnectedNode(number, since) for number, site, since in newest}
        for site, parcel in self._parcels.items():
            node = self._nodes.get(site)
            if node and parcel.node and node != parcel.node:
                parcel.send_again(0.0)

    def _push(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
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
        """Return the messages to send now, each with a new number and its node."""
        ready = []
        for site, parcel in self._parcels.items():
            node = self._nodes.get(site)
            if node is not None and monotonic() >= parcel.due:
                self._last += 1
                parcel.numbers.add(self._last)
                parcel.node = node
                parcel.due = monotonic() + parcel.silence
                parcel.silence = min(2 * parcel.silence, MAX_SILENCE_SECONDS)
                ready.append(NODE.pack(self._last, node.number) + parcel.content)
        return ready
