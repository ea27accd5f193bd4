"""What a link has to offer to a coordinator and to a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fallow.core.events import Say
from fallow.core.types import SiteId
from fallow.federation.coordinator.folder import CoordinatorFolder
from fallow.federation.site.folder import SiteFolder
from fallow.network.envelope import Link


class ServedLink(Link, Protocol):
    """A link that is begun when the coordinator is sure to be the only one of its folder.

    limit: from now on an answer of a site above so many bytes is worth nothing, so it need not be
    read.
    """

    def start(self) -> object: ...
    def limit(self, most: Callable[[SiteId], int]) -> None: ...


class SiteNode(Protocol):
    """What connects a site to its coordinator.  problem: why it is not connected, or None."""

    @property
    def problem(self) -> str | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


Handle = Callable[[bytes], bytes]
"""Answers an order."""
Connect = Callable[[SiteFolder, Handle], SiteNode]
"""Makes the node that carries orders to a site."""
Open = Callable[[CoordinatorFolder, Say], ServedLink]
"""Makes the coordinator's end."""


@dataclass(frozen=True)
class Ends:
    """A link from both sides."""

    open: Open
    connect: Connect
