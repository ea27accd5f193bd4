"""HTTPS as a `Link`: a server of this process that sites call, and nothing that runs beside it."""

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
from fallow.core.events import Say, stay_silent
from fallow.core.types import SiteId
from fallow.network.https.app import Application
from fallow.network.https.connections import Connections, make_config
from fallow.network.https.mailbox import Mailbox
from fallow.network.links import is_loopback
from fallow.network.tls import Tls, make_server_context

LARGEST = 2**31  # bytes of an answer, before more is known of a study
BACKLOG = 128
# seconds before it is tried again to listen; they double from the first to the last
SHORTEST = 2.0
LONGEST = 15.0
GOODBYE = 5.0  # seconds until the server's thread has ended


@dataclass(frozen=True)
class Listening:
    """Where a coordinator is called.

    address: ``host:port`` of this machine.  tls: its certificate; None: there is none, because
    HTTPS ends at another program of this machine.  clients: the authority of the certificates that
    sites show; None: they show none.
    """

    address: str
    tls: Tls | None
    clients: Path | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not is_loopback(self.host):
            raise ValueError(
                f"without a certificate nothing is served at {self.address}: listen at 127.0.0.1, "
                "where the program is that ends HTTPS, or give a certificate"
            )
        if self.tls is None and self.clients is not None:
            raise ValueError(
                "certificates of sites are looked at by the program that ends HTTPS: name their "
                "authority there, or give this machine a certificate"
            )

    @property
    def host(self) -> str:
        """The address without its port; an IPv6 address without brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Of the address; 0 for any that is free."""
        return int(self.address.rpartition(":")[2])


class HttpsLink:
    """Carries messages to the sites of one study, which call and are never called.

    listening: where; study: the digest of what was agreed on; keys: by which the signatures of
    sites are known.  Messages are signed as they are over any link; TLS and the signed head of each
    request keep away who has no part in the study.
    """

    def __init__(
        self,
        listening: Listening,
        study: str,
        keys: Mapping[SiteId, bytes],
        say: Say = stay_silent,
    ) -> None:
        self.say = say
        self.problem: str | None = None
        self.port = listening.port
        self._listening = listening
        self._context: ssl.SSLContext | None = None
        if listening.tls is not None:
            self._context = make_server_context(listening.tls, listening.clients)
        self._most: Callable[[SiteId], int] = allow_largest
        self._mailbox = Mailbox()
        self._app = Application(self._mailbox, study, dict(keys), self._find_largest)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_there = Event()
        self._stop = Event()
        self._stopped: asyncio.Event | None = None
        self._thread = Thread(target=self._run, name="https", daemon=True)

    def start(self) -> HttpsLink:
        """Listen; it goes on by itself, and messages may be sent at once."""
        self._thread.start()
        return self

    def limit(self, most: Callable[[SiteId], int]) -> None:
        """From now on refuse answers of a site above so many bytes before they are read."""
        self._most = most

    def wait_until_there(self, seconds: float) -> bool:
        """Whether it listens within so many seconds."""
        return self._is_there.wait(seconds)

    def send(self, messages: Mapping[SiteId, bytes]) -> None:
        """Replace the open message of each site; it is handed out until it is answered."""
        self._mailbox.send(messages)

    def receive(self, seconds: float) -> list[tuple[SiteId, bytes]]:
        """Answers that came, after waiting so many seconds for the first one."""
        return self._mailbox.receive(seconds)

    def online(self) -> set[SiteId]:
        """The sites that wait for a message now, or did a moment ago."""
        return self._mailbox.online()

    def close(self) -> None:
        """End every connection, and listen no more."""
        self._stop.set()
        loop = self._loop
        if loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # it was closed before
                loop.call_soon_threadsafe(self._stopped.set)
        if self._thread.is_alive():
            self._thread.join(GOODBYE)

    def _find_largest(self, site: SiteId) -> int:
        return min(self._most(site), LARGEST)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        """Listen until `close`, again and again where that fails."""
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
            # a server that is closed loses what it has accepted a moment ago
            for listener in server.sockets:
                with suppress(NotImplementedError):  # this system's loop has no readers
                    loop.remove_reader(listener.fileno())
            await connections.close()
            server.close()

    def _wake(self, site: SiteId) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._app.wake, site)

    def _complain(self, why: str) -> None:
        self.problem = why
        happening: Happening = {"event": "https", "why": why}
        self.say(happening)

    def _note_error(
        self, loop: asyncio.AbstractEventLoop, context: dict[str, object]
    ) -> None:
        """What went wrong on some connection.  Others' broken connections are no news."""
        error = cast(BaseException | None, context.get("exception"))
        if not isinstance(error, OSError | None):
            self._complain(f"a connection ended with {type(error).__name__}: {error}")


def allow_largest(site: SiteId) -> int:
    """Any answer that a link carries."""
    return LARGEST


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
