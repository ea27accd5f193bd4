"""Ends of the transport ``nvflare``: HTTPS through a job of NVFlare."""

from __future__ import annotations

from fallow.federation.links.ends import Ends, Handle, SiteNode
from fallow.federation.links.https import call, open_link
from fallow.federation.site.folder import SiteFolder
from fallow.network.links import LINKS, NVFLARE

TUNNEL = "the job of NVFlare that leads to it"


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Start a thread that sends requests to a local port."""
    from fallow.network.https import Calling

    address = folder.settings.address
    if address is None:
        raise ValueError(
            f"site {folder.name} does not know where the job of NVFlare listens: write address = "
            f'"{LINKS[NVFLARE].nearby}" into {folder.path / "site.toml"}'
        )
    calling = Calling(address, folder.authority, tunnel=TUNNEL)
    return call(calling, folder, handle)


ENDS = Ends(open_link, connect)
