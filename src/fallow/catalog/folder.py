"""Files of named datasets in the data folder: which ones are there, and their content.

Archives and compressed files are untrusted: no more than `MOST_CONTENT` bytes are unpacked.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, final

from fallow.catalog.entry import CatalogEntry, Edition, PublishedFile
from fallow.core.wording import size
from fallow.storage.received import UnfitError

MOST_CONTENT = 2**30
"""Maximum number of bytes that are unpacked from one file; the datasets have up to 200 MB."""
MOST_NESTED = 3
"""Maximum depth of an archive in an archive."""
DAMAGED = (EOFError, zipfile.BadZipFile, zlib.error, tarfile.TarError, gzip.BadGzipFile)
"""Errors of an incomplete or damaged archive."""
TAR = (".tar.gz", ".tgz")


def data_folder(data_dir: str | Path | None) -> Path | None:
    """Return ``data_dir`` or the folder FALLOW_DATA; None if neither is set."""
    folder = data_dir or os.environ.get("FALLOW_DATA")
    if not folder:
        return None
    return Path(folder)


@final
@dataclass(frozen=True)
class DataFiles:
    """Files of one edition of a dataset in the data folder.

    Parameters
    ----------
    entry : CatalogEntry
        The dataset.
    edition : Edition
        The edition of the files.
    folder : Path, optional
        Data folder; None for a bundled dataset.
    first : int, optional
        Number of images to read and repeat in place of all, for an outline.
    """

    entry: CatalogEntry
    edition: Edition
    folder: Path | None
    first: int | None = None

    def find(self, file: PublishedFile) -> Path:
        """Return the path of a file, or raise ValueError with a remedy."""
        path = find_path(self.folder, file)
        if path is None:
            raise ValueError(explain_missing(self.entry, self.folder, file))
        return path

    @contextmanager
    def open(self, file: PublishedFile, member: str = "") -> Iterator[IO[bytes]]:
        """Open the unpacked content of a file, or of a member of an archive."""
        path = _find_member_path(self.folder, member) or self.find(file)
        with open_unpacked(path, member) as stream:
            yield stream

    def read_members(self, file: PublishedFile, n_bytes: int = -1) -> dict[str, bytes]:
        """Return the members of an archive, or of the folder to which it was unpacked.

        n_bytes: number of bytes of each member to read; -1: all.
        """
        unpacked = {name: _find_member_path(self.folder, name) for name in file.members}
        if find_path(self.folder, file) is None or all(unpacked.values()):
            contents = {}
            for name, path in unpacked.items():
                if path is None:
                    raise ValueError(explain_missing(self.entry, self.folder, file))
                with open_unpacked(path) as stream:
                    contents[name] = stream.read(n_bytes)
            return contents
        path = self.find(file)
        with explain_damage(path):
            return _read_tar(path, file.members, n_bytes)


def find_path(folder: Path | None, file: PublishedFile) -> Path | None:
    """Return a file of the data folder, also without its suffix ``.gz``; None if absent."""
    if folder is None:
        return None
    path = folder / file.name
    if path.exists():
        return path
    unpacked = path.with_suffix("")
    is_packed = path.suffix == ".gz" and not path.name.endswith(TAR)
    if is_packed and unpacked.is_file():
        return unpacked
    return None


def _find_member_path(folder: Path | None, member: str) -> Path | None:
    if folder is None or not member or not (folder / member).is_file():
        return None
    return folder / member


def has_file(folder: Path | None, file: PublishedFile) -> bool:
    """Return whether the file, or each of its members, lies in the data folder."""
    if find_path(folder, file) is not None:
        return True
    members = [_find_member_path(folder, member) for member in file.members]
    return bool(members) and None not in members


def find_files(
    entry: CatalogEntry, folder: Path | None, first: int | None = None
) -> DataFiles:
    """Return the first edition of which the required files lie in the data folder.

    Raises ValueError, with a remedy, if there is none.
    """
    for edition in entry.editions:
        if not list_missing(edition, folder):
            return DataFiles(entry, edition, folder, first)

    def count_present(edition: Edition) -> int:
        return sum(has_file(folder, file) for file in edition.files)

    closest = max(entry.editions, key=count_present)
    missing = list_missing(closest, folder)[0]
    raise ValueError(explain_missing(entry, folder, missing))


def list_missing(edition: Edition, folder: Path | None) -> list[PublishedFile]:
    """Return the required files of an edition that do not lie in the data folder."""
    required = [file for file in edition.files if not file.is_optional]
    return [file for file in required if not has_file(folder, file)]


def explain_missing(entry: CatalogEntry, folder: Path | None, file: PublishedFile) -> str:
    """Return a sentence that names the file, the folder and the command to run."""
    remedy = f"'fallow datasets {entry.name}' shows where it comes from"
    if entry.can_fetch and file in entry.files:
        remedy = f"'fallow datasets {entry.name} --fetch' downloads it"
    if folder is None:
        return (
            f"the file {file.name} is needed, and no data folder is set; set --data-dir or "
            f"FALLOW_DATA to one, and {remedy}"
        )
    for name in entry.pickles:
        if (folder / name).exists():
            return (
                f"{folder / name} is a Python pickle, which can run code and is never read; "
                f"put the file {file.name} into {folder}, and {remedy}"
            )
    return (
        f"the file {file.name} is needed, which is not in {folder}; set --data-dir or "
        f"FALLOW_DATA to its folder, and {remedy}"
    )


def list_sources(files: DataFiles) -> list[Path]:
    """Return the paths of all files of an edition that lie in the data folder."""
    paths: set[Path] = set()
    if files.folder is None:
        return []
    for file in files.edition.files:
        path = find_path(files.folder, file)
        if path is not None and path.is_dir():
            paths.update(inside for inside in path.rglob("*") if inside.is_file())
        elif path is not None:
            paths.add(path)
            if len(PurePosixPath(file.name).parts) > 1:  # readers of all files of a folder
                paths.update(path.parent.glob(f"*{path.suffix}"))
        for member in file.members:
            unpacked = _find_member_path(files.folder, member)
            if unpacked is not None:
                paths.add(unpacked)
    return sorted(paths)


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Convert errors of an incomplete or damaged file to a ValueError."""
    try:
        yield
    except DAMAGED as error:
        raise ValueError(
            f"the file {path.name} in {path.parent} is incomplete or damaged "
            f"({path.stat().st_size:,} bytes: {error}); remove it and copy it there again"
        ) from error


