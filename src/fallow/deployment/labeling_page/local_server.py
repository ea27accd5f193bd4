"""Server on the loopback interface for the labeling page, health checks and metrics."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import uvicorn

from fallow.storage.errors import StorageError

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOME = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104  (in a container, whose engine publishes a port on loopback)


def listen(port: int, host: str = HOME) -> socket.socket:
    """Return a listening socket on the loopback interface, or on ``host`` if it is set.

    Requests queue in the socket until a server accepts them. ``port=0`` chooses a free port. Raises
    StorageError if the port is in use.
    """
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        why = str(error.strerror)
        if error.errno == errno.EADDRINUSE:
            why = "another process uses it, perhaps the page of another site"
        raise StorageError(
            f"port {port} cannot be used ({why}): choose another with --port, or "
            "--port 0 for any free port"
        ) from error
    return listener


def build_server(app: Starlette) -> uvicorn.Server:
    """Build a server that sends no server header and logs no addresses.

    Addresses contain row numbers.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)
