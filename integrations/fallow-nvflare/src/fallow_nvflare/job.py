"""NVFlare job that carries a study, as files for submission."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fallow.core.types import SiteId
from fallow.storage.files import write_whole
from fallow.transport.address import find_reachable

FOLDER = "nvflare"
"""Folder of NVFlare files in a coordinator's folder."""
JOB = "job"
KEEP = "keep.py"
SERVER = "server"  # NVFlare's term in a job
APP = "app"
PARTS = Path(__file__).parent / "app"
CODE = "fallow_tunnel"
DIGEST_CHARACTERS = 12  # of the study, in the name of a job


def write_job(
    folder: Path, digest: str, sites: Sequence[SiteId], address: str
) -> Mapping[str, Path]:
    """Write the job with its code and its supervisor into a folder, and return both paths.

    ``digest`` is the hash of the study. ``sites`` are NVFlare's names of the sites that receive the
    job. ``address`` is the ``host:port`` of the coordinator.
    """
    job = folder / JOB
    app = job / APP
    config = app / "config"
    meta = {
        "name": f"fallow-{digest[:DIGEST_CHARACTERS]}",
        "deploy_map": {APP: [SERVER, *sites]},
        "min_clients": 1,  # the study itself has a quorum
        "resource_spec": {},
    }
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "tunnel",
                "path": f"{CODE}.parts.ServerPart",
                "args": {"address": find_reachable(address)},
            }
        ],
    }
    client = {
        "format_version": 2,
        "executors": [
            {
                "tasks": ["none"],
                "executor": {"path": f"{CODE}.parts.SitePart", "args": {}},
            }
        ],
    }
    files = {
        job / "meta.json": meta,
        config / "config_fed_server.json": server,
        config / "config_fed_client.json": client,
    }
    for file, content in files.items():
        write_whole(file, (json.dumps(content, indent=2) + "\n").encode())
    for source in sorted((PARTS / CODE).glob("*.py")):
        write_whole(app / "custom" / CODE / source.name, source.read_bytes())
    write_whole(folder / KEEP, (PARTS / KEEP).read_bytes())
    return {JOB: job, KEEP: folder / KEEP}
