"""Frames on a local socket: 8 bytes of length, 1 byte for the kind, and the payload."""

from __future__ import annotations

import os
import socket
import struct

HEAD = struct.Struct(">Qc")  # length of the payload, and kind
NUMBER = struct.Struct(">Q")  # number of a message
NODE = struct.Struct(">QQ")  # number of a message, and its node
LIMIT = 1 << 31  # largest payload in bytes, the limit of Flower
SOCKET = (
    "FALLOW_SOCKET"  # environment variable with the socket of the coordinator or the site
)

MESSAGE = b"m"  # payload; to the coordinator's app: number and node, payload
REPLY = b"a"  # payload; from the coordinator's app: number, payload
LOST = b"l"  # reason for a missing reply; from the coordinator's app: number, reason
NODES = b"n"  # JSON: [[node, name, time of connection], ...] of connected nodes


def connect() -> socket.socket:
    """Connect to the process that this app serves."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ[SOCKET])
    return connection


def write(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    """Send one frame."""
    if len(payload) > LIMIT:
        raise ValueError(f"a message of {len(payload)} bytes is over the limit of {LIMIT}")
    connection.sendall(HEAD.pack(len(payload), kind))
    if payload:  # the reader of an empty frame may be gone
        connection.sendall(payload)


def read(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Return the kind and payload of the next frame, or None at the end of the connection."""
    head = _exactly(connection, HEAD.size)
    if head is None:
        return None
    size, kind = HEAD.unpack(head)
    if size > LIMIT:
        raise ValueError(f"a frame of {size} bytes is over the limit of {LIMIT}")
    payload = _exactly(connection, size)
    if payload is None:
        return None
    return kind, payload


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    """Read ``size`` bytes in pieces, so that memory is used for received bytes only."""
    parts: list[bytes] = []
    missing = size
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
