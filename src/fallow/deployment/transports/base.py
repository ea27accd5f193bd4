"""Interfaces of a transport at the coordinator and at a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fallow.core.events import Say
from fallow.core.types import SiteId
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.transport.envelope import Transport
from fallow.transport.kinds import TransportKind


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


Handle = Callable[[bytes], bytes]
"""Function that replies to an instruction."""
Connect = Callable[[SiteFolder, Handle], SiteNode]
"""Factory of the node that carries instructions to a site."""
Open = Callable[[CoordinatorFolder, Say], ServedTransport]
"""Factory of the coordinator's end."""


class TransportFactory(Protocol):
    """Interface of a transport that a distribution adds (entry points ``fallow.transports``).

    The class itself is used, so both functions are static methods.
    """

    kind: ClassVar[TransportKind]

    @staticmethod
    def open(office: CoordinatorFolder, say: Say) -> ServedTransport:
        """Return the coordinator's end."""
        ...

    @staticmethod
    def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
        """Return a site's end, which passes each instruction to ``handle``."""
        ...


@dataclass(frozen=True)
class Endpoints:
    """Both ends of a transport."""

    open: Open
    connect: Connect
