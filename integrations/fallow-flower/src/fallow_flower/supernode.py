"""Site's end of Flower: a SuperNode with outgoing connections only."""

from __future__ import annotations

from pathlib import Path

from fallow.core.events import EventHandler, ignore_event
from fallow.core.types import SiteId
from fallow_flower.processes import (
    Child,
    command,
    environment,
    free_port,
    write_commands,
)

COMMANDS = ("flower-superexec", "flwr-clientapp")


class Supernode:
    """SuperNode that runs as long as the site's process.

    ``folder`` has its files. ``superlink`` is the ``host:port`` of the coordinator. ``authority``
    is the certificate authority of the coordinator (None: those of the operating system). ``key``
    is the node's key from `new_node_key`. ``socket`` is the socket of `serve_socket`. ``problem``
    is the connection error that the SuperNode reports.
    """

    def __init__(
        self,
        folder: Path,
        site: SiteId,
        superlink: str,
        key: Path,
        socket: Path,
        authority: Path | None = None,
        notify: EventHandler = ignore_event,
    ) -> None:
        home = folder.absolute()
        commands = write_commands(home / "bin", COMMANDS)
        self._site = site
        self._superlink = superlink
        self._key = key
        self._authority = authority
        env = environment(home / "home", [commands], socket)
        self._child = Child(
            "supernode",
            self._line,
            env,
            home / "log" / "supernode.log",
            self._explain,
            notify,
        )

    @property
    def problem(self) -> str | None:
        """Return why it does not reach the coordinator, or None."""
        if self._child.problem or "Connection attempt failed" not in self._child.last():
            return self._child.problem
        return (
            f"the coordinator at {self._superlink} does not answer: if that lasts, check the "
            "address"
        )

    @property
    def pid(self) -> int | None:
        """Return its process ID, if it is running."""
        return self._child.pid

    def start(self) -> None:
        """Start it and restart it whenever it ends."""
        self._child.start()

    def stop(self) -> None:
        """Terminate it, and kill it after a timeout."""
        self._child.stop()

    def _line(self) -> list[str]:
        line = command("flower-supernode", "--superlink", self._superlink)
        if self._authority is not None:
            line += ["--root-certificates", str(self._authority)]
        line += ["--auth-supernode-private-key", str(self._key)]
        line += ["--port", str(free_port())]
        return line

    def _explain(self, written: str) -> str | None:
        """Explain in words for the site why a SuperNode has ended."""
        text = written.lower()
        at = f"the coordinator at {self._superlink}"
        if "certificate verify failed" in text or "ssl/tls handshake error" in text:
            return (
                f"{at} did not show a certificate for that address of the authority in "
                f"{self._authority or 'this system'}: another machine may impersonate it, or "
                f"its certificate does not name this address; contact the coordinator through "
                f"another channel"
            )
        if "invalid supernode authentication" in text or "failed to initialize" in text:
            return (
                f"site {self._site} is not registered with {at} yet: it may just have "
                "started, or may not have admitted this site (send join.json); this machine's "
                "clock may be seconds ahead of the coordinator's, or minutes behind; or this site "
                "was ended by force less than a minute ago"
            )
        return None
