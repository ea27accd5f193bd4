"""Server of the labeling page."""

from __future__ import annotations

import html
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer

from fallow.deployment.labeling_page.access import TokenAccess
from fallow.deployment.labeling_page.app import create_app
from fallow.deployment.labeling_page.label_queue import LabelQueue
from fallow.deployment.labeling_page.local_server import HOME, build_server, listen
from fallow.deployment.labeling_page.login import ProxyAccess
from fallow.storage.files import FILE, write_whole

WAY_IN = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>Back to labeling</title>
</head>
<body><p><a href="{address}">Back to labeling</a></p></body>
</html>
"""
"""File that forwards a browser to the page."""


def serve(
    queue: LabelQueue,
    notify: Callable[[str], None],
    port: int = 0,
    annotator: str | None = None,
    opened_from: Path | None = None,
    *,
    host: str = HOME,
) -> None:
    """Serve the page until Ctrl-C. ``notify`` receives the address first.

    ``port=0`` chooses a free port. ``opened_from`` is a private folder for a file that opens the
    page in a browser if this machine has a screen. With None, no browser is opened. ``host`` is the
    address to listen on. Browsers use 127.0.0.1 or localhost in any case.

    Raises StorageError if the port is in use.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(listen(port, host))
        access = TokenAccess(listener.getsockname()[1])
        server = build_server(create_app(queue, access, annotator))
        notify(access.address)
        if opened_from is not None and _has_screen():
            file = opened_from / f"label-{access.port}.html"
            way = stack.enter_context(_way_in(file, access.address))
            Timer(0.3, webbrowser.open, (way,)).start()
        server.run(sockets=[listener])


@contextmanager
def _way_in(file: Path, address: str) -> Iterator[str]:
    """Yield the address of a private file that forwards a browser to the page.

    All accounts of a machine can see the arguments of a process, so the address with the token must
    not be one of them.
    """
    page = WAY_IN.format(address=html.escape(address))
    write_whole(file, page.encode(), mode=FILE)
    try:
        yield file.absolute().as_uri()
    finally:
        file.unlink(missing_ok=True)


def serve_behind_proxy(
    queue: LabelQueue, notify: Callable[[str], None], access: ProxyAccess, address: str
) -> None:
    """Serve a reverse proxy at ``host:port`` until Ctrl-C. ``notify`` receives the public address.

    Raises StorageError if the port is in use.
    """
    host, _, port = address.rpartition(":")
    with listen(int(port), host.strip("[]")) as listener:
        server = build_server(create_app(queue, access))
        notify(access.address)
        server.run(sockets=[listener])


def _has_screen() -> bool:
    """Return whether a screen is available. Otherwise a text browser would take the terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
