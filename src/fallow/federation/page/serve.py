"""The page as a server on this machine, for as long as its process lives."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from threading import Timer

import uvicorn

from fallow.federation.page.app import create_app
from fallow.federation.page.desk import LabelQueue
from fallow.federation.page.door import Door
from fallow.storage.errors import Failed

HOME = "127.0.0.1"


def serve(
    desk: LabelQueue,
    say: Callable[[str], None],
    port: int = 0,
    who: str | None = None,
    opens_browser: bool = True,
) -> None:
    """Serve until Ctrl-C.  ``say`` is told the address first; port 0: any that is free.

    Raises Failed when the port is taken.
    """
    with listening(port) as listener:
        door = Door(listener.getsockname()[1])
        server = server_of(desk, door, who)
        say(door.address)
        if opens_browser and _has_screen():
            Timer(0.3, webbrowser.open, (door.address,)).start()
        server.run(sockets=[listener])


def listening(port: int) -> socket.socket:
    """A socket of this machine alone; requests wait in it until a server takes them."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOME, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise Failed(
            f"port {port} cannot be used ({error.strerror}): choose another with --port, or leave "
            "it out"
        ) from error
    return listener


def server_of(desk: LabelQueue, door: Door, who: str | None = None) -> uvicorn.Server:
    """The server of one site's page."""
    config = uvicorn.Config(
        create_app(desk, door, who),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def _has_screen() -> bool:
    """Without one, a text browser would take the terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
