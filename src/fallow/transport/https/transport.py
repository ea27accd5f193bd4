"""HTTPS as a `Transport`: a server in this process that sites connect to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import cast

from fallow.core.events import Event as Happening
from fallow.core.events import EventHandler, ignore_event
from fallow.core.types import SiteId
from fallow.transport.address import is_loopback
from fallow.transport.https.app import Application
from fallow.transport.https.connections import Connections, make_config
from fallow.transport.https.mailbox import Mailbox
from fallow.transport.tls import Tls, make_server_context

LARGEST = 2**31  # largest reply in bytes before the study's own limit is known
BACKLOG = 128
# seconds before listening is tried again, doubled from the first to the last value
SHORTEST = 2.0
LONGEST = 15.0
GOODBYE = 5.0  # seconds for the server thread to end


@dataclass(frozen=True)
class Listening:
    """Address and certificates of a coordinator's server.

    ``address`` is the ``host:port`` of this machine. ``tls`` is its certificate, or None if another
    program on this machine terminates HTTPS. ``clients`` is the authority of site certificates, or
    None if sites show none.
    """

    address: str
    tls: Tls | None
    clients: Path | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not is_loopback(self.host):
            raise ValueError(
                f"{self.address} requires a certificate: pass one, or listen at "
                "127.0.0.1 behind the program that terminates HTTPS"
            )

    @property
    def host(self) -> str:
        """Return the host without the port, and an IPv6 address without brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port. 0 chooses a free port."""
        return int(self.address.rpartition(":")[2])


class HttpsTransport:
    """Transport of messages to the sites of one study, with requests from sites only.

    ``listening`` has the address and certificates. ``study`` is the hash of the agreement. ``keys``
    verify the signatures of sites. Messages are signed as with every transport. TLS and the signed
    header of each request keep out other clients.
    """

    def __init__(
        self,
        listening: Listening,
        study: str,
        keys: Mapping[SiteId, bytes],
        notify: EventHandler = ignore_event,
    ) -> None:
        self.notify = notify
        self.problem: str | None = None
        self.port = listening.port
        self._listening = listening
        self._context: ssl.SSLContext | None = None
        if listening.tls is not None:
            self._context = make_server_context(listening.tls, listening.clients)
        self._bound: Callable[[SiteId], int] = allow_largest
        self._mailbox = Mailbox()
        self._app = Application(self._mailbox, study, dict(keys), self._find_largest)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_there = Event()
        self._stop = Event()
        self._stopped: asyncio.Event | None = None
        self._thread = Thread(target=self._run, name="https", daemon=True)

    def start(self) -> HttpsTransport:
        """Start the server in the background, once. Messages may be sent immediately."""
        if self._thread.ident is None:
            self._thread.start()
        return self

    def limit(self, bound: Callable[[SiteId], int]) -> None:
        """Set the largest size of a site's reply in bytes. Larger replies are not read."""
        self._bound = bound

    def revoke(self, site: SiteId) -> None:
        """Reject all further requests of a site."""
        self._app.keys.pop(site, None)
        self._mailbox.drop(site)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._app.end_poll, site)

    def wait_until_there(self, seconds: float) -> bool:
        """Return whether the server listens within ``seconds``."""
        return self._is_there.wait(seconds)

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site. It is sent until the site replies."""
        self._mailbox.send(messages)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Return the received replies after waiting up to ``seconds`` for the first one."""
        return self._mailbox.receive(seconds)

    def online(self) -> set[SiteId]:
        """Return the sites that are polling now or did so shortly before."""
        return self._mailbox.online()

    def close(self) -> None:
        """Close every connection and stop listening."""
        self._stop.set()
        loop = self._loop
        if loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # it was closed already
                loop.call_soon_threadsafe(self._stopped.set)
        if self._thread.is_alive():
            self._thread.join(GOODBYE)

    def _find_largest(self, site: SiteId) -> int:
        return min(self._bound(site), LARGEST)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        """Listen until `close`, and retry after errors."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_error)
        self._stopped = asyncio.Event()
        self._loop = loop
        self._mailbox.wake = self._wake
        connections = Connections(make_config(self._app), self._context)
        pause = SHORTEST
        while not self._stop.is_set():
            try:
                server = await loop.create_server(
                    connections.accept,
                    self._listening.host,
                    self._listening.port,
                    backlog=BACKLOG,
                )
            except OSError as error:
                self._complain(
                    f"this machine cannot listen at {self._listening.address}: {error}"
                )
                await _wait(self._stopped, pause)
                pause = min(2 * pause, LONGEST)
                continue
            self.problem = None
            self.port = server.sockets[0].getsockname()[1]
            self._is_there.set()
            await self._stopped.wait()
            # close connections that were just accepted, which the server loses
            for listener in server.sockets:
                # the event loop of this system does not support readers
                with suppress(NotImplementedError):
                    loop.remove_reader(listener.fileno())
            await connections.close()
            server.close()

    def _wake(self, site: SiteId) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._app.wake, site)

    def _complain(self, reason: str) -> None:
        self.problem = reason
        happening: Happening = {"event": "transport", "reason": reason}
        self.notify(happening)

    def _note_error(
        self, loop: asyncio.AbstractEventLoop, context: dict[str, object]
    ) -> None:
        """Record an error of the server. Broken connections of clients are ignored."""
        error = cast(BaseException | None, context.get("exception"))
        if not isinstance(error, OSError | None):
            self._complain(f"a connection ended with {type(error).__name__}: {error}")


def allow_largest(site: SiteId) -> int:
    """Return the largest message of a transport, for any site."""
    return LARGEST


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
