"""Flower as a `Transport`: a SuperLink, an app that passes bytes, and their supervision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from subprocess import SubprocessError
from threading import Event, Lock, Thread
from time import monotonic

from fallow.core.events import EventHandler, ignore_event
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId
from fallow.transport.tls import Tls
from fallow_flower.hub import Hub
from fallow_flower.sockets import private_socket
from fallow_flower.superlink import Superlink

START_SECONDS = 180.0  # seconds for a run of the app to connect
POLL_SECONDS = 0.5
# seconds before a failed step is repeated, doubled from the first to the last value
MIN_RETRY_SECONDS = 2.0
MAX_RETRY_SECONDS = 30.0


class FlowerTransport:
    """Transport of messages to admitted sites over TLS with Flower.

    ``folder`` is for Flower's files. ``address`` is the ``host:port`` at which sites reach this
    machine. ``tls`` are the certificate files. ``nodes`` has the public key of each site's node.
    The transport need not be trusted: messages are signed, and node names are bound to keys.

    Nothing is written before `start`, because another process may use the folder until then.
    """

    hub: Hub
    superlink: Superlink

    def __init__(
        self,
        folder: Path,
        address: str,
        tls: Tls,
        nodes: Mapping[SiteId, str],
        notify: EventHandler = ignore_event,
    ) -> None:
        self.notify = notify
        self._folder = folder
        self._address = address
        self._tls = tls
        self._nodes = dict(nodes)
        self._lock = Lock()
        self._admitted = False
        self._trouble: str | None = None
        self._stop = Event()
        self._running = ExitStack()  # ends whatever `start` has started, in reverse order

    def start(self) -> FlowerTransport:
        """Start all processes in the background. Messages may be sent immediately."""
        path = self._running.enter_context(private_socket(self._folder))
        self.hub = Hub(path, self.notify)
        self.superlink = Superlink(
            self._folder, self._address, self._tls, path, self.notify
        )
        thread = Thread(target=self._keep, daemon=True)
        self.superlink.start()
        self._running.callback(self.superlink.stop)
        self.hub.start()
        self._running.callback(self.hub.close)
        thread.start()
        self._running.callback(thread.join)
        return self

    @property
    def problem(self) -> str | None:
        """Return why no site can be reached, or None if Flower is running."""
        return self.superlink.problem or self._trouble

    def admit(self, nodes: Mapping[SiteId, str]) -> None:
        """Admit exactly these nodes. Nodes that are connected already stay connected."""
        with self._lock:
            self._nodes = dict(nodes)
            self._admitted = False

    def revoke(self, site: SiteId) -> None:
        """Ignore replies of a site from now on, and reject further connections of its node."""
        self.hub.drop(site)
        with self._lock:
            nodes = {name: node for name, node in self._nodes.items() if name != site}
        self.admit(nodes)

    def limit(self, bound: Callable[[SiteId], int]) -> None:
        """Do nothing: Flower reads a message before its size can be checked."""

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site. It is sent until the site replies."""
        self.hub.send(messages)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Return the received replies after waiting up to ``seconds`` for the first one."""
        return self.hub.receive(seconds)

    def online(self) -> set[SiteId]:
        """Return the sites whose SuperNode is connected."""
        return self.hub.online()

    def close(self) -> None:
        """Stop the app, the SuperLink and all of their processes."""
        self._stop.set()
        self._running.close()

    def _keep(self) -> None:
        """Keep the nodes registered and a run of the app connected."""
        pause = MIN_RETRY_SECONDS
        while not self._stop.wait(POLL_SECONDS):
            try:
                if not self.superlink.is_ready():
                    continue
                self._register()
                if not self.hub.is_connected:
                    self._run()
                self._trouble = None
                pause = MIN_RETRY_SECONDS
            except (RuntimeError, OSError, ValueError, SubprocessError) as error:
                self._trouble = str(error)
                self.notify({"event": "transport", "reason": self._trouble})
                self._stop.wait(pause)
                pause = min(2 * pause, MAX_RETRY_SECONDS)

    def _register(self) -> None:
        with self._lock:
            nodes = self._nodes
            is_done = self._admitted
            self._admitted = True
        if is_done:
            return
        try:
            self.superlink.admit(nodes)
        except BaseException:
            self._admitted = False
            raise

    def _run(self) -> None:
        """Start the app and wait until it is connected.

        Runs without an app are ended first, because Flower restarts their apps repeatedly, and on a
        busy machine these would prevent each other from connecting.
        """
        self.superlink.end_runs()
        self.superlink.run()
        end = monotonic() + START_SECONDS
        while not self.hub.is_connected and not self._stop.wait(POLL_SECONDS):
            if monotonic() > end or self.superlink.pid is None:
                raise RunHalted(
                    f"Flower's app did not connect within {START_SECONDS:.0f} seconds; is this machine "
                    "very busy?  It is tried again"
                )
