"""A link over HTTPS and echo sites as processes of this machine, for the bench."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.network.flower.federation import REPOSITORY
from tests.network.https.served import STUDY, Served, served


@contextmanager
def processes_of(
    root: Path, sites: Sequence[str]
) -> Iterator[tuple[Served, dict[str, subprocess.Popen[bytes]]]]:
    """The link, and the process of each site, which has just been started."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    with served(root, sites) as world:
        try:
            for name in sites:
                key = root / f"{name}.key"
                key.write_bytes(world.secrets[name])
                about = (name, world.address, str(world.tls.authority), STUDY, str(key))
                with (root / f"{name}.out").open("ab") as out:
                    running[name] = subprocess.Popen(
                        [sys.executable, "-m", "tests.network.https.echo_site", *about],
                        cwd=REPOSITORY,
                        stdout=out,
                        stderr=out,
                    )
            yield world, running
        finally:
            for process in running.values():
                process.kill()
                process.wait()
