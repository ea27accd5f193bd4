"""Limits on the number of connections to the coordinator and on their idle time.

uvicorn parses the requests. It has no time limit for the start of a request and none for the TLS
handshake, so both are enforced here.
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

STRANGERS = 64  # concurrent connections without an authenticated site
EACH = 4  # largest number of connections of a site, which needs two
HANDSHAKE = 10.0  # timeout of the TLS handshake in seconds
HEAD = 10.0  # seconds from the handshake or the last response to the next complete header
HEAD_BYTES = 16_384  # largest header of a request
STEPS = 8
"""Event loop iterations until a newly accepted connection exists and is closed."""
GATE = "gate"
"""Key under which a request has its connection."""


class Connections:
    """All connections of a server.

    Unauthenticated connections are limited. A new one replaces the oldest one of the network with
    most of them. Connection limits therefore apply per source network, and a remote site has time
    until its first request is authenticated.
    """

    def __init__(self, config: uvicorn.Config, context: ssl.SSLContext | None) -> None:
        self.config = config
        self.context = context
        self.state = ServerState()
        # by source network, oldest first
        self._strangers: dict[str, dict[Gate, None]] = {}
        self._sites: dict[SiteId, dict[Gate, None]] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def accept(self) -> Gate:
        """Return the protocol of the next connection."""
        return Gate(self)

    def enter(self, gate: Gate) -> None:
        """Add a connection."""
        if self._is_closed:  # accepted during shutdown
            gate.close()
            return
        self._strangers.setdefault(gate.network, {})[gate] = None
        if sum(map(len, self._strangers.values())) > STRANGERS:
            largest = max(self._strangers.values(), key=len)
            _close_oldest(largest, len(largest) - 1)

    def recognize(self, gate: Gate, site: SiteId) -> None:
        """Assign a connection to the site that signed a request on it.

        A reverse proxy may use one connection for several sites. The connection is then assigned to
        the site of the last request, and requests of other sites on it are not interrupted.
        """
        own = self._sites.setdefault(site, {})
        if gate in own:
            return
        self.forget(gate)
        own[gate] = None
        _close_oldest(own, EACH)

    def forget(self, gate: Gate) -> None:
        """Remove a closed connection."""
        network = self._strangers.get(gate.network, {})
        network.pop(gate, None)
        if not network:
            self._strangers.pop(gate.network, None)
        for group in self._sites.values():
            group.pop(gate, None)

    def keep_handshake(self, handshake: asyncio.Task[None]) -> None:
        """Keep a reference to a TLS handshake until it has ended."""
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def close(self) -> None:
        """Close all connections, including those just accepted, and accept no more."""
        self._is_closed = True
        for group in (*self._strangers.values(), *self._sites.values()):
            _close_oldest(group, 0)
        for _ in range(STEPS):
            await asyncio.sleep(0)
        for handshake in self._handshakes:  # a lost client would delay the shutdown
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)


class Gate(asyncio.Protocol):
    """One connection: TCP, then TLS, then requests."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.transport: asyncio.Transport | None = None
        self.network = ""  # source network

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection and start TLS if it is enabled."""
        bare = cast(asyncio.Transport, transport)
        bare.pause_reading()  # read nothing before the parser exists
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
        """Remove a connection that ended before TLS was started."""
        self.connections.forget(self)

    def recognize(self, site: SiteId) -> None:
        """Assign the connection to a site that signed a request."""
        self.connections.recognize(self, site)

    def close(self) -> None:
        """Close the connection immediately."""
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
        except OSError:  # no TLS, too slow, or no certificate of a site
            secured = None
        if secured is None or secured.is_closing():
            bare.abort()
            self.connections.forget(self)
            return
        requests.connection_made(secured)


class Requests(H11Protocol):
    """uvicorn's request parser, with a time limit for the header of a request."""

    def __init__(self, gate: Gate) -> None:
        connections = gate.connections
        super().__init__(
            config=connections.config,
            server_state=connections.state,
            app_state={GATE: gate},
        )
        self.gate = gate
        self._stands = False
        self._early: list[bytes] = []  # data received with the last handshake message
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to parse requests after the TLS handshake."""
        super().connection_made(transport)
        self._stands = True
        self._watch()
        early = b"".join(self._early)
        self._early = []
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request."""
        if not self._stands:  # TLS may pass data before it reports the end of the handshake
            self._early.append(data)
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Restart the timer for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a closed connection."""
        self.gate.connections.forget(self.gate)
        self._stop_timer()
        if self._stands:
            super().connection_lost(exc)

    def _watch(self) -> None:
        """Start or stop the timer, which runs while the header of a request is pending."""
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
    """Return the network that one party likely controls: an IPv4 address or an IPv6 /64 prefix.

    ``peer`` is the socket address of the client, or None if it has disconnected.

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


def _close_oldest(group: dict[Gate, None], limit: int) -> None:
    while len(group) > limit:
        oldest = next(iter(group))
        del group[oldest]
        oldest.close()


def make_config(app: Callable[..., object]) -> uvicorn.Config:
    """Return the configuration of uvicorn."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # unauthenticated requests do not fill the log
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(HEAD),
    )
