"""Transports by name."""

from __future__ import annotations

from fallow.core.events import Say
from fallow.core.extensions import load_extension
from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.links import flower, https, nvflare
from fallow.deployment.links.ends import Ends, Handle, ServedLink, SiteNode, Transport
from fallow.deployment.site.folder import SiteFolder
from fallow.transport.links import FLOWER, HTTPS, NVFLARE, TRANSPORT

ENDS: dict[str, Ends] = {
    FLOWER: flower.ENDS,
    HTTPS: https.ENDS,
    NVFLARE: nvflare.ENDS,
}


def open_link(office: CoordinatorFolder, say: Say) -> ServedLink:
    """Return the coordinator's end of the agreed transport."""
    return _find_ends(office.agreement).open(office, say)


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Return a site's end of the agreed transport."""
    return _find_ends(folder.agreement).connect(folder, handle)


def _find_ends(agreement: Agreement) -> Ends:
    """Return the ends of the agreed transport, of Fallow or of an allowed distribution."""
    if agreement.link in ENDS:
        return ENDS[agreement.link]
    transport: type[Transport] = load_extension(TRANSPORT, agreement.link, agreement.names)
    return Ends(transport.open, transport.connect)
