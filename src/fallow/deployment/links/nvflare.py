"""Ends of the transport ``nvflare``: HTTPS through a job of NVFlare."""

from __future__ import annotations

from fallow.deployment.links.ends import Ends, Handle, SiteNode
from fallow.deployment.links.https import call, open_link
from fallow.deployment.site.folder import SiteFolder
from fallow.transport.links import LINKS, NVFLARE

TUNNEL = "the NVFlare job that forwards to it"


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Start a thread that sends requests to a local port."""
    from fallow.transport.https import Calling

    address = folder.settings.address
    if address is None:
        raise ValueError(
            f"site {folder.name} has no address of the NVFlare job: write address = "
            f'"{LINKS[NVFLARE].nearby}" into {folder.path / "site.toml"}'
        )
    calling = Calling(address, folder.authority, tunnel=TUNNEL)
    return call(calling, folder, handle)


ENDS = Ends(open_link, connect)
