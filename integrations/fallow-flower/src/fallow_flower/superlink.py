"""Coordinator's end of Flower: a SuperLink that authenticates sites by key, and its run."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
from collections.abc import Mapping, Set
from pathlib import Path

import tomlkit

from fallow.core.events import EventHandler, ignore_event
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId, Tree
from fallow.storage.files import FILE, OTHERS, private_folder, write_private, write_whole
from fallow.transport.address import find_reachable
from fallow.transport.tls import Tls
from fallow_flower.launch import APP
from fallow_flower.processes import Child, command, environment, write_commands

COMMANDS = ("flower-superexec", "flwr-serverapp")
NAME = "fallow"  # name of the connection in Flower's private configuration
TIMEOUT = 120.0  # timeout of a command in seconds
KNOWN = "already in use"  # in Flower's message about a key that it has stored


class Superlink:
    """SuperLink that runs as long as the coordinator's process.

    ``folder`` has its files, among them the database that preserves nodes and keys. ``address`` is
    the ``host:port`` to listen at. ``tls`` is from `new_tls`. ``socket`` is the socket of the
    coordinator.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        tls: Tls,
        socket: Path,
        notify: EventHandler = ignore_event,
    ) -> None:
        self._folder = folder.absolute()
        self._tls = tls
        self._host, _, port = address.rpartition(":")
        if not self._host or not port.isdigit():
            raise ValueError(f"{address!r} is not an address to listen at; write host:port")
        self._port = int(port)
        commands = write_commands(self._folder / "bin", COMMANDS)
        env = environment(self._folder / "home", [commands], socket)
        self._child = Child(
            "superlink",
            self._line,
            env,
            self._folder / "log" / "superlink.log",
            self._explain,
            notify,
        )
        self._env = env

    @property
    def problem(self) -> str | None:
        """Return why it does not run, or None."""
        return self._child.problem

    @property
    def pid(self) -> int | None:
        """Return its process ID, if it is running."""
        return self._child.pid

    @property
    def local(self) -> str:
        """Return its address for this machine."""
        return find_reachable(f"{self._host}:{self._port}")

    def start(self) -> None:
        """Write its configuration and start it."""
        home = Path(self._env["FLWR_HOME"])
        private_folder(home)
        here = {
            "address": self.local,
            "root-certificates": os.fspath(self._tls.authority.absolute()),
        }
        known = {"superlink": {"default": NAME, NAME: here}}
        write_private(home / "config.toml", tomlkit.dumps(known))
        self._child.start()

    def stop(self) -> None:
        """Terminate it, and kill it after a timeout."""
        self._child.stop()

    def is_ready(self) -> bool:
        """Return whether it replies. Raises ValueError for an unexpected certificate."""
        if self.pid is None:
            return False
        host, _, port = self.local.rpartition(":")
        context = ssl.create_default_context(cafile=os.fspath(self._tls.authority))
        try:
            with (
                socket.create_connection((host.strip("[]"), int(port)), 2.0) as plain,
                context.wrap_socket(plain, server_hostname=host.strip("[]")),
            ):
                return True
        except ssl.SSLCertVerificationError as error:
            raise ValueError(
                f"{self._tls.certificate} is not a certificate of {self._tls.authority} for "
                f"{host}: {error.verify_message}"
            ) from error
        except OSError:
            return False

    def admit(self, nodes: Mapping[SiteId, str]) -> None:
        """Register exactly these public keys under the names of their sites.

        A changed key of a site replaces the old one. If this process was killed after Flower stored
        a key, the node of that key is found as the only registered one of no site.
        """
        file = self._folder / "nodes.json"
        listed = self._flwr("supernode", "list", NAME, "--format", "json").get("nodes", [])
        alive: set[str] = set()
        for details in listed:
            if details["status"] != "unregistered":
                alive.add(details["node-id"])
        known: dict[SiteId, tuple[str, str]] = {}
        if file.exists():
            known = json.loads(file.read_text())
        for site, (line, node) in list(known.items()):
            if nodes.get(site) != line and node in alive:
                self._unregister(node)
                alive.remove(node)
            if nodes.get(site) != line or node not in alive:
                del known[site]
        orphans = alive - {node for _, node in known.values()}
        for site, line in sorted(nodes.items()):
            if site not in known:
                known[site] = (line, self._register(site, line, orphans))
                orphans.discard(known[site][1])
                _write_nodes(file, known)
        for node in orphans:
            self._unregister(node)
        _write_nodes(file, known)

    def run(self) -> None:
        """Start the app that carries messages."""
        self._flwr("run", os.fspath(APP), NAME, "--format", "json")

    def end_runs(self) -> None:
        """End all runs, including those of an earlier coordinator process."""
        runs = self._flwr("list", NAME, "--format", "json").get("runs", [])
        for run in runs:
            if not run["status"].startswith("finished"):  # it may finish in the meantime
                self._flwr("stop", run["run-id"], NAME, "--format", "json", is_needed=False)

    def _register(self, site: SiteId, line: str, orphans: Set[str]) -> str:
        """Return the node of a public key. ``orphans`` are registered nodes of no site."""
        public = self._folder / "node.pub"
        write_private(public, line.strip() + "\n")
        try:
            value = self._flwr(
                "supernode",
                "register",
                str(public),
                NAME,
                "--name",
                site,
                "--format",
                "json",
            )
        except RunHalted as error:
            if KNOWN in str(error) and len(orphans) == 1:
                return next(iter(orphans))
            raise
        return str(value["node-id"])

    def _unregister(self, node: str) -> None:
        self._flwr("supernode", "unregister", node, NAME, "--format", "json")

    def _flwr(self, *arguments: str, is_needed: bool = True) -> Tree:
        """Return the output of a Flower command. Raises RunHalted with its message if it fails."""
        done = subprocess.run(
            command("flwr", *arguments),
            env=self._env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            umask=OTHERS,
        )
        answer: Tree = {}
        start = done.stdout.find("{")
        if start >= 0:
            answer = json.loads(done.stdout[start:])
        if is_needed and not answer.get("success"):
            why = answer.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
            raise RunHalted(f"Flower could not do 'flwr {' '.join(arguments[:2])}': {why}")
        return answer

    def _line(self) -> list[str]:
        return command(
            "flower-superlink",
            "--host",
            self._host.strip("[]"),
            "--port",
            str(self._port),
            "--ssl-ca-certfile",
            str(self._tls.authority),
            "--ssl-certfile",
            str(self._tls.certificate),
            "--ssl-keyfile",
            str(self._tls.key),
            "--database",
            str(self._folder / "superlink.sqlite"),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )

    def _explain(self, written: str) -> str | None:
        if "address already in use" in written.lower():
            return (
                f"another program uses {self._host}:{self._port}: end it, or write another address "
                "into coordinator.json and send it to the sites (address in site.toml)"
            )
        return None


def _write_nodes(file: Path, known: Mapping[SiteId, tuple[str, str]]) -> None:
    """Write the public key and the node of each site."""
    write_whole(file, json.dumps(known).encode(), FILE)
