"""The transport ``nvflare``: both machines connect to local processes of NVFlare."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from fallow.core.events import EventHandler
from fallow.transport.address import LOCALLY
from fallow.transport.factory import (
    CoordinatorEnd,
    Handle,
    ServedTransport,
    SiteEnd,
    SiteNode,
    TransportFactory,
)
from fallow.transport.kinds import Https
from fallow_nvflare.app.fallow_tunnel.tunnel import PORT
from fallow_nvflare.job import FOLDER, JOB, KEEP, write_job

TUNNEL = "the NVFlare job that forwards to it"


class NVFlare(TransportFactory):
    """HTTPS through a job of NVFlare."""

    title: ClassVar[str] = "NVFlare"
    listen: ClassVar[str] = LOCALLY
    nearby: ClassVar[str | None] = f"127.0.0.1:{PORT}"

    @staticmethod
    def open(end: CoordinatorEnd, notify: EventHandler) -> ServedTransport:
        """Create the HTTPS server, which the job's process at NVFlare's server connects to."""
        return Https.open(end, notify)

    @staticmethod
    def connect(end: SiteEnd, handle: Handle) -> SiteNode:
        """Create the thread that sends requests to the local port of the job."""
        return Https.connect(end, handle, TUNNEL)

    @staticmethod
    def prepare(end: CoordinatorEnd) -> None:
        """Write the job and its supervisor."""
        write_job(end.folder / FOLDER, end.study, end.sites, end.address)

    @staticmethod
    def describe_start(folder: Path) -> list[str]:
        """Describe how to start the job."""
        job = folder / FOLDER / JOB
        return [
            "and, where NVFlare is installed, for the duration of the study:",
            f"  python {folder / FOLDER / KEEP} {job} KIT",
            "(KIT: the startup kit of an NVFlare admin who may submit jobs; the job goes to "
            f"the sites in {job / 'meta.json'}, which must have the names that "
            "NVFlare uses)",
        ]
