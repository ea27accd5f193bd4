"""The page as a server on this machine, for as long as its process lives."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from threading import Timer

from fallow.federation.page.app import create_app
from fallow.federation.page.desk import LabelQueue
from fallow.federation.page.door import Door
from fallow.federation.page.local_server import build_server, listen
from fallow.federation.page.login import ProxyDoor


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
    with listen(port) as listener:
        door = Door(listener.getsockname()[1])
        server = build_server(create_app(desk, door, who))
        say(door.address)
        if opens_browser and _has_screen():
            Timer(0.3, webbrowser.open, (door.address,)).start()
        server.run(sockets=[listener])


def serve_behind_proxy(
    desk: LabelQueue, say: Callable[[str], None], door: ProxyDoor, address: str
) -> None:
    """Serve a reverse proxy, at ``host:port``, until Ctrl-C.  ``say`` is told what people open.

    Raises Failed when the port is taken.
    """
    host, _, port = address.rpartition(":")
    with listen(int(port), host.strip("[]")) as listener:
        server = build_server(create_app(desk, door))
        say(door.address)
        server.run(sockets=[listener])


def _has_screen() -> bool:
    """Without one, a text browser would take the terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
