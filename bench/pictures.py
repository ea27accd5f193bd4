"""CIFAR-10 for another seed or process of a study: decoded again against the study's cache.

Needs the files of CIFAR-10 in the folder of FALLOW_DATA. The memory is the private memory
of a process that has opened the cached examples; their pages are shared.
"""

from __future__ import annotations

import os
import tempfile
from multiprocessing import get_context
from pathlib import Path

import torch

from bench.memory import read_memory
from bench.timing import Entry, Race, SkippedError
from fallow.data.dataset import Dataset
from fallow.experiment.rows import open_data
from fallow.settings.config import ExperimentConfig

EXPERIMENT = ExperimentConfig("pictures", data="cifar10")


def data_dir() -> Path:
    """Return the folder of the CIFAR-10 files."""
    return Path(os.environ.get("FALLOW_DATA", "build/data"))


def prepare(is_quick: bool) -> Race:
    folder = tempfile.TemporaryDirectory()
    kept_in = Path(folder.name) / "rows"
    try:
        open_data(EXPERIMENT, 0, data_dir(), kept_in=kept_in)  # as the first seed does
    except ValueError as error:
        folder.cleanup()
        raise SkippedError(str(error)) from None
    datasets: dict[str, Dataset] = {}

    def theirs() -> None:
        datasets["theirs"] = open_data(EXPERIMENT, 0, data_dir())

    def ours() -> None:
        datasets["ours"] = open_data(
            EXPERIMENT, 0, data_dir(), kept_in=Path(folder.name) / "rows"
        )

    def are_equal() -> bool:
        one = datasets["theirs"]
        two = datasets["ours"]
        return torch.equal(one.x, two.x) and torch.equal(one.x_test, two.x_test)

    return Race(theirs, ours, are_equal, runs=1, close=folder.cleanup)


def open_study_folder(folder: str) -> float:
    """Return the private memory in MB of a process that has opened a folder."""
    before = read_memory("RssAnon")
    data = open_data(EXPERIMENT, 0, data_dir(), kept_in=Path(folder))
    taken = read_memory("RssAnon") - before
    del data  # keep the examples until the measurement
    return taken


def peak(is_quick: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        open_data(EXPERIMENT, 0, data_dir(), kept_in=Path(folder))
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(open_study_folder, (folder,))


ENTRIES = (
    Entry(
        "pictures",
        "CIFAR-10 unpacked, normalized and searched for leaks; one run",
        bar=5.0,
        compared="all pictures that were timed, bit for bit",
        prepare=prepare,
        extra=peak,
        limit=100.0,
    ),
)
