"""Endpoints of `HttpsTransport`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.core.events import Say
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.transports.base import Endpoints, Handle, ServedTransport, SiteNode

if TYPE_CHECKING:
    from fallow.transport.https import Calling


def open_transport(office: CoordinatorFolder, say: Say) -> ServedTransport:
    """Create the HTTPS server in this process."""
    from fallow.transport.https import HttpsTransport, Listening

    server = office.server
    tls = None if server.behind_proxy else office.tls
    listening = Listening(office.address, tls, server.clients)
    revoked = office.revoked
    keys = {site: key for site, key in office.keys.sites.items() if site not in revoked}
    return HttpsTransport(listening, office.agreement.digest, keys, say)


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Start a thread that sends requests to the coordinator."""
    from fallow.transport.https import Calling, Pair

    own = folder.settings
    if own.address is None:
        raise ValueError(
            f"site {folder.name} has no address of its coordinator: write address = "
            f'"host:port" into {folder.path / "site.toml"}'
        )
    pair = None
    if own.own_certificate is not None and own.own_key is not None:
        pair = Pair(folder.path / own.own_certificate, folder.path / own.own_key)
    calling = Calling(own.address, folder.authority, pair, own.proxy)
    return call(calling, folder, handle)


def call(calling: Calling, folder: SiteFolder, handle: Handle) -> SiteNode:
    """Create the node of a site that connects as ``calling`` specifies."""
    from fallow.transport.https import HttpsNode

    digest = folder.agreement.digest
    return HttpsNode(calling, folder.name, digest, folder.keys.sign, handle)


ENDPOINTS = Endpoints(open_transport, connect)
