"""Run a site that answers every message with its name and the message.

``python flower_echo_site.py FOLDER NAME SUPERLINK AUTHORITY``. A reply to a message that
starts with ``slow`` takes three seconds. Errors of the SuperNode are written to the file
``problem`` in the folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event as Flag

from fallow.core.events import Event
from fallow_flower import Supernode, private_socket, serve_socket


def main() -> None:
    folder, name, superlink, authority = sys.argv[1:]
    home = Path(folder)

    def handle(message: bytes) -> bytes:
        (home / "handled").open("a").write(f"{message[:20].decode(errors='replace')}\n")
        if message.startswith(b"slow"):
            time.sleep(3)
        return name.encode() + b":" + message

    def notify(event: Event) -> None:
        (home / "problem").write_text(str(event["reason"]))

    with private_socket(home) as socket:
        node = Supernode(
            home, name, superlink, home / "node", socket, Path(authority), notify
        )
        node.start()
        serve_socket(socket, handle, Flag())


if __name__ == "__main__":
    main()
