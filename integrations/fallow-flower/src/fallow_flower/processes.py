"""Supervised child processes: restarted when they end, and ended with this process."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from fallow.core.events import EventHandler, ignore_event
from fallow.storage.files import OTHERS, for_owner_alone, private_folder, write_private
from fallow_flower.app.fallow_pipe.pipe import SOCKET
from fallow_flower.launch import PARENT

LAUNCH = Path(__file__).with_name("launch.py")
# seconds before a process is restarted, doubled from the first to the last value
MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 15.0
SETTLED = 20.0  # seconds after which a process counts as stable
PATIENCE = 8.0  # seconds to terminate before it is killed
KEPT = 8 << 20  # log size in bytes before rotation; one old file is kept
ENDED = "ended by itself"

Explain = Callable[[str], str | None]


def command(name: str, *arguments: str) -> list[str]:
    """Return the command line of one of Flower's commands, guarded by `launch`."""
    return [sys.executable, "-P", os.fspath(LAUNCH), name, *arguments]


def environment(
    folder: Path, path: Sequence[Path], socket: Path | None = None
) -> dict[str, str]:
    """Return the environment of Flower's processes, which write to ``folder`` only.

    ``path`` has the commands that they start. ``socket`` is the socket of their apps.
    """
    inherited: dict[str, str] = {}
    for name, value in os.environ.items():
        if not name.startswith("FLWR_"):
            inherited[name] = value
    local = ",".join(filter(None, [inherited.get("NO_PROXY"), "127.0.0.1,localhost,::1"]))
    result = inherited | {
        "PATH": os.pathsep.join(map(os.fspath, path)),
        "NO_PROXY": local,
        "no_proxy": local,
        "FLWR_HOME": os.fspath(folder.absolute()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": _safe_places(inherited.get("PYTHONPATH", "")),
        PARENT: str(os.getpid()),
    }
    if socket is not None:
        result[SOCKET] = os.fspath(socket.absolute())
    return result


def _safe_places(places: str) -> str:
    """Return PYTHONPATH without entries that are relative to the current folder.

    >>> _safe_places(":/opt/own:lib:")
    '/opt/own'
    """
    parts = places.split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.isabs(part))


def write_commands(folder: Path, names: Sequence[str]) -> Path:
    """Create a folder with scripts for ``names``, the only commands that Flower may start."""
    private_folder(folder.parent)
    private_folder(folder)
    for stale in folder.iterdir():
        stale.unlink()
    for name in names:
        line = shlex.join(command(name))
        write_private(folder / name, f'#!/bin/sh\nexec {line} "$@"\n', mode=0o700)
    return folder


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.socket() as values:
        values.bind(("127.0.0.1", 0))
        port: int = values.getsockname()[1]
        return port


class Child:
    """Process that is restarted whenever it ends, between `start` and `stop`.

    ``problem`` is the reason why it does not run, or None. ``explain`` derives it from the output
    of the process.
    """

    def __init__(
        self,
        name: str,
        line: Callable[[], Sequence[str]],
        env: dict[str, str],
        log: Path,
        explain: Explain = lambda text: None,
        notify: EventHandler = ignore_event,
    ) -> None:
        self.name = name
        self.line = line
        self.env = env
        self.log = log
        self.explain = explain
        self.notify = notify
        self.problem: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._keep, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """Return the process ID, if the process is running."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        return process.pid

    def last(self) -> str:
        """Return the last line of output."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 2000))
            return log.read().decode(errors="replace").strip().rpartition("\n")[2]

    def start(self) -> None:
        """Start the process and restart it whenever it ends."""
        private_folder(self.log.parent)
        self._thread.start()

    def stop(self) -> None:
        """Terminate the process, and kill it after a timeout."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        pause = MIN_RETRY_SECONDS
        while not self._stop.is_set():
            began = monotonic()
            reason = self._run_to_end()
            if self._stop.is_set():
                return
            ran = monotonic() - began
            pause = min(2 * pause, MAX_RETRY_SECONDS)
            if ran > SETTLED:
                pause = MIN_RETRY_SECONDS
            self.problem = reason
            self.notify({"event": "process", "name": self.name, "reason": reason})
            self._stop.wait(pause)

    def _run_to_end(self) -> str:
        """Run the process once and return why it has ended."""
        try:
            code, written = self._once()
        except OSError as error:  # the disk is full, or no memory is left
            return f"{self.name} could not be run: {error}"
        last = written.strip().rpartition("\n")[2] or f"exit code {code}"
        return self.explain(written) or f"{self.name} {ENDED}: {last} (see {self.log})"

    def _once(self) -> tuple[int, str]:
        """Run the process once and return its exit code and the end of its output."""
        if self.log.exists() and self.log.stat().st_size > KEPT:
            self.log.replace(self.log.with_suffix(".old"))
        with open(self.log, "ab", opener=for_owner_alone()) as log:
            start = log.tell()
            # A separate session, so that Ctrl-C in a terminal reaches this process only.
            self._process = subprocess.Popen(
                list(self.line()),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=OTHERS,  # for Flower's database, among others
            )
            code = self._wait(self._process)
        with self.log.open("rb") as log:
            log.seek(max(start, self.log.stat().st_size - 20_000))
            return code, log.read().decode(errors="replace")

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        began = monotonic()
        while not self._stop.wait(0.1):
            if (code := process.poll()) is not None:
                return code
            if self.problem and monotonic() - began > SETTLED:
                self.problem = None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
