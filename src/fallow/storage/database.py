"""SQLite file with nested transactions, readable errors and private permissions."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

SMALL_PAGE = 4096  # bytes; SQLite's default
BUSY = 30.0  # seconds that a process waits for the write lock
WRITE_VERSION = 18  # position of the header byte that declares a write-ahead log
NO_LOG = 1  # its value without a log
NOWHERE = (-1, -1)
"""Device and inode of a database in memory."""
COUNTING = threading.Lock()
OPEN: Counter[tuple[int, int]] = Counter()
"""Number of open connections of this process by device and inode."""
Durability = Literal["FULL", "NORMAL", "OFF"]
"""Possible loss at a power failure: nothing; the last transactions; with OFF the file (for tests)."""


@dataclass(frozen=True)
class DatabaseErrors:
    """Exceptions for SQLite's errors, with messages of the application.

    ``damaged`` is raised for a damaged file, ``unwritable`` for one that cannot be read or written.
    """

    damaged: Callable[[str], Exception]
    unwritable: Callable[[str], Exception]


@final
class Database:
    """Connection to a database file, shared by the threads of a process.

    Several processes may open the file; each write is a short transaction that waits for the lock.
    ``page_bytes``: size of a page of a new file.
    ``path``: None for a database in memory. ``is_private``: only the owner may read the file.
    SQLite's errors are raised as the exceptions of ``words``.
    """

    def __init__(
        self,
        path: Path | None,
        words: DatabaseErrors,
        durability: Durability,
        is_private: bool = False,
        page_bytes: int = SMALL_PAGE,
    ) -> None:
        self.path = path
        self._words = words
        self._turn = threading.RLock()
        self._depth = 0
        with self._plain():
            if path is not None and is_private:
                make_private(path)
            if path is not None:
                put_strange_log_aside(path)
            self._db = sqlite3.connect(
                path or ":memory:",
                check_same_thread=False,  # used by one thread at a time
                timeout=BUSY,
                isolation_level=None,  # only `transaction` begins and ends transactions
            )
            self._db.execute(f"PRAGMA page_size={page_bytes}")  # of a new file
            self._db.execute("PRAGMA journal_mode=WAL")
            self._place = _place(path)
            with COUNTING:
                OPEN[self._place] += 1
            self._db.execute(f"PRAGMA synchronous={durability}")
            self._db.execute("PRAGMA foreign_keys=ON")
            result = self._db.execute("PRAGMA integrity_check").fetchone()[0]
            if result != "ok":
                raise sqlite3.DatabaseError(result)

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """Raise SQLite's errors as application errors, except violations of table constraints."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._words.unwritable(str(error)) from error
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of a corrupt schema
            raise self._words.damaged(str(error)) from error

    def teach(self, name: str, function: Callable[..., Any]) -> None:
        """Register a pure function of plain values, which triggers and statements may call by name."""
        with self._turn:
            self._db.create_function(name, -1, function, deterministic=True)

    def create(self, script: str) -> None:
        """Create tables, all or none."""
        with self.transaction():
            for statement in _statements(script):
                self.write(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction; an inner transaction is part of the outer one."""
        with self._turn:
            if self._depth:
                yield
                return
            with self._plain():
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                self.commit()
            except BaseException:
                if self._db.in_transaction:
                    self._db.rollback()
                raise
            finally:
                self._depth -= 1

    def commit(self) -> None:
        """Commit the present transaction."""
        with self._plain():
            self._db.execute("COMMIT")

    def write(self, sql: str, *values: Any) -> int:
        """Execute a statement and return the ID of the inserted row, if any."""
        with self._turn, self._plain():
            return self._db.execute(sql, values).lastrowid or 0

    def write_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values, in one transaction."""
        with self.transaction(), self._plain():
            self._db.executemany(sql, rows)

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Return all rows of a query as tuples, with the types of the statement."""
        with self._turn, self._plain():
            outcome: list[Any] = self._db.execute(sql, values).fetchall()
            return outcome

    def copy_to(self, path: Path) -> None:
        """Copy the committed content into another file with SQLite's backup API, without blocking
        writers."""
        with self._turn, self._plain(), closing(sqlite3.connect(path)) as target:
            self._db.backup(target)

    def shrink(self) -> None:
        """Free unused space. If no other connection is open, pages become small.

        SQLite changes the size of pages only without a write-ahead log, which the next
        connection starts again.
        """
        with self._turn, self._plain():
            with suppress(sqlite3.OperationalError):  # another connection reads the log
                self._db.execute("PRAGMA journal_mode=DELETE")
            self._db.execute(f"PRAGMA page_size={SMALL_PAGE}")
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA journal_mode=WAL")

    def is_in_place(self) -> bool:
        """Return whether the file at the path is still the opened one."""
        try:
            return _place(self.path) == self._place
        except OSError:
            return False

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._db.close()
            with COUNTING:
                OPEN[self._place] -= 1
            self._place = NOWHERE


def make_private(path: Path) -> None:
    """Create a file with private permissions, which SQLite copies to its additional files."""
    with suppress(OSError):  # SQLite reports it better
        path.touch(mode=0o600)
        path.chmod(0o600)


def has_no_table(path: Path) -> bool:
    """Return whether a file and its log have no tables, so that SQLite would create a new database."""
    log = path.with_name(f"{path.name}-wal")
    if OPEN[_place(path)] or (log.exists() and log.stat().st_size):
        return False
    if not path.stat().st_size:
        return True
    source = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(source, uri=True)) as db:
            return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error:  # a damaged file, which is reported on opening
        return False


def put_strange_log_aside(path: Path) -> None:
    """Rename a write-ahead log that belongs to another file.

    If a database file is replaced, for example by a backup, SQLite would apply the log of the old
    file to the new one. The header of the new file then declares no log. A lock on the log ensures
    that one process renames it while others wait.
    """
    log = path.with_name(f"{path.name}-wal")
    index = path.with_name(f"{path.name}-shm")
    with suppress(OSError), log.open("rb") as file:  # SQLite reports it better
        fcntl.flock(file, fcntl.LOCK_EX)
        is_there = os.path.samestat(os.fstat(file.fileno()), log.stat())
        if is_there and _has_no_log(path):
            log.replace(path.with_name(f"{path.name}-wal-of-another"))
            index.unlink(missing_ok=True)


def _place(path: Path | None) -> tuple[int, int]:
    if path is None:
        return NOWHERE
    details = path.stat()
    return details.st_dev, details.st_ino


def _has_no_log(path: Path) -> bool:
    """Return whether the header of a file declares no log.

    A file that is open in this process declares one. It is not read here, because closing it would
    release SQLite's locks.
    """
    if OPEN[_place(path)]:
        return False
    with path.open("rb") as file:
        head = file.read(WRITE_VERSION + 1)
    return len(head) > WRITE_VERSION and head[WRITE_VERSION] == NO_LOG


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, so that they can be part of a transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
