"""Frames on a local socket: 8 bytes of length, 1 byte that says what comes, and the payload."""

from __future__ import annotations

import os
import socket
import struct

HEAD = struct.Struct(">Qc")  # length of the payload, and what comes
NUMBER = struct.Struct(">Q")  # of a message
NODE = struct.Struct(">QQ")  # number of a message, and its node
LIMIT = 1 << 31  # bytes of a payload; Flower carries no more
SOCKET = "FALLOW_SOCKET"  # environment: the socket of the coordinator or of the site

MESSAGE = b"m"  # payload; to the coordinator's app: number and node, payload
ANSWER = b"a"  # payload; from the coordinator's app: number, payload
LOST = b"l"  # why there is no answer; from the coordinator's app: number, why
NODES = b"n"  # JSON: [[node, name, when it came], ...] of those online


def connect() -> socket.socket:
    """A connection to the process that this app serves."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ[SOCKET])
    return connection


def write(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    """Send one frame."""
    if len(payload) > LIMIT:
        raise ValueError(f"a message of {len(payload)} bytes is over the limit of {LIMIT}")
    connection.sendall(HEAD.pack(len(payload), kind))
    if payload:  # the reader of an empty one may be gone by now
        connection.sendall(payload)


def read(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """The kind and the payload of the next frame; None where the other side ended."""
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
    """``size`` bytes; they are taken as they come, so an announced size alone costs no memory."""
    parts: list[bytes] = []
    missing = size
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
