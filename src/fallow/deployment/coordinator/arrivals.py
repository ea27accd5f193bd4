"""Replies received by a coordinator, in an append-only file for the audit log.

A line is written after a reply has been checked. After a crash, a reply that is already recorded
may be requested again and then has two lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fallow.core.refusal import explain_errors
from fallow.core.types import SiteId
from fallow.storage.database import make_private
from fallow.storage.errors import StorageError

ARRIVALS = "arrivals.jsonl"
FIELDS = ("time", "event", "site", "run", "key", "n_bytes", "epsilon", "reason")


@dataclass(frozen=True)
class Arrival:
    """An accepted or rejected reply of a site. ``epsilon`` is its reported privacy cost."""

    time: str  # ISO 8601, UTC
    event: Literal["received", "refused"]
    site: SiteId
    run: str
    key: str
    n_bytes: int = 0
    epsilon: float = 0.0
    reason: str = ""


def add_arrival(file: Path, arrival: Arrival) -> None:
    """Append one line. Raises StorageError if the disk is full or the folder is not writable."""
    line = json.dumps(asdict(arrival)).encode() + b"\n"
    with explain_errors(
        f"{file}, the log of received replies, cannot be written (",
        after="): free some space or make the folder writable, then start again; nothing is lost",
        of=OSError,
        to=StorageError,
    ):
        if not file.exists():
            make_private(file)
        with file.open("r+b") as opened:
            _end_last_line(opened.fileno())
            opened.seek(0, os.SEEK_END)
            opened.write(line)


def _end_last_line(file: int) -> None:
    """Terminate a line that a crash left incomplete."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.pwrite(file, b"\n", size)


def read_arrivals(file: Path) -> Iterator[Arrival]:
    """Yield the lines of the file, oldest first, or nothing if the file is missing.

    Lines that are not JSON are skipped, since the process may have died while it wrote them. Raises
    StorageError for other fields.
    """
    if not file.exists():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                arrivals = json.loads(line)
            except ValueError:
                continue
            if not isinstance(arrivals, dict) or set(arrivals) != set(FIELDS):
                raise StorageError(
                    f"{file}, line {number}, was changed: restore it from a backup"
                )
            yield Arrival(**arrivals)
