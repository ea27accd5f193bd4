"""Tables in published formats: csv, tsv, arff, mat, Parquet."""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fallow.catalog import DataFiles
from fallow.core.optional import import_optional
from fallow.core.refusal import explain_errors
from fallow.storage.received import check_fits
from fallow_papers.datasets.sources import TableSource

ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE
)


@final
@dataclass(frozen=True)
class PublishedTable:
    """Content of a published table, read once from the start."""

    header: tuple[str, ...]
    rows: Iterable[list[str]]
    # texts that the file declares for a column
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@contextmanager
def open_published(files: DataFiles, source: TableSource) -> Iterator[PublishedTable]:
    """Open a published table.  Raises ValueError for a file in another format."""
    (file,) = files.edition.files
    member = file.members[0] if file.members else ""
    name = member or file.name
    if name.endswith(".mat"):
        yield _read_mat(files.find(file), source)
        return
    if name.endswith(".pq"):
        yield _read_parquet(files.find(file))
        return
    with files.open(file, member) as stream:
        # some names of pathways are in no known encoding, and are left out
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        try:
            if name.endswith(".arff"):
                yield _read_arff(text)
            else:
                yield _read_separated(text, source)
        except csv.Error as error:
            raise ValueError(f"{name} is damaged ({error}); download it again") from error


def read_mat(path: Path, names: tuple[str, ...], what: str) -> dict[str, npt.NDArray[Any]]:
    """Return the array ``names`` of a MATLAB file; ``what`` describes it in errors."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    with explain_errors(
        f"{path.name} cannot be read as {what} (",
        after="); download it again",
        of=(
            OSError,
            ValueError,
            TypeError,
            NotImplementedError,
            KeyError,
            zlib.error,
            MatReadError,
        ),
    ):
        mat = loadmat(path, variable_names=names)
        return {name: np.asarray(mat[name]) for name in names}


def _read_separated(lines: Iterator[str], source: TableSource) -> PublishedTable:
    rows = (row for row in csv.reader(lines, delimiter=source.separator) if row)
    header = source.columns or tuple(name.strip() for name in next(rows, []))
    return PublishedTable(header, rows)


def _read_mat(path: Path, source: TableSource) -> PublishedTable:
    arrays = read_mat(path, (source.matrix,), f"the matrix {source.matrix}")
    matrix = arrays[source.matrix]
    rows = ([str(value) for value in row] for row in matrix.tolist())
    return PublishedTable(source.columns, rows)


def _read_parquet(path: Path) -> PublishedTable:
    parquet = import_optional("pyarrow.parquet", "pyarrow", f"reading {path.name}")
    arrow = import_optional("pyarrow", "pyarrow", f"reading {path.name}")
    with (
        explain_errors(
            f"{path.name} cannot be read as Parquet (",
            after="); download it again",
            of=(arrow.ArrowException, OSError),
        ),
        parquet.ParquetFile(path) as opened,
    ):
        n_cells = opened.metadata.num_rows * opened.metadata.num_columns
        check_fits(path, n_cells * BYTES_OF_CELL)
        table = opened.read()
    columns = []
    for column in table.columns:
        cells = column.to_pylist()
        columns.append(["" if cell is None else str(cell) for cell in cells])
    return PublishedTable(tuple(table.column_names), map(list, zip(*columns, strict=True)))


BYTES_OF_CELL = 64  # as a Python object


def _read_arff(lines: Iterator[str]) -> PublishedTable:
    """Read the attributes above ``@data``, then the rows; a line that begins with % is a
    comment.
    """
    kinds: dict[str, str] = {}
    for line in lines:
        arff = ATTRIBUTE.match(line.strip())
        if arff:
            in_single, in_double, bare, kind = arff.groups()
            name = next(text for text in (in_single, in_double, bare) if text is not None)
            kinds[name] = kind
        if line.strip().lower() == "@data":
            break
    levels = {}
    for name, kind in kinds.items():
        if kind.startswith("{"):
            (declared,) = _parse_arff([kind.strip("{} ")])
            levels[name] = tuple(level.strip() for level in declared)
    rows = _parse_arff(line for line in lines if line.strip() and line[0] != "%")
    return PublishedTable(tuple(kinds), rows, levels)


def _parse_arff(lines: Iterable[str]) -> Iterator[list[str]]:
    """Split lines into cells, with the quoting of arff."""
    return csv.reader(lines, quotechar="'", escapechar="\\", skipinitialspace=True)


MISSING = "missing"


def one_hot(
    column: str, codes: npt.NDArray[np.integer], levels: Sequence[str]
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Return a column for each level and one for "missing", which stays 0, with their
    names.

    codes: (n,) numbers of levels; the result is (n, levels + 1). The first of two levels
    has no column. This is the form of the bmdal_reg benchmark (Holzmüller et al., 2023),
    whose shapes are in FALE's Table 1. No level is omitted to make the columns independent.

    >>> one_hot("wet", np.array([1, 0, 1]), ("no", "yes"))[1]
    ('wet=yes', 'wet=missing')
    """
    first = 0
    if len(levels) == 2:
        first = 1
    columns = []
    names = []
    for level in range(first, len(levels)):
        columns.append(codes == level)
        names.append(f"{column}={levels[level]}")
    columns.append(np.zeros(len(codes), dtype=bool))
    names.append(f"{column}={MISSING}")
    return np.stack(columns, axis=1).astype(np.float32), tuple(names)
