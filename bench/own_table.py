"""A table of 500,000 rows and 50 columns: Fallow's data set against reading by pyarrow.

Fallow also recognizes columns, checks labels, holds out test rows without duplicates in the
training set, and computes float32 features. It reads CSV with the standard library, so that a
site needs neither pandas nor pyarrow, and is therefore slower than pyarrow. The memory is that
of a separate process, beyond its memory after imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import torch

from bench.timing import Entry, Race
from fallow.data import Dataset, open_dataset

ROWS = 500_000
COLUMNS = 50
MATRIX = ROWS * COLUMNS * 4 / 1e6  # MB of the features
PEAK = """
import sys
import pandas, pyarrow.csv, torch
from bench.memory import read_memory
from fallow.data import open_dataset
before = read_memory("VmRSS")
open_dataset(sys.argv[1], label="sick", site="hospital")
print(read_memory("VmHWM") - before)
"""


@dataclass
class Reading:
    """A file and the data read from it."""

    rows: int
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=tempfile.TemporaryDirectory
    )
    arrow: dict[str, pa.Table] = field(default_factory=dict)
    ours: dict[str, Dataset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(self.rows, COLUMNS)).astype(np.float32)
        columns = {f"f{index}": x[:, index] for index in range(COLUMNS)}
        columns["hospital"] = np.array(list("abcdefgh"))[rng.integers(0, 8, self.rows)]
        columns["sick"] = np.array(["no", "yes"])[rng.integers(0, 2, self.rows)]
        arrow_csv.write_csv(pa.table(columns), self.path)

    @property
    def path(self) -> Path:
        return Path(self.folder.name) / "table.csv"

    def by_arrow(self) -> None:
        self.arrow["read"] = arrow_csv.read_csv(self.path)

    def by_us(self) -> None:
        self.ours["read"] = open_dataset(self.path, label="sick", site="hospital")

    def are_equal(self) -> bool:
        """Check that columns have equal sums, since rows were moved to a test set."""
        ours = self.ours["read"]
        together = torch.cat([ours.x, ours.x_test]).sort(0).values.numpy()
        arrow = self.arrow["read"]
        columns = [arrow.column(f"f{index}").to_numpy() for index in range(COLUMNS)]
        theirs = np.sort(np.stack(columns, axis=1).astype(np.float32), axis=0)
        return bool(np.array_equal(together, theirs))


def _open(is_quick: bool) -> Reading:
    if is_quick:
        return Reading(300)
    return Reading(ROWS)


def prepare(is_quick: bool) -> Race:
    reading = _open(is_quick)
    return Race(
        reading.by_arrow, reading.by_us, reading.are_equal, 3, reading.folder.cleanup
    )


def peak(is_quick: bool) -> float:
    reading = _open(is_quick)
    command = [sys.executable, "-c", PEAK, str(reading.path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


ENTRIES = (
    Entry(
        "own-table",
        "pyarrow.csv.read_csv of the same file",
        bar=0.1,
        compared="the values of each column: identical",
        prepare=prepare,
        extra=peak,
        limit=2.7 * MATRIX,
    ),
)
