"""Ends of the agreed transport, from the folders of a coordinator and of a site."""

from __future__ import annotations

from collections.abc import Callable

from fallow.core.events import EventHandler
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SETTINGS, SiteFolder
from fallow.transport.factory import Handle, ServedTransport, SiteEnd, SiteNode
from fallow.transport.tls import Pair

Connect = Callable[[SiteFolder, Handle], SiteNode]
"""Factory of the node that carries instructions to a site."""


def open_transport(office: CoordinatorFolder, notify: EventHandler) -> ServedTransport:
    """Return the coordinator's end of the agreed transport."""
    return office.agreement.transport_factory.open(office.end, notify)


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
