"""Run a provisioned NVFlare federation as processes on this machine.

NVFlare may be installed in another environment, as at a hospital: ``FALLOW_NVFLARE`` is the
path of its Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fallow_nvflare import JOB, KEEP, write_job
from tests.deployment.children import free_port, processes, wait_until
from tests.transport.https.processes import running_sites
from tests.transport.https.served import STUDY, Served, served

PYTHON = "FALLOW_NVFLARE"
SERVER = "localhost"
ADMIN = "admin@fallow.org"
PROJECT = "hospitals"
KEEPER = "keeper"
SOON = 400.0  # seconds; NVFlare starts a process for each party and each of its jobs
BUILDERS = {
    "workspace.WorkspaceBuilder": {"template_file": ["master_template.yml"]},
    "static_file.StaticFileBuilder": {"config_folder": "config"},
    "cert.CertBuilder": {},
    "signature.SignatureBuilder": {},
}


def find_python() -> str | None:
    """Return the Python that has NVFlare, or None."""
    named = os.environ.get(PYTHON)
    if named is None and find_spec("nvflare") is not None:
        return sys.executable
    return named


needs_nvflare = pytest.mark.skipif(
    find_python() is None, reason=f"nvflare is not installed, and {PYTHON} names no Python"
)


@dataclass
class Flare:
    """NVFlare's server and clients of sites, by name. ports: port of a job at each site."""

    root: Path
    python: str
    ports: dict[str, int]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """Start the server (`SERVER`) or the client of a site."""
        for name in names:
            if name == SERVER:
                module = "nvflare.private.fed.app.server.server_train"
                details = ["-s", "fed_server.json"]
                more = []
            else:
                module = "nvflare.private.fed.app.client.client_train"
                details = ["-s", "fed_client.json"]
                more = [f"uid={name}"]
            settings = ["secure_train=true", *more, "org=fallow", "config_folder=config"]
            environment = {**self.environment}
            if name != SERVER:
                environment["FALLOW_NVFLARE_PORT"] = str(self.ports[name])
            kit = self.kit(name)
            (kit / "transfer").mkdir(exist_ok=True)
            line = [self.python, "-u", "-m", module, "-m", str(kit), *details]
            with (self.root / f"{name}.log").open("ab") as out:
                self.running[name] = subprocess.Popen(
                    [*line, "--set", *settings],
                    cwd=kit,
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                )

    def kill(self, *names: str) -> None:
        """Kill a party and the processes of its jobs."""
        for name in names:
            process = self.running.pop(name)
            process.kill()
            process.wait()
            for pid in self.processes_of(name):
                kill_process(pid)

    def kill_job_of(self, name: str) -> None:
        """Kill only the process of the job at a site or at the server."""
        values = [pid for pid in self.processes_of(name) if pid != self.running[name].pid]
        assert values, f"{name} runs no job"
        for pid in values:
            kill_process(pid)

    def processes_of(self, name: str) -> list[int]:
        """Return the processes of a party and of its jobs, which run below its kit."""
        kit = str(self.kit(name))
        return [pid for pid, (_, line) in processes().items() if kit in line]

    def keep(self, folder: Path) -> None:
        """Start the program that keeps the job of a folder running."""
        with (self.root / f"{KEEPER}.log").open("ab") as out:
            self.running[KEEPER] = subprocess.Popen(
                [self.python, str(folder / KEEP), str(folder / JOB), str(self.kit(ADMIN))],
                cwd=self.root,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )

    def submit(self, job: Path) -> str:
        """Submit a job to the server as an admin; return its number."""
        reply = self.command("job", "submit", "-j", str(job))
        job_id: str = reply["data"]["job_id"]
        return job_id

    def abort(self, job: str) -> None:
        self.command("job", "abort", job, "--force")

    def status(self, job: str) -> str:
        """Return the status of a job at the server."""
        values: str = self.command("job", "meta", job)["data"]["status"]
        return values

    def command(self, *words: str) -> dict[str, Any]:
        """Return the output of an NVFlare command as an object."""
        tool = [str(Path(self.python).with_name("nvflare")), "--format", "json", *words]
        done = subprocess.run(
            [*tool, "--startup-kit", str(self.kit(ADMIN))],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SOON,
            check=False,
        )
        try:
            reply = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError as error:
            raise AssertionError(done.stdout + done.stderr) from error
        assert done.returncode == 0, reply
        outcome: dict[str, Any] = reply
        return outcome

    def kit(self, name: str) -> Path:
        return self.root / "ws" / PROJECT / "prod_00" / name

    def text(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment, with a separate home folder for the state of NVFlare."""
        outcome = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        return {**outcome, "HOME": str(self.root), "PYTHONUNBUFFERED": "1"}

    def provision(self) -> None:
        """Create keys, certificates and settings of all parties with NVFlare's own tool."""
        sites = [{"name": name, "type": "client", "org": "fallow"} for name in self.ports]
        server = {"name": SERVER, "type": "server", "org": "fallow"}
        admin = {"name": ADMIN, "type": "admin", "org": "fallow", "role": "project_admin"}
        project = {
            "api_version": 3,
            "name": PROJECT,
            "description": "sites of this machine",
            "participants": [{**server, "fed_learn_port": free_port()}, *sites, admin],
            "builders": [
                {"path": f"nvflare.lighter.impl.{name}", "args": details}
                for name, details in BUILDERS.items()
            ],
        }
        # JSON is YAML
        (self.root / "project.yml").write_text(json.dumps(project))
        subprocess.run(
            [
                str(Path(self.python).with_name("nvflare")),
                *("provision", "-p", "project.yml", "-w", "ws"),
            ],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SOON,
            check=True,
        )
        # by default, every server puts jobs and snapshots into /tmp/nvflare
        local = self.kit(SERVER) / "local"
        text = (local / "resources.json.default").read_text()
        kept = text.replace("/tmp/nvflare", str(self.root / "kept"))  # noqa: S108
        (local / "resources.json").write_text(kept)

    def close(self) -> None:
        """Stop all processes and check that none is left."""
        for process in self.running.values():
            process.kill()
            process.wait()
        for pid, (_, line) in processes().items():
            if str(self.root) in line and str(self.kit("")) in line:
                kill_process(pid)


def has_said(log: Path, words: str) -> bool:
    return words in log.read_text()


def kill_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def flare(root: Path, sites: Sequence[str]) -> Iterator[Flare]:
    """Run a server and connected clients for all sites, without a job."""
    python = find_python()
    assert python is not None
    root.mkdir(parents=True, exist_ok=True)
    federation = Flare(root, python, {name: free_port() for name in sites})
    federation.provision()
    try:
        federation.start(SERVER, *sites)
        for name in sites:
            log = root / f"{name}.log"
            wait_until(partial(has_said, log, "Successfully registered"), SOON, name)
        yield federation
    finally:
        federation.close()


@contextmanager
def processes_over_nvflare(
    root: Path, sites: Sequence[str]
) -> Iterator[tuple[Served, dict[str, subprocess.Popen[bytes]]]]:
    """Run echo sites over HTTPS through a job of NVFlare, for the benchmark."""
    with served(root, sites) as simulation, flare(root / "flare", sites) as parties:
        write_job(root / "job", STUDY, sites, simulation.address)
        parties.keep(root / "job")
        addresses = {name: f"127.0.0.1:{port}" for name, port in parties.ports.items()}
        with running_sites(root, simulation, addresses) as running:
            yield simulation, running
