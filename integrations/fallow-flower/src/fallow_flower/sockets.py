"""Local socket through which Flower's app exchanges messages with this process."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Protocol

from fallow.storage.files import FILE, private_folder
from fallow_flower.app.fallow_pipe.pipe import LOST, MESSAGE, REPLY, read, write

MAX_PATH_BYTES = 100  # longest path in bytes; operating systems permit 104 or 108
POLL_SECONDS = 0.25  # seconds until a stop is noticed


@contextmanager
def private_socket(folder: Path) -> Iterator[Path]:
    """Yield a socket path that no other user can access.

    The path is ``folder/socket``. If that is too long, it is in a new temporary folder, which is
    removed at the end.
    """
    path = folder.absolute() / "socket"
    is_short = len(os.fsencode(path / "s+")) <= MAX_PATH_BYTES
    if not is_short:
        path = Path(tempfile.mkdtemp(prefix="fallow-"))
    private_folder(path)
    try:
        yield path / "s"
    finally:
        (path / "s").unlink(missing_ok=True)
        if not is_short:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Yield a listening socket at ``path``, replacing that of a dead process."""
    fresh = path.with_name(path.name + "+")
    fresh.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(os.fspath(fresh))
        fresh.chmod(FILE)  # before it is visible under its name
        server.listen()
        server.settimeout(POLL_SECONDS)
        fresh.replace(path)  # clients that see it can connect
        yield server


def accept(server: socket.socket) -> socket.socket | None:
    """Return the next connection, or None after a short wait."""
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return None
    except OSError:  # no file descriptors are left, or the client is gone
        time.sleep(POLL_SECONDS)
        return None
    connection.settimeout(None)
    return connection


FAILED = b"the process of the site could not answer; it is tried again"
"""Message about an error, whose own text may quote data."""


def serve_socket(path: Path, handle: Callable[[bytes], bytes], stop: Event) -> None:
    """Reply to each message with ``handle(message)``, one at a time, until ``stop`` is set.

    ``handle`` should not raise. If it does, the message counts as lost and is sent again.
    """
    one = Lock()
    with listening(path) as server:
        while not stop.is_set():
            connection = accept(server)
            if connection is not None:
                Thread(target=_serve, args=(connection, handle, one), daemon=True).start()


def _serve(connection: socket.socket, handle: Callable[[bytes], bytes], one: Lock) -> None:
    """Reply to the single message of a connection."""
    with connection:
        try:
            frame = read(connection)
            if frame is None:
                return
            kind, payload = frame
            if kind != MESSAGE:
                raise ValueError(f"a site takes messages, not frames of the kind {kind!r}")
            with one:
                reply = handle(payload)
            write(connection, REPLY, reply)
        except OSError:
            return  # the client is gone and will send the message again
        except Exception:
            write(connection, LOST, FAILED)


class NodeProcess(Protocol):
    """Process that delivers messages to a socket."""

    @property
    def problem(self) -> str | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class SocketNode:
    """A node and its socket, active between `start` and `stop`.

    ``folder`` contains the socket. ``make_node`` receives its path.
    """

    def __init__(
        self,
        folder: Path,
        handle: Callable[[bytes], bytes],
        make_node: Callable[[Path], NodeProcess],
    ) -> None:
        self._stack = ExitStack()
        self._ended = Event()
        at = self._stack.enter_context(private_socket(folder))
        self._node = make_node(at)
        self._server = Thread(
            target=serve_socket,
            args=(at, handle, self._ended),
            name="instructions",
            daemon=True,
        )

    @property
    def problem(self) -> str | None:
        """Return why the node is not connected, or None."""
        return self._node.problem

    def start(self) -> None:
        """Start to handle messages."""
        self._server.start()
        self._node.start()

    def stop(self) -> None:
        """Stop the node and remove the socket."""
        self._node.stop()
        self._ended.set()
        self._server.join()
        self._stack.close()
