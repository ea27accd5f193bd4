"""Tunnel for connections over any channel that carries a few fields.

The entrance listens on the loopback interface of a site. The exit, at the server, opens one
connection to the coordinator for each accepted connection. The content is TLS between the site and
the coordinator and is neither read nor stored here. If a piece is lost, both ends close the
connection, and the client reconnects.

The module uses the standard library only, so that it can be reviewed on its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread

PORT = 9093
PORT_SETTING = "FALLOW_NVFLARE_PORT"
"""Environment variable of NVFlare's client at a site that replaces `PORT`."""
LOOPBACK = "127.0.0.1"

PIECE = 1 << 20  # largest piece in bytes
EACH = 8  # largest number of connections of a site, which needs two
ALL = 2048  # largest number of connections of all sites
CONNECT = 10.0  # seconds for the coordinator to accept
RETRY_SECONDS = 0.1  # seconds before accepting is tried again
SLOW = 30  # seconds before a stalled reader is disconnected
NAME = 32  # characters of a connection's name

OPEN = "open"
BYTES = "bytes"
END = "end"

Fields = Mapping[str, object]
Carry = Callable[[Fields], bool]
"""Function that sends fields to the other end and returns whether they were accepted."""
CarryTo = Callable[[str, Fields], bool]
"""The same from the server to a named site."""


class Connection:
    """One end of a tunneled connection. ``site`` is the site of the entrance."""

    def __init__(self, name: str, site: str, bare: socket.socket) -> None:
        self.name = name
        self.site = site
        self._socket = bare
        self._expected = 0  # number of the next piece from the other end
        self._lock = Lock()
        bare.settimeout(None)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SLOW, 0))
        with suppress(OSError):  # a socket of another kind
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_all(self, carry: Carry) -> None:
        """Send all received data to the other end until either end closes."""
        number = 0
        is_taken = True
        while is_taken:
            try:
                piece = self._socket.recv(PIECE)
            except OSError:
                return
            if not piece:
                return
            fields = {"do": BYTES, "name": self.name, "place": number, "bytes": piece}
            is_taken = carry(fields)
            number += 1

    def write(self, number: int, piece: bytes) -> bool:
        """Write a piece from the other end. Returns False if it is out of order or cannot be
        written.
        """
        with self._lock:
            if number != self._expected:
                return False
            self._expected += 1
            try:
                self._socket.sendall(piece)
            except OSError:
                return False
            return True

    def close(self) -> None:
        """Close this end. Repeated calls have no effect."""
        with suppress(OSError):  # it is no longer connected
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class TunnelConnections:
    """Open connections of one end by name, at most ``per_source`` per site and ``total`` in all."""

    def __init__(self, per_source: int = EACH, total: int = ALL) -> None:
        self._per_source = per_source
        self._total = total
        self._lock = Lock()
        self._open: dict[str, Connection] = {}
        self._is_closed = False

    def add(self, connection: Connection) -> bool:
        """Add a connection. Returns False if there are too many or the name is in use."""
        with self._lock:
            of_site = [one for one in self._open.values() if one.site == connection.site]
            is_full = len(of_site) >= self._per_source or len(self._open) >= self._total
            if self._is_closed or is_full or connection.name in self._open:
                return False
            self._open[connection.name] = connection
            return True

    def serve(self, connection: Connection, carry: Carry) -> None:
        """Forward the data of a connection until it ends, then notify the other end."""
        connection.read_all(carry)
        if self.remove(connection.name, connection.site):
            carry({"do": END, "name": connection.name})

    def take(self, site: str, fields: Fields) -> bool:
        """Process a message of the other end. Returns False, and ends the connection, if it is
        invalid.
        """
        name = fields.get("name")
        if not isinstance(name, str):
            return False
        if fields.get("do") == END:
            return self.remove(name, site)
        connection = self._find(name, site)
        if connection is None:
            return False
        is_written = fields.get("do") == BYTES and _write_piece(connection, fields)
        if not is_written:
            self.remove(name, site)
        return is_written

    def remove(self, name: str, site: str) -> bool:
        """Close a connection of a site. Returns False if there is none."""
        with self._lock:
            value = self._open.get(name)
            if value is None or value.site != site:
                return False
            del self._open[name]
        value.close()
        return True

    def close(self) -> None:
        """Close all connections and accept no more."""
        with self._lock:
            self._is_closed = True
            ending = list(self._open.values())
            self._open.clear()
        for connection in ending:
            connection.close()

    def _find(self, name: str, site: str) -> Connection | None:
        with self._lock:
            value = self._open.get(name)
        if value is None or value.site != site:
            return None
        return value


