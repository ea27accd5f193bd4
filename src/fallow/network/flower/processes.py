"""Child processes that are started again when they end, and end when this process does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from fallow.core.events import Say, stay_silent
from fallow.network.flower.app.fallow_pipe.pipe import SOCKET
from fallow.network.flower.launch import PARENT
from fallow.storage.private import OTHERS, for_owner_alone, private_folder, write_private

LAUNCH = Path(__file__).with_name("launch.py")
# seconds before a process is started again; they double from the first to the last
SHORTEST = 1.0
LONGEST = 15.0
SETTLED = 20.0  # seconds after which a process runs well
PATIENCE = 8.0  # seconds to end before it is killed
KEPT = 8 << 20  # bytes of a log, before it is put aside; one such file is kept
ENDED = "ended by itself"

Explain = Callable[[str], str | None]


def command(name: str, *arguments: str) -> list[str]:
    """The command line of one of Flower's commands, guarded as `launch` says."""
    return [sys.executable, "-P", os.fspath(LAUNCH), name, *arguments]


def environment(
    folder: Path, path: Sequence[Path], socket: Path | None = None
) -> dict[str, str]:
    """The environment of Flower's processes, which write to ``folder`` and nowhere else.

    ``path``: where they find the commands that they start.  ``socket``: where their apps hand
    messages over.
    """
    inherited: dict[str, str] = {}
    for name, value in os.environ.items():
        if not name.startswith("FLWR_"):
            inherited[name] = value
    local = ",".join(filter(None, [inherited.get("NO_PROXY"), "127.0.0.1,localhost"]))
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
    """PYTHONPATH without what means the current folder: an empty part, or one that depends on it.

    >>> _safe_places(":/opt/own:lib:")
    '/opt/own'
    """
    parts = places.split(os.pathsep)
    return os.pathsep.join(part for part in parts if os.path.isabs(part))


def write_commands(folder: Path, names: Sequence[str]) -> Path:
    """A folder with nothing but scripts for ``names``: what Flower may start at a machine."""
    private_folder(folder.parent)
    private_folder(folder)
    for stale in folder.iterdir():
        stale.unlink()
    for name in names:
        line = " ".join(f"'{part}'" for part in command(name))
        write_private(folder / name, f'#!/bin/sh\nexec {line} "$@"\n', mode=0o700)
    return folder


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as values:
        values.bind(("127.0.0.1", 0))
        port: int = values.getsockname()[1]
        return port


class Child:
    """A process that runs from `start` to `stop`: whenever it ends, it is started again.

    ``problem`` is a sentence for people about why it does not run well, or None.  ``explain``
    makes that sentence of what the process wrote before it ended.
    """

    def __init__(
        self,
        name: str,
        line: Callable[[], Sequence[str]],
        env: dict[str, str],
        log: Path,
        explain: Explain = lambda text: None,
        say: Say = stay_silent,
    ) -> None:
        self.name = name
        self.line = line
        self.env = env
        self.log = log
        self.explain = explain
        self.say = say
        self.problem: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = Event()
        self._thread = Thread(target=self._keep, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """Of the process, where it runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        return process.pid

    def last(self) -> str:
        """The line that the process wrote last."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 2000))
            return log.read().decode(errors="replace").strip().rpartition("\n")[2]

    def start(self) -> None:
        """Start the process, and start it again whenever it ends."""
        private_folder(self.log.parent)
        self._thread.start()

    def stop(self) -> None:
        """End the process, by force where it takes too long."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        pause = SHORTEST
        while not self._stop.is_set():
            began = monotonic()
            code, written = self._once()
            if self._stop.is_set():
                return
            ran = monotonic() - began
            pause = min(2 * pause, LONGEST)
            if ran > SETTLED:
                pause = SHORTEST
            last = written.strip().rpartition("\n")[2] or f"exit code {code}"
            self.problem = (
                self.explain(written) or f"{self.name} {ENDED}: {last} (see {self.log})"
            )
            self.say({"event": "process", "name": self.name, "why": self.problem})
            self._stop.wait(pause)

    def _once(self) -> tuple[int, str]:
        """Run the process to its end: its exit code and the end of what it wrote."""
        if self.log.exists() and self.log.stat().st_size > KEPT:
            self.log.replace(self.log.with_suffix(".old"))
        with open(self.log, "ab", opener=for_owner_alone()) as log:
            start = log.tell()
            # A session of its own: Ctrl-C at a terminal reaches us, and we end it in order.
            self._process = subprocess.Popen(
                list(self.line()),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=OTHERS,  # of the data base that Flower makes, among others
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
