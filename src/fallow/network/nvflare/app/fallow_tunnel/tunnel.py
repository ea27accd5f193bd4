"""Both ends of a tunnel for connections; between them anything that hands a few fields over.

The entrance, at a site, listens on the machine itself.  The exit, at the server, opens one
connection to the coordinator for each that the entrance accepted.  What goes through is TLS between
the site's own process and the coordinator's; it is neither read nor kept here.  Where a piece is
lost, its connection is closed at both ends, and whoever used it begins again.

Only the standard library is used, so that a reader has the whole of it here.
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
"""Environment of NVFlare's client at a site: another port than `PORT`."""
LOOPBACK = "127.0.0.1"

PIECE = 1 << 20  # bytes that are carried at once
EACH = 8  # connections of one site; it needs two
ALL = 2048  # connections of all
CONNECT = 10.0  # seconds until the coordinator has accepted
AGAIN = 0.1  # seconds until it is tried again to accept a connection
SLOW = 30  # seconds until who does not read is given up
NAME = 32  # letters of a connection's name

OPEN = "open"
BYTES = "bytes"
END = "end"

Fields = Mapping[str, object]
Carry = Callable[[Fields], bool]
"""Hands fields to the other end, and says whether they were taken there; False where it failed."""
CarryTo = Callable[[str, Fields], bool]
"""The same from the server, to the site of a name."""


class Connection:
    """One end of a connection that is carried.  site: at whose end the entrance is."""

    def __init__(self, name: str, site: str, bare: socket.socket) -> None:
        self.name = name
        self.site = site
        self._socket = bare
        self._expected = 0  # the number of the next piece from the other end
        self._lock = Lock()
        bare.settimeout(None)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SLOW, 0))
        with suppress(OSError):  # a socket of another kind
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_all(self, carry: Carry) -> None:
        """Carry what comes here to the other end, piece by piece, until either end closes."""
        place = 0
        is_taken = True
        while is_taken:
            try:
                piece = self._socket.recv(PIECE)
            except OSError:
                return
            if not piece:
                return
            fields = {"do": BYTES, "name": self.name, "place": place, "bytes": piece}
            is_taken = carry(fields)
            place += 1

    def write(self, place: int, piece: bytes) -> bool:
        """Pass on a piece of the other end; False where it is not the next one, or nobody reads."""
        with self._lock:
            if place != self._expected:
                return False
            self._expected += 1
            try:
                self._socket.sendall(piece)
            except OSError:
                return False
            return True

    def close(self) -> None:
        """End it here; a second time changes nothing."""
        with suppress(OSError):  # it is not connected any more
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Connections:
    """The connections of one end, by their names.  each, most: how many one site and all have."""

    def __init__(self, each: int = EACH, most: int = ALL) -> None:
        self._each = each
        self._most = most
        self._lock = Lock()
        self._open: dict[str, Connection] = {}
        self._is_closed = False

    def add(self, connection: Connection) -> bool:
        """Know a connection from now on; False where there are too many, or its name is taken."""
        with self._lock:
            of_site = [one for one in self._open.values() if one.site == connection.site]
            is_full = len(of_site) >= self._each or len(self._open) >= self._most
            if self._is_closed or is_full or connection.name in self._open:
                return False
            self._open[connection.name] = connection
            return True

    def serve(self, connection: Connection, carry: Carry) -> None:
        """Carry what comes on a connection until it ends, then tell the other end."""
        connection.read_all(carry)
        if self.remove(connection.name, connection.site):
            carry({"do": END, "name": connection.name})

    def take(self, site: str, fields: Fields) -> bool:
        """Do what the other end says; False where that makes no sense, and the connection ends."""
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
        """End a connection of a site; False where there is none."""
        with self._lock:
            value = self._open.get(name)
            if value is None or value.site != site:
                return False
            del self._open[name]
        value.close()
        return True

    def close(self) -> None:
        """End all, and take no more."""
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
    """Pass the piece on; False for what is none."""
    place = fields.get("place")
    piece = fields.get("bytes")
    if type(place) is not int or type(piece) is not bytes or len(piece) > PIECE:
        return False
    return connection.write(place, piece)


class Entrance:
    """The end at a site.  carry: to the server; port: of this machine, 0 for any that is free.

    Raises OSError where the port is in use.
    """

    def __init__(self, carry: Carry, port: int) -> None:
        self._carry = carry
        self._connections = Connections()
        self._is_closed = Event()
        self._server = socket.create_server((LOOPBACK, port))
        self.port: int = self._server.getsockname()[1]
        Thread(target=self._accept, name="entrance", daemon=True).start()

    def take(self, fields: Fields) -> bool:
        """Do what the server says about a connection of this site."""
        return self._connections.take("", fields)

    def close(self) -> None:
        """Listen no more, and end every connection."""
        self._is_closed.set()
        with suppress(OSError):  # macOS: a socket that listens has no other end
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._connections.close()

    def _accept(self) -> None:
        while True:
            try:
                bare, _ = self._server.accept()
            except OSError:
                if self._is_closed.wait(AGAIN):
                    return
                continue  # there are no files left, or who called has gone
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
    """The end at the server.  carry: to a site; address: ``host:port`` of the coordinator, the only
    one to which anything is ever connected."""

    def __init__(self, carry: CarryTo, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._carry = carry
        self._connections = Connections()

    def take(self, site: str, fields: Fields) -> bool:
        """Do what a site says about one of its connections."""
        if fields.get("do") != OPEN:
            return self._connections.take(site, fields)
        name = fields.get("name")
        if not isinstance(name, str) or len(name) != NAME:
            return False
        try:
            bare = socket.create_connection(self._place, CONNECT)
        except OSError:
            return False  # the coordinator does not run just now
        connection = Connection(name, site, bare)
        if not self._connections.add(connection):
            connection.close()
            return False
        Thread(target=self._serve, args=(connection,), daemon=True).start()
        return True

    def close(self) -> None:
        """End every connection."""
        self._connections.close()

    def _serve(self, connection: Connection) -> None:
        def carry(fields: Fields) -> bool:
            return self._carry(connection.site, fields)

        self._connections.serve(connection, carry)


def find_port() -> int:
    """The port of this machine where the entrance listens: the site's choice, never the job's.

    Raises ValueError for what is no port.
    """
    value = os.environ.get(PORT_SETTING, str(PORT))
    if not value.isdecimal() or not 0 < int(value) < 1 << 16:
        raise ValueError(f"{PORT_SETTING} is {value!r}; give a port, such as {PORT}")
    return int(value)