@contextmanager
def open_unpacked(path: Path, member: str = "") -> Iterator[IO[bytes]]:
    """Open a file for reading: plain, compressed by gzip, or a member of a .zip file."""
    with explain_damage(path), ExitStack() as stack:
        stream: Readable
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            zipped = _find_zipped(archive, PurePosixPath(member).name, stack)
            if zipped is None:
                raise ValueError(f"{path.name} does not contain the file {member}")
            stream = zipped
        elif path.suffix == ".gz":
            stream = stack.enter_context(gzip.open(path, "rb"))
        else:
            stream = stack.enter_context(path.open("rb"))
        yield io.BufferedReader(BoundedStream(stream, path.name))


def _find_zipped(
    archive: zipfile.ZipFile, wanted: str, stack: ExitStack, depth: int = 1
) -> IO[bytes] | None:
    """Find the file ``wanted`` in any folder of the archive, or of an archive in it."""
    names = archive.namelist()
    for name in names:
        if PurePosixPath(name.replace("\\", "/")).name == wanted:
            return stack.enter_context(archive.open(name))
    if depth == MOST_NESTED:
        return None
    for name in names:
        if name.endswith(".zip"):
            file = stack.enter_context(archive.open(name))
            nested = stack.enter_context(zipfile.ZipFile(file))
            member = _find_zipped(nested, wanted, stack, depth + 1)
            if member is not None:
                return member
    return None


def _read_tar(path: Path, names: Sequence[str], n_bytes: int) -> dict[str, bytes]:
    """Return members of a .tar.gz file by name; its other members are skipped."""
    contents: dict[str, bytes] = {}
    with gzip.open(path, "rb") as packed:
        stream = io.BufferedReader(BoundedStream(packed, path.name))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name not in names or not member.isfile():
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    contents[name] = content.read(n_bytes)
                if len(contents) == len(names):
                    break
    absent = [name for name in names if name not in contents]
    if absent:
        raise ValueError(f"{path.name} does not contain the file {absent[0]}")
    return contents


class Readable(Protocol):
    """Stream of bytes, such as a file, a `gzip.GzipFile` or a member of an archive."""

    def read(self, size: int = ..., /) -> bytes: ...


class BoundedStream(io.RawIOBase):
    """Stream that raises UnfitError after `MOST_CONTENT` bytes, so that zeros cannot fill memory."""

    def __init__(self, stream: Readable, name: str, limit: int = MOST_CONTENT) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._limit = limit
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        chunk = self._stream.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise UnfitError(
                f"{self._name} unpacks to more than {size(self._limit)}, the limit for such a "
                "file; download it again from its publisher"
            )
        buffer[: len(chunk)] = chunk
        return len(chunk)