def _write_piece(connection: Connection, fields: Fields) -> bool:
    """Write a piece. Returns False for an invalid one."""
    number = fields.get("place")
    piece = fields.get("bytes")
    if type(number) is not int or type(piece) is not bytes or len(piece) > PIECE:
        return False
    return connection.write(number, piece)


class Entrance:
    """End at a site. ``carry`` sends to the server. ``port`` 0 chooses a free port.

    Raises OSError if the port is in use.
    """

    def __init__(self, carry: Carry, port: int) -> None:
        self._carry = carry
        self._connections = TunnelConnections()
        self._is_closed = Event()
        self._server = socket.create_server((LOOPBACK, port))
        self.port: int = self._server.getsockname()[1]
        Thread(target=self._accept, name="entrance", daemon=True).start()

    def take(self, fields: Fields) -> bool:
        """Process a message of the server about a connection of this site."""
        return self._connections.take("", fields)

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._is_closed.set()
        with suppress(OSError):  # on macOS, a listening socket has no peer
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._connections.close()

    def _accept(self) -> None:
        while True:
            try:
                bare, _ = self._server.accept()
            except OSError:
                if self._is_closed.wait(RETRY_SECONDS):
                    return
                continue  # no file descriptors are left, or the client is gone
            connection = Connection(secrets.token_hex(NAME // 2), "", bare)
            if not self._connections.add(connection):
                connection.close()
                continue
            Thread(target=self._begin, args=(connection,), daemon=True).start()

    def _begin(self, connection: Connection) -> None:
        if self._carry({"do": OPEN, "name": connection.name}):
            self._connections.serve(connection, self._carry)
        else:
            self._connections.remove(connection.name, "")


class Exit:
    """End at the server. ``carry`` sends to a site. ``address`` is the coordinator's ``host:port``.

    No other address is ever connected to.
    """

    def __init__(self, carry: CarryTo, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._carry = carry
        self._connections = TunnelConnections()

    def take(self, site: str, fields: Fields) -> bool:
        """Process a message of a site about one of its connections."""
        if fields.get("do") != OPEN:
            return self._connections.take(site, fields)
        name = fields.get("name")
        if not isinstance(name, str) or len(name) != NAME:
            return False
        try:
            bare = socket.create_connection(self._place, CONNECT)
        except OSError:
            return False  # the coordinator is not running
        connection = Connection(name, site, bare)
        if not self._connections.add(connection):
            connection.close()
            return False
        Thread(target=self._serve, args=(connection,), daemon=True).start()
        return True

    def close(self) -> None:
        """Close every connection."""
        self._connections.close()

    def _serve(self, connection: Connection) -> None:
        def carry(fields: Fields) -> bool:
            return self._carry(connection.site, fields)

        self._connections.serve(connection, carry)


def find_port() -> int:
    """Return the port at the site, which the site chooses and not the job.

    Raises ValueError for an invalid port.
    """
    value = os.environ.get(PORT_SETTING, str(PORT))
    if not value.isdecimal() or not 0 < int(value) < 1 << 16:
        raise ValueError(f"{PORT_SETTING} is {value!r}; give a port, such as {PORT}")
    return int(value)
