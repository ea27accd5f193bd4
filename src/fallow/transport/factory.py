"""Interface of a transport that a study can name, and the queue of its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import ClassVar, Protocol

from fallow.core.events import EventHandler
from fallow.core.types import SiteId
from fallow.transport.address import EVERYWHERE
from fallow.transport.envelope import Transport
from fallow.transport.tls import Pair, Tls

Handle = Callable[[bytes], bytes]
"""Function that replies to an instruction."""


Replies = Queue[tuple[SiteId, bytes]]
"""Received replies, oldest first."""


def collect_replies(waiting: Replies, seconds: float) -> list[tuple[SiteId, bytes]]:
    """Return all queued replies after waiting up to ``seconds`` for the first one."""
    replies: list[tuple[SiteId, bytes]] = []
    try:
        replies.append(waiting.get(timeout=max(seconds, 0.0)))
        while True:
            replies.append(waiting.get_nowait())
    except Empty:
        return replies


class ServedTransport(Transport, Protocol):
    """Transport that starts after the coordinator has locked its folder.

    ``limit`` sets the largest size of a reply in bytes. Larger replies need not be read. ``revoke``
    ends the connections of a site whose keys were revoked.
    """

    def start(self) -> object: ...
    def limit(self, bound: Callable[[SiteId], int]) -> None: ...
    def revoke(self, site: SiteId) -> None: ...


class SiteNode(Protocol):
    """Connection of a site to its coordinator. ``problem`` is the connection error, or None."""

    @property
    def problem(self) -> str | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True)
class CoordinatorEnd:
    """Input of a transport from a coordinator.

    Parameters
    ----------
    folder
        Folder of the coordinator; a transport writes into a subfolder.
    study
        Digest of the agreement.
    sites
        Names of the sites in the agreement.
    address
        ``host:port`` to listen at.
    tls
        Certificate files, or None if another program on this machine terminates TLS.
    clients
        Authority of site certificates, or None if sites show none.
    keys
        Public signing keys of the admitted sites that were not revoked.
    transport_keys
        The public keys that `TransportFactory.make_key` returned at these sites.
    """

    folder: Path
    study: str
    sites: tuple[SiteId, ...]
    address: str
    tls: Tls | None
    clients: Path | None
    keys: Mapping[SiteId, bytes]
    transport_keys: Mapping[SiteId, str]


@dataclass(frozen=True)
class SiteEnd:
    """Input of a transport from a site.

    Parameters
    ----------
    folder
        Folder of the site; a transport writes into a subfolder.
    name
        Name of the site.
    study
        Digest of the agreement.
    address
        ``host:port`` of the coordinator.
    authority
        Certificates that authenticate the coordinator (None: those of the operating system).
    secret
        Private signing key.
    pair
        Certificate that this site shows, or None.
    proxy
        Proxy between this site and the network, or None.
    """

    folder: Path
    name: SiteId
    study: str
    address: str
    authority: Path | None
    secret: bytes
    pair: Pair | None = None
    proxy: str | None = None

    @property
    def keys(self) -> Path:
        """Return the folder of the site's private keys."""
        return self.folder / "keys"


class TransportFactory:
    """Base class of transports (entry points ``fallow.transports``).

    The class itself is used, never an instance. A transport implements `open` and `connect`; the
    other functions have defaults.

    Attributes
    ----------
    title
        Name for display.
    packages
        Required packages that the distribution of the transport does not require itself.
    extra
        Extra of Fallow that installs them.
    is_plain_https
        Both machines may use their own certificates, and a proxy may be in between.
    listen
        Default address of the coordinator.
    nearby
        Default address for a site, or None if a site must set it.
    """

    title: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    is_plain_https: ClassVar[bool] = False
    listen: ClassVar[str] = EVERYWHERE
    nearby: ClassVar[str | None] = None

    @staticmethod
    def open(end: CoordinatorEnd, notify: EventHandler) -> ServedTransport:
        """Return the coordinator's end."""
        raise NotImplementedError

    @staticmethod
    def connect(end: SiteEnd, handle: Handle) -> SiteNode:
        """Return a site's end, which passes each instruction to ``handle``."""
        raise NotImplementedError

    @staticmethod
    def prepare(end: CoordinatorEnd) -> None:
        """Write the transport's own files into the folder of a new coordinator."""

    @staticmethod
    def describe_start(folder: Path) -> list[str]:
        """Return further commands that start a study, for the owner of a coordinator's folder."""
        return []

    @staticmethod
    def make_key(keys: Path) -> str:
        """Create the transport's own key in a site's folder of keys, unless it exists.

        Return the public key, which ``join.json`` takes to the coordinator, or "" without one.
        """
        return ""

    @staticmethod
    def check_key(key: str) -> None:
        """Raise ValueError for the public key of a site that `make_key` cannot have returned."""
        if key:
            raise ValueError("is not empty, but this transport has no keys")

    @staticmethod
    def check_site(keys: Path) -> None:
        """Raise StorageError if the transport lacks a file in a site's folder of keys."""
