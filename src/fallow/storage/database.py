"""One SQLite file: transactions that join, errors as sentences, and rights of its owner alone."""

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

BUSY = 30.0  # seconds one process waits while another one writes
WRITE_VERSION = 18  # the byte of a file's header that says whether it has a log
NO_LOG = 1  # what it says where there is none
NOWHERE = (-1, -1)
"""The device and number of a database in memory."""
COUNTING = threading.Lock()
OPEN: Counter[tuple[int, int]] = Counter()
"""How often this process has a file open, by its device and number."""
Durability = Literal["FULL", "NORMAL", "OFF"]
"""Possible loss at a power failure: nothing; the last transactions; with OFF the file (for tests)."""


@dataclass(frozen=True)
class Words:
    """Errors in the words of whose file it is, made of SQLite's own: a file that is ``damaged``,
    and one that cannot be read or written now."""

    damaged: Callable[[str], Exception]
    unwritable: Callable[[str], Exception]


@final
class Database:
    """One connection to the file, shared by the threads of a process.

    Several processes may have it open: each write is a short transaction and waits its turn.
    path: None keeps everything in memory; ``is_private``: nobody but its owner may read the file.
    Raises what ``words`` make of SQLite's errors.
    """

    def __init__(
        self,
        path: Path | None,
        words: Words,
        durability: Durability,
        is_private: bool = False,
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
                check_same_thread=False,  # `_turn` lets in one thread at a time
                timeout=BUSY,
                isolation_level=None,  # transactions begin and end where `transaction` says
            )
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
        """SQLite's errors in words.  A broken rule of the tables is none of them: whoever wrote
        says what it means."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._words.unwritable(str(error)) from error
        except sqlite3.IntegrityError:
            raise
        except (
            sqlite3.DatabaseError,
            UnicodeDecodeError,
        ) as error:  # the latter: of its schema
            raise self._words.damaged(str(error)) from error

    def teach(self, name: str, function: Callable[..., Any]) -> None:
        """A function of plain values that triggers and statements may call by a name; equal values
        give equal results."""
        with self._turn:
            self._db.create_function(name, -1, function, deterministic=True)

    def create(self, script: str) -> None:
        """Make tables, all or none."""
        with self.transaction():
            for statement in _statements(script):
                self.write(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; an inner transaction joins the outer one."""
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
        """End a transaction; from now on it stands."""
        with self._plain():
            self._db.execute("COMMIT")

    def write(self, sql: str, *values: Any) -> int:
        """Change something; the id of the line that was added, if one was."""
        with self._turn, self._plain():
            return self._db.execute(sql, values).lastrowid or 0

    def write_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same change for each row of values: all or none."""
        with self.transaction(), self._plain():
            self._db.executemany(sql, rows)

    def read(self, sql: str, *values: Any) -> list[Any]:
        """All lines of an answer, each a tuple whose types the statement decides."""
        with self._turn, self._plain():
            outcome: list[Any] = self._db.execute(sql, values).fetchall()
            return outcome

    def copy_to(self, path: Path) -> None:
        """All that is committed, into another file: by SQLite's backup API, which waits for no writer
        and holds none up."""
        with self._turn, self._plain(), closing(sqlite3.connect(path)) as target:
            self._db.backup(target)

    def is_in_place(self) -> bool:
        """Whether the file at the path is still the one that was opened."""
        try:
            return _place(self.path) == self._place
        except OSError:
            return False

    def close(self) -> None:
        """End the connection."""
        with self._turn:
            self._db.close()
            with COUNTING:
                OPEN[self._place] -= 1
            self._place = NOWHERE


def make_private(path: Path) -> None:
    """A file, new or not, that others cannot read; SQLite gives those beside it the same rights."""
    with suppress(OSError):  # which SQLite says better
        path.touch(mode=0o600)
        path.chmod(0o600)


def has_no_table(path: Path) -> bool:
    """Whether a file has neither a table nor a log with one: SQLite would begin a new database."""
    log = path.with_name(f"{path.name}-wal")
    if OPEN[_place(path)] or (log.exists() and log.stat().st_size):
        return False
    if not path.stat().st_size:
        return True
    source = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(source, uri=True)) as db:
            return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.Error:  # a damaged file, which is said when it is opened
        return False


def put_strange_log_aside(path: Path) -> None:
    """Rename a write-ahead log that belongs to another file.

    A file with such a log says so in its header.  Where one that does not was put in its place, a
    backup for instance, SQLite would write the changes of the old file into the new one.  Of
    several processes that find such a log one renames it, and no other goes on before that: by a
    lock on the log.
    """
    log = path.with_name(f"{path.name}-wal")
    index = path.with_name(f"{path.name}-shm")
    with suppress(OSError), log.open("rb") as file:  # which SQLite says better
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

    A file that is open in this process has one: opening and closing it again would release the
    locks of SQLite.
    """
    if OPEN[_place(path)]:
        return False
    with path.open("rb") as file:
        head = file.read(WRITE_VERSION + 1)
    return len(head) > WRITE_VERSION and head[WRITE_VERSION] == NO_LOG


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, so that they can be part of a transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
