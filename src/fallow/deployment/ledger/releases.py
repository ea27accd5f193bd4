"""Release log: a second record of all releases, which survives a restored ledger.

A ledger that was restored from a backup does not have the releases since then. Each release is
therefore first appended to this file and flushed to disk, then written to the ledger, and then
sent. The file contains the noisy replies themselves, so that a repeated request has the same reply.

The file also detects whether it was restored itself, by its inode number and its modification time.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

from fallow.core.refusal import explain_errors
from fallow.core.types import SiteId, Tree
from fallow.storage.database import make_private
from fallow.storage.errors import StorageError
from fallow.storage.files import checksum

NAME = "releases.log"
VERSION = 1
"""Version of the format: lines of JSON objects, validated on use."""
LATER = 10.0
"""Largest delay in seconds between the last line and the modification time of a file."""


class ReleaseEntry(NamedTuple):
    """One line: the run, the key, the cost and the line of the ledger."""

    run: str
    key: str
    epsilon: float
    line: bytes


class _Book(NamedTuple):
    """Parsed content of the file: header, releases, their times, and the file's metadata."""

    head: Tree
    releases: list[ReleaseEntry]
    times: list[float]
    written: float
    stat: os.stat_result


class UnreadableBook(ValueError):
    """The file cannot be read, or it belongs to another site."""


@final
class Releases:
    """Releases of one site in the private file ``path``.

    Several processes can use the file. Each reads and writes under a file lock.
    """

    def __init__(self, path: Path, site: SiteId) -> None:
        self.path = path
        self._site = site

    def begin(self, releases: Iterable[ReleaseEntry]) -> None:
        """Create a file with these releases. An existing file is kept under another name."""
        if self.path.exists():
            self.path.replace(self.path.with_name(f"{NAME}-damaged"))
        make_private(self.path)
        with self._lock_file() as file:
            number = os.fstat(file.fileno()).st_ino
            head = {"version": VERSION, "site": self._site, "number": number}
            file.write(_line(head))
            for release in releases:
                file.write(_release_line(release))
            _flush_to_disk(file)
        # the directory entry must reach the disk too
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, release: ReleaseEntry) -> None:
        """Append a release durably: it survives a power failure after this call."""
        with self._lock_file() as file:
            file.truncate(_measure_whole_lines(file))
            file.seek(0, os.SEEK_END)
            file.write(_release_line(release))
            _flush_to_disk(file)

    def read(self) -> list[ReleaseEntry] | None:
        """Return all releases, oldest first, or None without a file.

        An incomplete last line is skipped: its release never left the site. Raises UnreadableBook
        for any other unreadable line.
        """
        log = self._read()
        if log is None:
            return None
        return log.releases

    def read_times(self) -> dict[tuple[str, str], str]:
        """Return the time of each release (ISO 8601 in UTC), by run and key.

        Returns nothing without a file. Raises UnreadableBook as `read` does.
        """
        log = self._read()
        if log is None:
            return {}
        times: dict[tuple[str, str], str] = {}
        for release, seconds in zip(log.releases, log.times, strict=True):
            at = datetime.fromtimestamp(seconds, UTC)
            times[release.run, release.key] = at.isoformat(timespec="seconds")
        return times

    def is_own_log(self) -> bool:
        """Return whether the file has not been restored since it was last written.

        A copied file has another inode number. A file with replaced content was modified after the
        time of its last line. Restoring a snapshot of the whole machine is not detected.
        """
        log = self._read()
        if log is None:
            return False
        written = log.written
        stat = log.stat
        return log.head["number"] == stat.st_ino and stat.st_ctime <= written + LATER

    def _read(self) -> _Book | None:
        """Parse the file, or return None without a file."""
        if not self.path.exists():
            return None
        with self._lock_file() as file:
            content = file.read(_measure_whole_lines(file))
            details = os.fstat(file.fileno())
        with explain_errors(
            f"{self.path} cannot be read: ",
            of=(ValueError, LookupError, TypeError),
            to=UnreadableBook,
        ):
            lines = [_parse_line(line) for line in content.splitlines()]
            head = lines[0]
            if (head["version"], head["site"]) != (VERSION, self._site):
                raise ValueError(f"it belongs to {head['site']}, version {head['version']}")
            releases = [_parse_release(line) for line in lines[1:]]
            times = [float(line["at"]) for line in lines[1:]]
            written = float(lines[-1]["at"])
        return _Book(
            head=head, releases=releases, times=times, written=written, stat=details
        )

    @contextmanager
    def _lock_file(self) -> Iterator[BinaryIO]:
        """Open and lock the file. Raises StorageError if it cannot be read or written."""
        with (
            explain_errors(
                f"{self.path}, the release log of site {self._site}, cannot be read or written (",
                after="): free some space or make the folder writable; nothing was released",
                of=OSError,
                to=StorageError,
            ),
            self.path.open("r+b") as file,
        ):
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _measure_whole_lines(file: BinaryIO) -> int:
    """Return the size of the file up to the end of the last complete line.

    The file position is then at the start.
    """
    file.seek(0)
    size = file.read().rfind(b"\n") + 1
    file.seek(0)
    return size


def _release_line(release: ReleaseEntry) -> bytes:
    return _line({**release._asdict(), "line": release.line.hex()})


def _parse_release(line: Tree) -> ReleaseEntry:
    return ReleaseEntry(
        run=line["run"],
        key=line["key"],
        epsilon=float(line["epsilon"]),
        line=bytes.fromhex(line["line"]),
    )


def _line(content: Tree) -> bytes:
    """Return a line of the file: checksum, content with time, and line end."""
    text = json.dumps({**content, "at": time.time()}).encode()
    return _mark(text) + b" " + text + b"\n"


def _parse_line(line: bytes) -> Tree:
    mark, _, text = line.partition(b" ")
    if _mark(text) != mark:
        raise ValueError("a line has a wrong checksum")
    result = json.loads(text)
    if not isinstance(result, dict):
        raise TypeError("a line is not a record")
    return result


def _mark(text: bytes) -> bytes:
    return checksum(text).hex().encode()
