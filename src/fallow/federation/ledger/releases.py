"""A second book of what a site released, beside its ledger: a ledger may be put back, this is not.

A ledger that was put back, from its copy or from one made by hand, does not know what the site
released since.  This file does: each release is added to it, and reaches the disk, before the
ledger takes it over and long before it leaves the site.  It holds the noisy answers themselves, so
that the same question has the same answer also after that.

The file tells whether it is itself one that was put back: it knows its own number on the disk, and
when it was written last.
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

from fallow.core.types import SiteId, Tree
from fallow.storage.checksums import checksum
from fallow.storage.database import make_private
from fallow.storage.errors import Failed

NAME = "releases.log"
VERSION = 1
"""A line of the file: an object of JSON.  What is in it shows when it is used."""
LATER = 10.0
"""Seconds after its last line in which a file may have been changed and still count as one that
nobody put back."""


class ReleaseEntry(NamedTuple):
    """One line: in which run and under which key, what it cost, and the line of the ledger."""

    run: str
    key: str
    epsilon: float
    line: bytes


class _Book(NamedTuple):
    """The file as it was read: its first line, the releases and when each was written, when the
    last line was (seconds since 1970), and what the system says of the file."""

    head: Tree
    releases: list[ReleaseEntry]
    times: list[float]
    written: float
    about: os.stat_result


class UnreadableBook(ValueError):
    """The file cannot be read, or is another site's."""


@final
class Releases:
    """The releases of one site, in the file ``path``, which nobody else may read.

    Several processes may use it: each reads and adds under a lock of the file.
    """

    def __init__(self, path: Path, site: SiteId) -> None:
        self.path = path
        self._site = site

    def begin(self, releases: Iterable[ReleaseEntry]) -> None:
        """A new file with these; a file that is there is kept under another name."""
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
        # the name of the file has to reach the disk too
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, release: ReleaseEntry) -> None:
        """One more; when this returns a power cut does not take it back."""
        with self._lock_file() as file:
            file.truncate(_measure_whole_lines(file))
            file.seek(0, os.SEEK_END)
            file.write(_release_line(release))
            _flush_to_disk(file)

    def read(self) -> list[ReleaseEntry] | None:
        """All of them, oldest first; None where there is no file.

        A last line without an end was being written when the process died: what it is about never
        left the site.  Raises UnreadableBook for any other line that cannot be read.
        """
        book = self._read()
        if book is None:
            return None
        return book.releases

    def read_times(self) -> dict[tuple[str, str], str]:
        """When each was written (ISO 8601, UTC), by run and key; nothing where there is no file.

        Raises UnreadableBook as `read` does.
        """
        book = self._read()
        if book is None:
            return {}
        times: dict[tuple[str, str], str] = {}
        for release, seconds in zip(book.releases, book.times, strict=True):
            at = datetime.fromtimestamp(seconds, UTC)
            times[release.run, release.key] = at.isoformat(timespec="seconds")
        return times

    def is_the_one_written_here(self) -> bool:
        """Whether nobody has put the file back since it was written last.

        A file that was copied has another number on the disk; one whose content was replaced has
        been changed after the time of its last line.  A machine that goes back as a whole, to a
        snapshot of all its disks, is not noticed.
        """
        book = self._read()
        if book is None:
            return False
        written = book.written
        about = book.about
        return book.head["number"] == about.st_ino and about.st_ctime <= written + LATER

    def _read(self) -> _Book | None:
        """The whole file; None where there is none."""
        if not self.path.exists():
            return None
        with self._lock_file() as file:
            content = file.read(_measure_whole_lines(file))
            details = os.fstat(file.fileno())
        try:
            lines = [_parse_line(line) for line in content.splitlines()]
            head = lines[0]
            if (head["version"], head["site"]) != (VERSION, self._site):
                raise ValueError(f"it is of {head['site']}, version {head['version']}")
            releases = [_parse_release(line) for line in lines[1:]]
            times = [float(line["at"]) for line in lines[1:]]
            written = float(lines[-1]["at"])
        except (ValueError, LookupError, TypeError) as error:
            raise UnreadableBook(f"{self.path} cannot be read: {error}") from error
        return _Book(
            head=head, releases=releases, times=times, written=written, about=details
        )

    @contextmanager
    def _lock_file(self) -> Iterator[BinaryIO]:
        """The file, open and locked.  Raises Failed where it cannot be read or written."""
        try:
            with self.path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise Failed(
                f"{self.path}, the second book of what site {self._site} released, cannot be read "
                f"or written ({error.strerror}): free some space or make the folder writable; "
                "nothing was released"
            ) from error


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _measure_whole_lines(file: BinaryIO) -> int:
    """Bytes up to the end of the last line that has one; the file is then at its beginning."""
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
    """A line of the file: its checksum, the content with the time, an end."""
    text = json.dumps({**content, "at": time.time()}).encode()
    return _mark(text) + b" " + text + b"\n"


def _parse_line(line: bytes) -> Tree:
    mark, _, text = line.partition(b" ")
    if _mark(text) != mark:
        raise ValueError("a line has another checksum")
    result = json.loads(text)
    if not isinstance(result, dict):
        raise TypeError("a line is no record")
    return result


def _mark(text: bytes) -> bytes:
    return checksum(text).hex().encode()
