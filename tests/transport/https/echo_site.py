"""Run a site that answers every message with its name and the message.

``python -m tests.transport.https.echo_site NAME ADDRESS AUTHORITY STUDY KEY``; KEY: a file
with the site's signing key.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

from fallow.transport.https import ConnectionSettings, HttpsNode


def main() -> None:
    name, address, authority, study, key = sys.argv[1:]

    def handle(message: bytes) -> bytes:
        return name.encode() + b":" + message

    calling = ConnectionSettings(address, Path(authority))
    HttpsNode(calling, name, study, Path(key).read_bytes(), handle).start()
    Event().wait()


if __name__ == "__main__":
    main()
