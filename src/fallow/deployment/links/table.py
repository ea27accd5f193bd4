"""Transports by name."""

from __future__ import annotations

from fallow.core.events import Say
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.links import flower, https, nvflare
from fallow.deployment.links.ends import Ends, Handle, ServedLink, SiteNode
from fallow.deployment.site.folder import SiteFolder
from fallow.transport.links import FLOWER, HTTPS, NVFLARE

ENDS: dict[str, Ends] = {
    FLOWER: flower.ENDS,
    HTTPS: https.ENDS,
    NVFLARE: nvflare.ENDS,
}


def open_link(office: CoordinatorFolder, say: Say) -> ServedLink:
    """Return the coordinator's end of the agreed transport."""
    return ENDS[office.agreement.link].open(office, say)


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Return a site's end of the agreed transport."""
    return ENDS[folder.agreement.link].connect(folder, handle)
