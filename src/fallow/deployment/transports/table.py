"""Transports by name."""

from __future__ import annotations

from fallow.core.events import Say
from fallow.core.extensions import load_extension
from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.folder import CoordinatorFolder
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.transports import flower, https, nvflare
from fallow.deployment.transports.base import (
    Endpoints,
    Handle,
    ServedTransport,
    SiteNode,
    TransportFactory,
)
from fallow.transport.kinds import FLOWER, HTTPS, NVFLARE, TRANSPORT

ENDPOINTS: dict[str, Endpoints] = {
    FLOWER: flower.ENDPOINTS,
    HTTPS: https.ENDPOINTS,
    NVFLARE: nvflare.ENDPOINTS,
}


def open_transport(office: CoordinatorFolder, say: Say) -> ServedTransport:
    """Return the coordinator's end of the agreed transport."""
    return _find_endpoints(office.agreement).open(office, say)


def connect(folder: SiteFolder, handle: Handle) -> SiteNode:
    """Return a site's end of the agreed transport."""
    return _find_endpoints(folder.agreement).connect(folder, handle)


def _find_endpoints(agreement: Agreement) -> Endpoints:
    """Return the ends of the agreed transport, of Fallow or of an allowed distribution."""
    if agreement.transport in ENDPOINTS:
        return ENDPOINTS[agreement.transport]
    factory: type[TransportFactory] = load_extension(
        TRANSPORT, agreement.transport, agreement.names
    )
    return Endpoints(factory.open, factory.connect)
