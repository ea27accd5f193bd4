"""A transport over HTTPS and echo sites as processes of this machine, for the benchmark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.deployment.children import REPOSITORY
from tests.transport.https.served import STUDY, Served, served


@contextmanager
def processes_of(
    root: Path, sites: Sequence[str]
) -> Iterator[tuple[Served, dict[str, subprocess.Popen[bytes]]]]:
    """Yield the transport and the newly started process of each site."""
    with served(root, sites) as simulation:
        addresses = dict.fromkeys(sites, simulation.address)
        with running_sites(root, simulation, addresses) as running:
            yield simulation, running


@contextmanager
def running_sites(
    root: Path, simulation: Served, addresses: Mapping[str, str]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run the process of each site; addresses: the address that each site calls."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, address in addresses.items():
            key = root / f"{name}.key"
            key.write_bytes(simulation.secrets[name])
            details = (name, address, str(simulation.tls.authority), STUDY, str(key))
            with (root / f"{name}.out").open("ab") as out:
                running[name] = subprocess.Popen(
                    [sys.executable, "-m", "tests.transport.https.echo_site", *details],
                    cwd=REPOSITORY,
                    stdout=out,
                    stderr=out,
                )
        yield running
    finally:
        for process in running.values():
            process.kill()
            process.wait()
