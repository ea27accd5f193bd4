"""Endpoints of `FlowerTransport`."""

from __future__ import annotations

from pathlib import Path

from fallow.core.events import Say
from fallow.core.types import SiteId
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.transports.base import Endpoints, Handle, ServedTransport, SiteNode
from fallow.transport.flower import FlowerTransport, SocketNode, Supernode


def open_transport(office: CoordinatorFolder, say: Say) -> ServedTransport:
    """Start a SuperLink and its dependencies."""
    revoked = office.revoked
    nodes: dict[SiteId, str] = {}
    for site, details in office.admitted.items():
        if site not in revoked:
            nodes[site] = details["node"]
    return FlowerTransport(office.path / "flower", office.address, office.tls, nodes, say)


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Start a SuperNode, which passes instructions to a local socket."""
    superlink = folder.settings.superlink
    if superlink is None:
        raise ValueError(
            f"site {folder.name} has no address of its coordinator: write superlink "
            f'= "host:port" into {folder.path / "site.toml"}'
        )

    def make_node(at: Path) -> Supernode:
        return Supernode(
            folder=folder.path / "flower",
            site=folder.name,
            superlink=superlink,
            key=folder.node_key,
            socket=at,
            authority=folder.authority,
        )

    return SocketNode(folder.path, handle, make_node)


ENDPOINTS = Endpoints(open_transport, connect)
