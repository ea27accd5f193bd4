"""What every test stands on: one thread, reproducible examples, the real data if it is there."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy start their threads

import pytest
import torch

torch.set_num_threads(1)
torch.set_num_interop_threads(1)

try:
    import hypothesis
except ImportError:  # a borrowed machine, for the tests of devices alone
    pass
else:
    # No deadline: a busy machine is not a bug. Derandomized: the same examples everywhere.
    hypothesis.settings.register_profile(
        "fallow", deadline=None, derandomize=True, max_examples=50
    )
    hypothesis.settings.load_profile("fallow")

REPOSITORY = Path(__file__).resolve().parents[1]
PLACES = sys.path.copy()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect 14,000 tests without looking for garbage among them again and again.

    What lives then lives to the end: no later search goes through it, and a process that a test
    forks does not copy its pages by doing so.  From then on a search begins after more objects
    than Python's 700.
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
    """Docstring examples are looked for where there is a prompt; few tests have one."""
    result = yield
    if ">>> " in file_path.read_text(encoding="utf-8"):
        return result
    return [collector for collector in result if type(collector) is pytest.Module]


@pytest.fixture(autouse=True)
def places_of_modules() -> Iterator[None]:
    """Where modules are found stays as it was: commands that run in this process, also for what
    several tests share, leave the current folder out."""
    sys.path[:0] = [place for place in PLACES if place not in sys.path]
    before = sys.path.copy()
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: ``FALLOW_DATA``, else ``../shared/data``."""
    named = os.environ.get("FALLOW_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(
            f"no real data: {folder} is not a folder; set FALLOW_DATA to the one you have"
        )
    return folder
