"""Connections to the coordinator: how many there may be, and how long each may take to say something.

uvicorn reads the requests.  What it leaves open is closed here: it has no limit on the time until a
request begins, and none on connections whose TLS is not there yet.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fallow.core.types import SiteId

STRANGERS = 64  # connections at once on which no site has been recognized yet
EACH = 4  # connections of one site; it needs two
HANDSHAKE = 10.0  # seconds until TLS stands
HEAD = (
    10.0  # seconds from there, or from the last answer, until the head of a request is read
)
HEAD_BYTES = 16_384  # of the head of a request
STEPS = 8
"""Turns of the event loop in which what was accepted last becomes a connection, and ends."""
GATE = "gate"
"""Under this name a request finds the connection on which it came."""


class Connections:
    """All connections of a server.

    Those of strangers are few: when another one comes the oldest one of the network that has most of
    them is closed.  So who opens many, from one network, closes only their own, and a site far away
    has the time that it needs until its first request is signed.
    """

    def __init__(self, config: uvicorn.Config, context: ssl.SSLContext | None) -> None:
        self.config = config
        self.context = context
        self.state = ServerState()
        # by their networks, in each the oldest first
        self._strangers: dict[str, dict[Gate, None]] = {}
        self._sites: dict[SiteId, dict[Gate, None]] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def accept(self) -> Gate:
        """What handles the next connection."""
        return Gate(self)

    def enter(self, gate: Gate) -> None:
        """A new connection."""
        if self._is_closed:  # it came as the last ones were closed
            gate.close()
            return
        self._strangers.setdefault(gate.network, {})[gate] = None
        if sum(map(len, self._strangers.values())) > STRANGERS:
            largest = max(self._strangers.values(), key=len)
            _close_oldest(largest, len(largest) - 1)

    def recognize(self, gate: Gate, site: SiteId) -> None:
        """A request on this connection was signed by a site.

        A program that ends HTTPS may carry requests of several sites on one connection, which is
        then of the site that spoke last: what another one did before closes nothing under it.
        """
        own = self._sites.setdefault(site, {})
        if gate in own:
            return
        self.forget(gate)
        own[gate] = None
        _close_oldest(own, EACH)

    def forget(self, gate: Gate) -> None:
        """A connection has ended."""
        network = self._strangers.get(gate.network, {})
        network.pop(gate, None)
        if not network:
            self._strangers.pop(gate.network, None)
        for group in self._sites.values():
            group.pop(gate, None)

    def keep_handshake(self, handshake: asyncio.Task[None]) -> None:
        """Keep what begins TLS on a connection until it has ended."""
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def close(self) -> None:
        """End all of them, and those that were accepted a moment ago; no more may be accepted."""
        self._is_closed = True
        for group in (*self._strangers.values(), *self._sites.values()):
            _close_oldest(group, 0)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        for handshake in self._handshakes:  # it would wait for who has gone
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)


class Gate(asyncio.Protocol):
    """One connection: first bare TCP, then TLS around it, then requests."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.transport: asyncio.Transport | None = None
        self.network = ""  # from which it comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, and begin with TLS where there is some."""
        bare = cast(asyncio.Transport, transport)
        bare.pause_reading()  # nothing is read before it is known who reads it
        self.transport = bare
        self.network = find_network(bare.get_extra_info("peername"))
        self.connections.enter(self)
        requests = Requests(self)
        if self.connections.context is None:
            bare.set_protocol(requests)
            requests.connection_made(bare)
            bare.resume_reading()
            return
        loop = asyncio.get_running_loop()
        handshake = loop.create_task(self._secure(bare, requests, self.connections.context))
        self.connections.keep_handshake(handshake)

    def connection_lost(self, error: Exception | None) -> None:
        """It ended before TLS was begun."""
        self.connections.forget(self)

    def recognize(self, site: SiteId) -> None:
        """A request on it was signed by a site."""
        self.connections.recognize(self, site)

    def close(self) -> None:
        """End it at once, whatever it is doing."""
        if self.transport is not None:
            self.transport.abort()

    async def _secure(
        self, bare: asyncio.Transport, requests: Requests, context: ssl.SSLContext
    ) -> None:
        if bare.is_closing():
            return
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                bare,
                requests,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE,
            )
        except (OSError, ssl.SSLError):  # no TLS, too slow, or no certificate of a site
            secured = None
        if secured is None or secured.is_closing():
            bare.abort()
            self.connections.forget(self)
            return
        requests.connection_made(secured)


class Requests(H11Protocol):
    """uvicorn's reader of requests, with a limit on the time until the head of one is there."""

    def __init__(self, gate: Gate) -> None:
        connections = gate.connections
        super().__init__(
            config=connections.config,
            server_state=connections.state,
            app_state={GATE: gate},
        )
        self.gate = gate
        self._stands = False
        self._early: list[bytes] = []  # what came with the last message of the handshake
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """TLS stands."""
        super().connection_made(transport)
        self._stands = True
        self._watch()
        early = b"".join(self._early)
        self._early = []
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        if not self._stands:  # TLS may hand it over before it says that it stands
            self._early.append(data)
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The time for the next request begins."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.gate.connections.forget(self.gate)
        self._stop_timer()
        if self._stands:
            super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the timer while the head of a request is awaited, and only then."""
        is_answering = bool(self.cycle) and not self.cycle.response_complete
        if is_answering:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD, self.gate.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def find_network(peer: tuple[object, ...] | None) -> str:
    """What one party is likely to have all addresses of: an IPv4 address, or 64 bits of an IPv6 one.

    peer: as a socket names the other side; None: it has gone already.

    >>> find_network(("192.0.2.7", 5000))
    '192.0.2.7/32'
    >>> find_network(("2001:db8::7", 5000, 0, 0))
    '2001:db8::/64'
    """
    if peer is None:
        return ""
    address = ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    bits = 32 if address.version == 4 else 64
    return str(ip_network((address, bits), strict=False))


def _close_oldest(group: dict[Gate, None], most: int) -> None:
    while len(group) > most:
        oldest = next(iter(group))
        del group[oldest]
        oldest.close()


def make_config(app: Callable[..., object]) -> uvicorn.Config:
    """How uvicorn reads requests."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # what strangers send fills no log
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(HEAD),
    )
