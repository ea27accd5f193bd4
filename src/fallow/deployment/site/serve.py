"""Process of a site, which handles instructions until it is stopped."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from threading import Event
from time import time
from urllib.request import getproxies

from pydantic import with_config

from fallow.core.events import Event as SiteEvent
from fallow.core.events import EventHandler, is_progress
from fallow.deployment.folders import tighten
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.labeling_tasks import now
from fallow.deployment.site.folder import SETTINGS, SiteFolder
from fallow.deployment.site.host import Host
from fallow.storage.errors import StorageError
from fallow.storage.files import alone, is_held, write_json
from fallow.storage.received import read_regular
from fallow.storage.validation import STRICT, Count, adapter_of
from fallow.transport.address import is_loopback
from fallow.transport.envelope import open_reply
from fallow.transport.factory import Handle, SiteEnd, SiteNode
from fallow.transport.tls import Pair

LOOK = 10.0  # seconds between connection checks
COPIES = 3600.0  # seconds between backups of the ledger
LOCK = "site.lock"
REACH = 3.0  # seconds to connect
Connect = Callable[[SiteFolder, Handle], SiteNode]
"""Factory of the node that carries instructions to a site."""


@with_config(STRICT)
@dataclass(frozen=True)
class ServerState:
    """Process that serves a site, in its ``live.json``.

    ``since`` is the start of the connection, and ``problem`` the reason for a missing one.
    """

    pid: Count | None = 0  # it was just started
    since: str | None = None
    problem: str | None = None


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Return a site's end of the agreed transport.

    Raises ValueError if ``site.toml`` has no address.
    """
    own = folder.settings
    factory = folder.agreement.transport_factory
    if own.address is None:
        raise ValueError(
            f"site {folder.name} has no address of its coordinator: write address = "
            f'"{factory.nearby or "host:port"}" into {folder.path / SETTINGS}'
        )
    pair = None
    if own.own_certificate is not None and own.own_key is not None:
        pair = Pair(folder.path / own.own_certificate, folder.path / own.own_key)
    end = SiteEnd(
        folder=folder.path,
        name=folder.name,
        study=folder.agreement.digest,
        address=own.address,
        authority=folder.authority,
        secret=folder.keys.sign,
        pair=pair,
        proxy=own.proxy,
    )
    return factory.connect(end, handle)


def serve(
    folder: SiteFolder,
    stop: Event,
    notify: EventHandler,
    connect: Connect = connect,
    copies: float = COPIES,
) -> None:
    """Handle instructions until ``stop`` is set, in one process per site.

    ``copies`` is the number of seconds between backups of the ledger. ``notify`` receives
    ``instruction`` (key, bytes, refused), ``encoding`` (done, rows) and ``coordinator``
    (problem, None once it is reached). Raises StorageError if another process serves the site, and
    ValueError for an invalid folder.
    """
    with only_server(folder):
        tighten(folder.path)
        ledger = folder.open_ledger()
        try:
            host = Host(folder, ledger, notify=notify)
            handle = _announce_replies(folder, host.handle, notify)
            with _running(connect(folder, handle)) as node:
                _watch(
                    folder, node, stop, notify=notify, copies=LedgerBackups(ledger, copies)
                )
        finally:
            ledger.close()
            with suppress(OSError):
                (folder.path / "live.json").unlink(missing_ok=True)


@dataclass
class LedgerBackups:
    """Periodic backup of a ledger, so that a lost disk loses few labels."""

    ledger: Ledger
    every: float

    def look(self) -> None:
        """Back up the ledger if the backup is missing or too old."""
        # the ledger itself is safe, and the backup is retried
        with suppress(StorageError, OSError):
            copy = self.ledger.copy
            if not copy.exists() or abs(time() - copy.stat().st_mtime) >= self.every:
                self.ledger.backup()


def only_server(folder: SiteFolder) -> AbstractContextManager[None]:
    """Lock the folder for one process. Raises StorageError for a second one."""
    otherwise = (
        f"site {folder.name} is already running in another process: stop it first "
        f"(fallow site status {folder.path} shows which one)"
    )
    return alone(folder.path / LOCK, otherwise)


@contextmanager
def _running(node: SiteNode) -> Iterator[SiteNode]:
    """Handle instructions until the block ends."""
    node.start()
    try:
        yield node
    finally:
        node.stop()


def _watch(
    folder: SiteFolder,
    node: SiteNode,
    stop: Event,
    *,
    notify: EventHandler,
    copies: LedgerBackups,
) -> None:
    """Report connection changes, update ``live.json``, and back up the ledger."""
    since = now()
    output: list[str | None] = []  # the last problem; empty before the first check
    while True:
        problem = node.problem or unreachable(folder)
        if output != [problem]:
            output = [problem]
            state = ServerState(os.getpid(), since, problem)
            try:
                write_json(folder.path / "live.json", asdict(state))
            except StorageError as error:
                notify({"event": "state", "reason": f"{error}; this site continues"})
            notify({"event": "coordinator", "problem": problem})
        if stop.wait(min(LOOK, copies.every)):
            return
        copies.look()


def _announce_replies(
    folder: SiteFolder, handle: Callable[[bytes], bytes], notify: EventHandler
) -> Callable[[bytes], bytes]:
    """Return ``handle`` with reports about each reply, except progress replies."""

    def reply(instruction: bytes) -> bytes:
        blob = handle(instruction)
        reply = open_reply(folder.keys.verify, blob, folder.name)
        key = reply.key
        event: SiteEvent = {
            "event": "instruction",
            "key": str(key or ""),
            "refused": reply.refused,
            "bytes": len(blob),
        }
        if key is not None:
            event["exchange"] = key
        if reply.refused or not is_progress(event):
            notify(event)
        return blob

    return reply


def unreachable(folder: SiteFolder) -> str | None:
    """Return why the coordinator's machine cannot be reached, or None if it can."""
    own = folder.settings
    address = own.address
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    is_between = own.proxy is not None or "https" in getproxies()
    if is_between and not is_loopback(host.strip("[]")):
        return None  # only the proxy can tell
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH):
            return None
    except OSError as error:
        why = error.strerror or str(error)
        return (
            f"the coordinator at {address} cannot be reached ({why}): it may not run "
            "yet, or a firewall blocks the connection"
        )


def has_ended(ledger: Ledger) -> bool:
    """Return whether the site has replied to the last exchange of its newest run."""
    run = ledger.instructions.newest_run()
    if run is None:
        return False
    _, newest = ledger.instructions.find_position(run)
    return newest is not None and newest.step == "finish"


def read_status(folder: SiteFolder) -> ServerState:
    """Return whether a process serves the site, and its connection state."""
    if not is_held(folder.path / LOCK):
        return ServerState(pid=None, problem=unreachable(folder))
    state = ServerState()
    with suppress(OSError, ValueError):
        content = read_regular(folder.path / "live.json")
        state = adapter_of(ServerState).validate_json(content, strict=True)
    return state
