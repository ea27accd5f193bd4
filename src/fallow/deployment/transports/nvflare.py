"""Endpoints of the transport ``nvflare``: HTTPS through a job of NVFlare."""

from __future__ import annotations

from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.transports.base import Endpoints, Handle, SiteNode
from fallow.deployment.transports.https import call, open_transport
from fallow.transport.kinds import NVFLARE, TRANSPORTS

TUNNEL = "the NVFlare job that forwards to it"


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Start a thread that sends requests to a local port."""
    from fallow.transport.https import Calling

    address = folder.settings.address
    if address is None:
        raise ValueError(
            f"site {folder.name} has no address of the NVFlare job: write address = "
            f'"{TRANSPORTS[NVFLARE].nearby}" into {folder.path / "site.toml"}'
        )
    calling = Calling(address, folder.authority, tunnel=TUNNEL)
    return call(calling, folder, handle)


ENDPOINTS = Endpoints(open_transport, connect)
