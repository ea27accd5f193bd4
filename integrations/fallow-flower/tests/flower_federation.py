"""Run a coordinator's transport and echo sites as processes, for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fallow.core.events import Event
from fallow.transport.tls import Tls, new_tls
from fallow_flower import FlowerTransport, new_node_key
from tests.deployment.children import REPOSITORY, free_port, processes, wait_until


@dataclass
class Federation:
    """``transport`` with the processes of sites by name."""

    root: Path
    address: str
    tls: Tls
    transport: FlowerTransport
    events: list[Event]
    keys: Mapping[str, str]
    """Public key of each node, including strangers."""
    sites: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_site(self, name: str, authority: Path | None = None) -> None:
        trusted = str(authority or self.tls.authority)
        line = [
            sys.executable,
            str(Path(__file__).with_name("flower_echo_site.py")),
            str(self.root / name),
            name,
        ]
        with (self.root / name / "out").open("ab") as out:
            self.sites[name] = subprocess.Popen(
                [*line, self.address, trusted], cwd=REPOSITORY, stdout=out, stderr=out
            )

    def stop_site(self, name: str) -> None:
        """Kill the process of a site, as if its machine had failed."""
        process = self.sites.pop(name)
        process.kill()
        process.wait()

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        """Run one exchange; return the first reply of each site."""
        self.transport.send(messages)
        return self.replies(set(messages), seconds)

    def replies(self, sites: set[str], seconds: float) -> dict[str, bytes]:
        received: dict[str, bytes] = {}
        end = time.monotonic() + seconds
        while set(received) != sites:
            left = end - time.monotonic()
            assert left > 0, (
                f"only {sorted(received)} answered; {self.transport.problem}; {self.events[-9:]}"
            )
            received |= self.transport.receive(min(left, 1.0))
            assert set(received) <= sites
        return received


@contextmanager
def federation(
    root: Path, sites: Sequence[str], strangers: Sequence[str] = ()
) -> Iterator[Any]:
    """Run admitted sites; strangers have a key that the coordinator does not know."""
    tls = new_tls(root / "tls")
    port = free_port()
    lines = {name: new_node_key(root / name / "node") for name in (*sites, *strangers)}
    address = f"127.0.0.1:{port}"
    output = list[Event]()
    nodes = {name: lines[name] for name in sites}
    made = Federation(
        root,
        address,
        tls,
        FlowerTransport(root / "transport", address, tls, nodes, output.append),
        output,
        lines,
    )
    try:
        made.transport.start()
        for name in sites:
            made.start_site(name)
        yield made
    finally:
        for name in list(made.sites):
            made.stop_site(name)
        made.transport.close()
        wait_until(lambda: not left_over(root), 20, "no process is left")


def below(pid: int | None, name: str) -> int:
    """Return the process called ``name`` that ``pid`` started directly or indirectly."""
    assert pid is not None
    running = processes()
    for child, (parent, line) in running.items():
        while name in line and parent in running:
            if parent == pid:
                return child
            parent = running[parent][0]
    raise AssertionError(f"{pid} has no process {name}")


def left_over(root: Path) -> list[str]:
    """Return the processes of Flower that refer to this folder."""
    return [
        line
        for _, line in processes().values()
        if str(root) in line and "launch.py" in line
    ]


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
