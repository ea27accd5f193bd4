"""Tables in published formats: zip, csv, tsv, arff, mat."""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, final

import numpy as np
import numpy.typing as npt

from fallow.core.refusal import explain_errors
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
def open_published(path: Path, source: TableSource) -> Iterator[PublishedTable]:
    """Open a published table.  Raises ValueError for a file in another format."""
    try:
        if path.suffix == ".mat":
            yield _read_mat(path, source)
            return
        with ExitStack() as stack:
            file: IO[bytes]
            if path.suffix == ".zip":
                file = _open_member(path, source, stack)
            else:
                file = path.open("rb")
            # some names of pathways are in no known encoding, and are left out
            text = io.TextIOWrapper(
                file, encoding="utf-8-sig", errors="replace", newline=""
            )
            stack.enter_context(text)
            if path.suffix == ".arff":
                yield _read_arff(text)
            else:
                yield _read_separated(text, source)
    except (zipfile.BadZipFile, zlib.error, csv.Error, EOFError) as error:
        raise ValueError(f"{path.name} is damaged ({error}); download it again") from error


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
    arrays = read_mat(path, (source.member,), f"the matrix {source.member}")
    matrix = arrays[source.member]
    rows = ([str(value) for value in row] for row in matrix.tolist())
    return PublishedTable(source.columns, rows)


def _open_member(path: Path, source: TableSource, stack: ExitStack) -> IO[bytes]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    file = _find_member(archive, source.member, stack)
    if file is None:
        raise ValueError(
            f"{path.name} does not contain the file {source.member}, so it is not the "
            f"archive of {source.page}"
        )
    return file


def _find_member(
    archive: zipfile.ZipFile, wanted: str, stack: ExitStack
) -> IO[bytes] | None:
    """Find the file ``wanted`` in any folder of the archive, or of an archive in it."""
    names = archive.namelist()
    for name in names:
        if PurePosixPath(name.replace("\\", "/")).name == wanted:
            return stack.enter_context(archive.open(name))
    for name in names:
        if name.endswith(".zip"):
            file = stack.enter_context(archive.open(name))
            nested = stack.enter_context(zipfile.ZipFile(file))
            member = _find_member(nested, wanted, stack)
            if member is not None:
                return member
    return None


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
