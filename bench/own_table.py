"""A table of 500,000 rows and 52 columns: features of Fallow against frames of pandas and polars.

Fallow reads the file, recognizes the columns and computes float32 features; the others only read
the file.  All use one thread.  The memory is that of a separate process that creates the data set,
beyond its memory after imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from bench.timing import Entry, Race
from fallow.core.load_options import LoadOptions
from fallow.data.loaders.table import TableArrays, read_table
from fallow.data.loaders.table_files import read_file
from fallow.data.reading import ignore_bytes

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
    ending: str
    read_other: Callable[[Path], pd.DataFrame | pl.DataFrame]
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=tempfile.TemporaryDirectory
    )
    others: list[pd.DataFrame | pl.DataFrame] = field(default_factory=list)
    ours: list[TableArrays] = field(default_factory=list)

    def __post_init__(self) -> None:
        pa.set_cpu_count(1)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(self.rows, COLUMNS)).astype(np.float32)
        columns = {f"f{index}": x[:, index] for index in range(COLUMNS)}
        columns["hospital"] = np.array(list("abcdefgh"))[rng.integers(0, 8, self.rows)]
        columns["sick"] = np.array(["no", "yes"])[rng.integers(0, 2, self.rows)]
        if self.ending == "csv":
            arrow_csv.write_csv(pa.table(columns), self.path)
        else:
            parquet.write_table(pa.table(columns), self.path)

    @property
    def path(self) -> Path:
        return Path(self.folder.name) / f"table.{self.ending}"

    def by_other(self) -> None:
        self.others[:] = [self.read_other(self.path)]

    def by_us(self) -> None:
        wanted = LoadOptions(label="sick", site="hospital")
        source = partial(read_file, self.path, ignore_bytes, wanted)
        self.ours[:] = [read_table([source], wanted)]

    def are_equal(self) -> bool:
        """Check that the features are the numbers of the frame."""
        other = self.others[0]
        columns = [np.asarray(other[f"f{index}"]) for index in range(COLUMNS)]
        theirs = np.stack(columns, axis=1).astype(np.float32)
        return bool(np.array_equal(self.ours[0].x, theirs))


def _prepare(
    ending: str, read: Callable[[Path], pd.DataFrame | pl.DataFrame], is_quick: bool
) -> Race:
    reading = Reading(300 if is_quick else ROWS, ending, read)
    return Race(
        reading.by_other, reading.by_us, reading.are_equal, 3, reading.folder.cleanup
    )


def peak(is_quick: bool) -> float:
    reading = Reading(300 if is_quick else ROWS, "csv", pd.read_csv)
    command = [sys.executable, "-c", PEAK, str(reading.path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


SAME = "the values of each column: identical"
ENTRIES = (
    Entry(
        "own-table",
        "pandas.read_csv of the same file",
        bar=0.5,
        compared=SAME,
        prepare=partial(_prepare, "csv", pd.read_csv),
        extra=peak,
        limit=6 * MATRIX,
    ),
    Entry(
        "own-table-polars",
        "polars.read_csv of the same file",
        bar=0.2,
        compared=SAME,
        prepare=partial(_prepare, "csv", pl.read_csv),
    ),
    Entry(
        "own-table-parquet",
        "pandas.read_parquet of the same file",
        bar=0.33,
        compared=SAME,
        prepare=partial(_prepare, "parquet", pd.read_parquet),
    ),
)
