"""Error messages that may leave a site. Other error messages stay in its log.

An exception may quote data, for example a cell or a file path. A `Refusal` is sent, because
its text is designed for that. A problem that the site can fix is described by a message of a
fixed list. Any other error is sent as a number that identifies it in the site's log.
"""

from __future__ import annotations

import errno
import os
import secrets
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.storage.errors import DamagedFileError, ReplacedFileError, UnwritableFileError
from fallow.storage.plain import SENTENCE, plain

LOG = "errors.log"
EARLIER_LOG = "errors.log.1"
LARGEST_LOG = 900_000  # bytes before rotation; with an earlier log and its last entry, 2 MB
ENTRY = 1 << 16  # largest entry in bytes
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@final
@dataclass(frozen=True)
class ErrorLog:
    """Private file ``errors.log`` of limited size in a site's folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.folder / LOG

    def note(self, what: str, error: BaseException) -> str:
        """Log an error and return its number.

        If the disk is full, the number refers to no entry.
        """
        number = secrets.token_hex(4)
        lines = "".join(traceback.format_exception(error)).encode(errors="replace")
        if len(lines) > ENTRY:
            lines = lines[: ENTRY // 2] + b"\n...\n" + lines[-ENTRY // 2 :]
        at = datetime.now(UTC).isoformat(timespec="seconds")
        head = f"== error {number}, {at}, {plain(what)}\n".encode()
        with suppress(OSError):
            self._append(head + lines + b"\n")
        return number

    def _append(self, entry: bytes) -> None:
        with suppress(FileNotFoundError):
            if self.path.stat().st_size > LARGEST_LOG:
                self.path.replace(self.path.with_name(EARLIER_LOG))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(self.path, flags, 0o600)
        try:
            os.fchmod(file, 0o600)
            os.write(file, entry)
        finally:
            os.close(file)


def word_for_outside(site: SiteId, what: str, error: BaseException, log: ErrorLog) -> str:
    """Return the error message that leaves the site.

    ``what`` describes the function by the instruction and the agreement only.
    """
    if isinstance(error, Refusal):
        return plain(error)
    number = log.note(what, error)
    sentence = f"site {site} could not perform {what} (error {number})"
    cause = _describe_cause(error)
    if cause is not None:
        sentence += f": {cause}"
    return plain(f"{sentence}; see its {LOG} for details", SENTENCE)


def _describe_cause(error: BaseException) -> str | None:
    """Return a message of the fixed list of problems that the site can fix, or None."""
    for cause in _causes(error):
        if isinstance(cause, DamagedFileError):
            return "its ledger is damaged: restore it from a backup"
        if isinstance(cause, ReplacedFileError):
            return (
                "its ledger was moved or replaced while the site was running: "
                "restart it with the correct file"
            )
        if isinstance(cause, UnwritableFileError):
            return "its ledger cannot be read or written: free some space there"
        if isinstance(cause, OSError) and cause.errno in FULL:
            return "its disk is full: free some space there"
        if isinstance(cause, MemoryError):
            return "its memory is full"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the last error first."""
    seen: set[int] = set()
    result: BaseException | None = error
    while result is not None and id(result) not in seen:
        seen.add(id(result))
        yield result
        result = result.__cause__ or result.__context__
