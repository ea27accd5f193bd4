"""CIFAR-10 for a further seed or process of a study: decoded anew, against what the study keeps.

Needs the files of CIFAR-10 in the folder that FALLOW_DATA names.  The memory is that of a process of
its own in which the kept rows are opened, beyond what it had before.
"""

from __future__ import annotations

import os
import resource
import tempfile
from multiprocessing import get_context
from pathlib import Path

import torch

from bench.timing import Entry, Race
from fallow.data.dataset import Dataset
from fallow.experiment.rows import open_data
from fallow.settings.recipe import Recipe

RECIPE = Recipe("pictures", data="cifar10")
KIB = 1024


def data_dir() -> Path:
    """The folder of CIFAR-10's files."""
    return Path(os.environ.get("FALLOW_DATA", "../shared/data"))


def prepare(is_quick: bool) -> Race:
    folder = tempfile.TemporaryDirectory()  # goes with the race
    kept_in = Path(folder.name) / "rows"
    open_data(RECIPE, 0, data_dir(), kept_in=kept_in)  # as the first seed does
    found: dict[str, Dataset] = {}

    def theirs() -> None:
        found["theirs"] = open_data(RECIPE, 0, data_dir())

    def ours() -> None:
        found["ours"] = open_data(RECIPE, 0, data_dir(), kept_in=Path(folder.name) / "rows")

    def are_equal() -> bool:
        one = found["theirs"]
        two = found["ours"]
        return torch.equal(one.x, two.x) and torch.equal(one.x_test, two.x_test)

    return Race(theirs, ours, are_equal, runs=3)


def open_kept(folder: str) -> float:
    """MB that opening the rows of a folder takes at most."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    open_data(RECIPE, 0, data_dir(), kept_in=Path(folder))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * KIB / 1e6


def peak(is_quick: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        open_data(RECIPE, 0, data_dir(), kept_in=Path(folder))
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(open_kept, (folder,))


ENTRY = Entry(
    "pictures",
    "CIFAR-10 unpacked, normalised and searched for leaks; three runs",
    bar=5.0,
    compared="all pictures that were timed, bit for bit",
    prepare=prepare,
    extra=peak,
    limit=1000.0,
)
