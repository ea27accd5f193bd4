"""Shared setup: one thread, reproducible examples, and real data if available."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy start their threads

import pytest
import torch
from filelock import FileLock  # installed with torch

from tests.each import in_sample
from tests.forks import SHARED_FOLDER, Forks

torch.set_num_threads(1)
torch.set_num_interop_threads(1)

try:
    import hypothesis
except ImportError:  # a remote machine that runs only the tests of devices
    pass
else:
    # No deadline, since timing depends on load. Derandomized for reproducibility.
    hypothesis.settings.register_profile(
        "fallow", deadline=None, derandomize=True, max_examples=50
    )
    hypothesis.settings.load_profile("fallow")

REPOSITORY = Path(__file__).resolve().parents[1]
PLACES = sys.path.copy()
CORE = ("tests/", "src/")
INSTALL = "make setup, then the same command"
IMPORTED_LATE = (
    *("matplotlib.pyplot", "onnx", "scipy.io", "sklearn.cluster", "sklearn.datasets"),
    *("sympy", "torch._dynamo", "torch.onnx"),
)
"""Modules that many tests need, and that take seconds to import."""
TO_RUN = {
    "'bmdal_reg": "make adapters",
    "FALLOW_DATA": "FALLOW_DATA=FOLDER and the same command",
    "Label Studio": "FALLOW_LABEL_STUDIO=ADDRESS make test-long",
    "GPU": "the same command on a machine without a GPU",
    "browser": "apt-get install chromium, then the same command",
    "nvflare": "FALLOW_NVFLARE=PYTHON make soak (CONTRIBUTING.md)",
    "root": "sudo and the same command",
    "systemd": "the same command on a machine with systemd",
}
"""Part of a reason to skip a test -> the command that runs the test."""
Build = Callable[[Path], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        metavar="all|COMMIT",
        help="run long tests, or the third of them that belongs to a hexadecimal commit, "
        "and the tests beside the core",
    )
    parser.addoption(
        "--processes",
        type=int,
        default=1,
        help="run the tests in several processes, which only Linux can fork",
    )


def pytest_configure(config: pytest.Config) -> None:
    count = config.getoption("--processes")
    if count > 1 and sys.platform == "linux":
        config.pluginmanager.register(Forks(count, IMPORTED_LATE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--long``, deselect short tests of the core and long tests not in the sample."""
    choice = config.getoption("--long")
    if choice is None:
        return
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        file, _, _ = item.nodeid.partition("::")
        if item.get_closest_marker("long"):
            is_selected = choice == "all" or in_sample(file, choice)
        else:
            is_selected = not file.startswith(CORE)
        (selected if is_selected else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = selected


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the skipped tests with the command that runs them."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        commands = [command for part, command in TO_RUN.items() if part in reason]
        terminalreporter.write_line(
            f"Skipped {count}: {reason}. Run with: {(commands or [INSTALL])[0]}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection while 14,000 tests are collected.

    Objects alive afterwards are frozen, so later collections skip them and forked processes
    do not copy their pages. The collection threshold is then higher than Python's default
    of 700.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect docstring examples only from files that contain a prompt."""
    result = yield
    if ">>> " in file_path.read_text(encoding="utf-8"):
        return result
    return [collector for collector in result if type(collector) is pytest.Module]


@pytest.fixture(autouse=True)
def places_of_modules() -> Iterator[None]:
    """Restore the import path after each test.

    Commands that run in this process, also in shared fixtures, remove the current folder
    from it.
    """
    sys.path[:0] = [folder for folder in PLACES if folder not in sys.path]
    before = sys.path.copy()
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: what the operating system has survives a killed process."""
    from fallow.deployment.ledger import tables
    from fallow.experiment import event_log

    monkeypatch.setattr(tables, "SYNCHRONOUS", "OFF")
    monkeypatch.setattr(event_log, "DURABLE", "OFF")
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="session")
def build_once(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Build], Path]:
    """Build a folder once per test run, also if several processes need it."""
    base = pytestconfig.stash.get(SHARED_FOLDER, tmp_path_factory.getbasetemp())

    def find_or_build(name: str, build: Build) -> Path:
        folder = base / f"shared-{name}"
        finished = base / f"shared-{name}.finished"
        with FileLock(base / f"shared-{name}.lock"):
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a build that failed
                folder.mkdir()
                build(folder)
                finished.touch()
        return folder

    return find_or_build


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of public datasets: ``FALLOW_DATA``, or that of ``.ci/run``."""
    named = os.environ.get("FALLOW_DATA")
    folder = Path(named) if named else REPOSITORY / "build" / "data"
    if not folder.is_dir():
        pytest.skip(
            f"no real data: {folder} is not a folder; set FALLOW_DATA to the one you have"
        )
    return folder
