"""Run tests in several processes that are forked after the collection.

All tests are imported and collected once.  Each process runs the tests of one file at a time,
and sends the reports to the first process, which prints them.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch

SHARED_FOLDER = pytest.StashKey[Path]()
"""The temporary folder of all processes."""
NEXT, REPORT, START = "next", "report", "start"
"""Messages of a process: it needs tests, has a report, or starts a test."""


class Forks:
    """Plugin that runs the collected tests in ``count`` processes.

    ``modules`` are imported before, since each process would import them by itself.
    """

    def __init__(self, count: int, modules: Sequence[str] = ()) -> None:
        self.count = count
        self.modules = modules

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        session.config.stash[SHARED_FOLDER] = factory.getbasetemp()
        for name in self.modules:
            import_module(name)
        runners: list[Runner] = []
        try:
            for _ in range(self.count):
                runners.append(start_runner(session, runners))
            Server(session).serve(runners)
        finally:
            for runner in runners:
                runner.connection.close()
                os.waitpid(runner.pid, 0)
        return True


@dataclass
class Runner:
    """A forked process, the test that it runs, and those that it has to run."""

    pid: int
    connection: Connection
    running: int | None = None
    left: list[int] = field(default_factory=list)


def start_runner(session: pytest.Session, earlier: list[Runner]) -> Runner:
    """Fork a process that runs the tests that it is given, and then ends."""
    here, there = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        there.close()
        return Runner(pid, here)
    code = 1
    try:
        for connection in (here, *(runner.connection for runner in earlier)):
            connection.close()
        Worker(session, there).run(len(earlier))
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)  # the first process writes the summary


class Worker:
    """Runs tests in a forked process, and sends their reports."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self.session = session
        self.connection = connection

    def run(self, number: int) -> None:
        """Run the tests of one file after another."""
        torch.set_num_threads(1)  # makes torch's pool anew before there are threads
        config = self.session.config
        plugins = config.pluginmanager
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files are those of the first process
        capture.start_global_capturing()
        capture.suspend_global_capture()
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        folder = config.stash[SHARED_FOLDER] / f"process-{number}"
        folder.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        positions = self.request_block()
        try:
            while positions and not self.session.shouldfail:
                position = positions.pop(0)
                positions = positions or self.request_block()
                self.run_test(position, positions)
        finally:
            self.session._setupstate.teardown_exact(None)

    def run_test(self, position: int, following: list[int]) -> None:
        """Run a test, and then end the fixtures that the first following test does not use."""
        items = self.session.items
        self.send(START, position)
        items[position].config.hook.pytest_runtest_protocol(
            item=items[position], nextitem=items[following[0]] if following else None
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self.send(REPORT, data)

    def request_block(self) -> list[int]:
        """Return the positions of the next tests, which are none at the end."""
        self.send(NEXT, None)
        positions: list[int] = json.loads(self.connection.recv_bytes())
        return positions

    def send(self, kind: str, value: object) -> None:
        self.connection.send_bytes(json.dumps([kind, value], default=str).encode())


class Server:
    """Gives files to processes, and passes on their reports."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.blocks = deque(list_blocks(session.items))

    def serve(self, runners: list[Runner]) -> None:
        """Return when all tests have run."""
        by_connection = {runner.connection: runner for runner in runners}
        while by_connection:
            for connection in wait(list(by_connection)):
                assert isinstance(connection, Connection)
                runner = by_connection[connection]
                try:
                    kind, value = json.loads(connection.recv_bytes())
                except EOFError:
                    del by_connection[connection]
                    self.report_crash(runner)
                else:
                    self.receive(runner, kind, value)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)
        if self.blocks:
            raise self.session.Failed("all processes ended before the last test")

    def receive(self, runner: Runner, kind: str, value: Any) -> None:
        """Handle one message of a process."""
        if kind == START:
            runner.running = value
            runner.left.remove(value)
        elif kind == NEXT:
            is_stopped = self.session.shouldfail or self.session.shouldstop
            block = self.blocks.popleft() if self.blocks and not is_stopped else []
            runner.left += block
            runner.connection.send_bytes(json.dumps(block).encode())
        else:
            config = self.session.config
            if isinstance(value["longrepr"], list):
                value["longrepr"] = tuple(value["longrepr"])  # place and reason of a skip
            report = config.hook.pytest_report_from_serializable(config=config, data=value)
            config.hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                runner.running = None

    def report_crash(self, runner: Runner) -> None:
        """Report the test during which a process died, and give its other tests away."""
        if runner.left:
            self.blocks.appendleft(runner.left)
        if runner.running is None:
            return
        item = self.session.items[runner.running]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"{item.nodeid}: the process of this test died",
            when="call",
        )
        self.session.config.hook.pytest_runtest_logreport(report=report)


def list_blocks(items: list[pytest.Item]) -> Iterator[list[int]]:
    """Return the positions of the tests of each file."""
    positions = range(len(items))
    for _, group in groupby(positions, key=lambda position: items[position].path):
        yield list(group)
