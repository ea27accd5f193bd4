"""Run commands as processes forked from one that has already imported what they need.

Each is a process with its own memory, signals and exit, but PyTorch and other packages are
loaded only once. ``make soak`` starts the commands from scratch, as a shell does.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from fallow.cli import main; main()"]
IS_FROM_NOTHING = bool(os.environ.get("FALLOW_SOAK"))
LOADED = [
    *("fallow.cli.app", "fallow.cli.label", "fallow.cli.log_lines"),
    *("fallow.cli.coordinate", "fallow.cli.site", "fallow.cli.monitor"),
    *("fallow.cli.coordinate_messages", "fallow.cli.site_messages"),
    *("fallow.deployment.building", "fallow.deployment.coordinator.program"),
    *("fallow.deployment.labeling_page", "fallow.deployment.site.serve"),
    *("fallow.study.callbacks", "fallow.transport.https", "fallow.configs.find"),
    *("fallow.report.live", "fallow.report.page", "fallow.study.callbacks"),
    *("cryptography.x509", "fastapi", "httpx", "uvicorn"),
]
"""Modules that `coordinate start`, `site start` and `label` import."""


class Child(Protocol):
    """Subset of the interface of `subprocess.Popen` that the tests use."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True)
class Forked:
    """Wrap a forked process."""

    process: BaseProcess

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def wait_until(is_true: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"not within {seconds} seconds: {what}"
        time.sleep(0.1)


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def processes() -> dict[int, tuple[int, str]]:
    """Return parent and command line of each process of this machine."""
    done = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in done.stdout.splitlines()]
    return {int(row[0]): (int(row[1]), row[2] if len(row) > 2 else "") for row in rows}


def start_command(log: Path, *words: str) -> Child:
    """Start ``fallow`` with these arguments and append its output to ``log``."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if IS_FROM_NOTHING:
        with log.open("ab") as out:
            return subprocess.Popen(
                [*COMMAND, *words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(
        target=_run_command, args=(words, log, environment), name=" ".join(words)
    )
    process.start()
    return Forked(process)


def _run_command(words: tuple[str, ...], log: Path, environment: Mapping[str, str]) -> None:
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # a TextIOWrapper
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fallow", *words]

    from fallow.cli import main

    main()
