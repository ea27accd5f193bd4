"""The file of a site's ledger: its tables, the rules that the database itself keeps, its errors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, final

from fallow.core.types import SiteId
from fallow.lab.errors import Failed

BUSY = 30.0  # seconds one process waits while the other one writes
SYNCHRONOUS = "FULL"  # a power cut loses nothing that was answered
VERSION = 1
"""Of the tables; a file of a later version is refused rather than misread."""

TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE IF NOT EXISTS run (id TEXT PRIMARY KEY, turn INTEGER NOT NULL UNIQUE,
    place INTEGER NOT NULL DEFAULT -1, newest TEXT) STRICT;
CREATE TABLE IF NOT EXISTS exchange (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL,
    key TEXT NOT NULL, digest TEXT NOT NULL, place INTEGER NOT NULL, verbs TEXT NOT NULL,
    bytes INTEGER NOT NULL, at TEXT NOT NULL, answer BLOB, UNIQUE (run, key)) STRICT;

CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, state BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS undo (exchange INTEGER NOT NULL, name TEXT NOT NULL, state BLOB,
    PRIMARY KEY (exchange, name)) STRICT;
CREATE TABLE IF NOT EXISTS spent (run TEXT NOT NULL, key TEXT NOT NULL, epsilon REAL NOT NULL,
    line BLOB NOT NULL, PRIMARY KEY (run, key)) STRICT;
CREATE TABLE IF NOT EXISTS secret (one INTEGER PRIMARY KEY CHECK (one = 1),
    held BLOB NOT NULL) STRICT;

CREATE TABLE IF NOT EXISTS label (row INTEGER PRIMARY KEY, value REAL NOT NULL,
    cycle INTEGER NOT NULL, weight REAL NOT NULL, probability REAL, held INTEGER NOT NULL,
    mark BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS gone (row INTEGER PRIMARY KEY, why TEXT NOT NULL
    CHECK (why IN ('withdrawn', 'declined')), who TEXT NOT NULL, note TEXT NOT NULL,
    at TEXT NOT NULL, applied INTEGER NOT NULL) STRICT;

CREATE TABLE IF NOT EXISTS purse (one INTEGER PRIMARY KEY CHECK (one = 1), most INTEGER,
    asked INTEGER NOT NULL DEFAULT 0, CHECK (most IS NULL OR asked <= most)) STRICT;
INSERT OR IGNORE INTO purse (one) VALUES (1);
CREATE TABLE IF NOT EXISTS purchase (id INTEGER PRIMARY KEY, run TEXT NOT NULL, step TEXT NOT NULL,
    cycle INTEGER NOT NULL, allowed INTEGER NOT NULL, asked INTEGER NOT NULL DEFAULT 0,
    asked_at TEXT NOT NULL, deadline TEXT, closed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (run, step), CHECK (asked BETWEEN 0 AND allowed)) STRICT;
CREATE TABLE IF NOT EXISTS question (id INTEGER PRIMARY KEY,
    purchase INTEGER NOT NULL REFERENCES purchase, run TEXT NOT NULL, cycle INTEGER NOT NULL,
    row INTEGER NOT NULL, place INTEGER NOT NULL, why TEXT NOT NULL, weight REAL NOT NULL,
    probability REAL, state TEXT NOT NULL DEFAULT 'open' CHECK (state IN
        ('open', 'answered', 'declined', 'conflict', 'expired', 'withdrawn')),
    entered INTEGER NOT NULL DEFAULT 0, UNIQUE (run, cycle, row)) STRICT;
CREATE INDEX IF NOT EXISTS question_row ON question (row);
CREATE TABLE IF NOT EXISTS given (id INTEGER PRIMARY KEY AUTOINCREMENT,
    question INTEGER NOT NULL REFERENCES question, who TEXT NOT NULL, value REAL,
    at TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN
        ('answer', 'imported', 'resolved', 'taken back')), undoes INTEGER UNIQUE) STRICT;
CREATE INDEX IF NOT EXISTS given_question ON given (question);

CREATE TRIGGER IF NOT EXISTS never_asked_again BEFORE INSERT ON question
WHEN EXISTS (SELECT 1 FROM label WHERE row = NEW.row)
  OR EXISTS (SELECT 1 FROM gone WHERE row = NEW.row)
BEGIN SELECT RAISE(ABORT, 'a row that has a label or has left is never asked'); END;
CREATE TRIGGER IF NOT EXISTS asking_costs AFTER INSERT ON question BEGIN
    UPDATE purchase SET asked = asked + 1 WHERE id = NEW.purchase;
    UPDATE purse SET asked = asked + 1;
END;
CREATE TRIGGER IF NOT EXISTS expired_is_given_back AFTER UPDATE OF state ON question
WHEN NEW.state = 'expired' AND OLD.state <> 'expired' BEGIN
    UPDATE purchase SET asked = asked - 1 WHERE id = NEW.purchase;
    UPDATE purse SET asked = asked - 1;
END;
CREATE TRIGGER IF NOT EXISTS expired_for_good BEFORE UPDATE OF state ON question
WHEN OLD.state IN ('expired', 'withdrawn') AND NEW.state <> OLD.state
BEGIN SELECT RAISE(ABORT, 'a question that has ended is never opened again'); END;
CREATE TRIGGER IF NOT EXISTS history_stays BEFORE UPDATE ON given
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;
CREATE TRIGGER IF NOT EXISTS history_is_whole BEFORE DELETE ON given
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;
"""


@final
class Tables:
    """One connection to the file, shared by the threads of a process.

    Several processes may have it open: each write is a short transaction and waits its turn.
    Raises Failed, in one sentence with the way out, where the file cannot be read or written.
    """

    def __init__(self, path: Path, site: SiteId) -> None:
        self.path, self.site = path, site
        self._turn = threading.RLock()
        self._depth = 0
        with self._plain():
            _make_private(path)
            self._db = sqlite3.connect(
                path, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
            self._db.execute("PRAGMA foreign_keys=ON")
            found = self._db.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        with self.transaction():
            self._create()

    def _create(self) -> None:
        found = self.read("PRAGMA user_version")[0][0]
        if found > VERSION:
            raise Failed(
                f"ledger {self.path} was written by a later version of Fallow: install that one"
            )
        if found < VERSION:
            for statement in _statements(TABLES):
                self.write(statement)
            self.write(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """SQLite's errors as one sentence that says what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise Failed(
                    f"ledger {self.path} has been busy for {BUSY:g} seconds: another process is "
                    "writing; end it, or try again; nothing was changed"
                ) from error
            raise Failed(
                f"ledger {self.path} of site {self.site} cannot be read or written ({error}): "
                "free some space or make the folder writable; what was written is kept, and the "
                "coordinator asks again"
            ) from error
        except sqlite3.IntegrityError:
            raise  # a rule of the tables: whoever wrote says what it means
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: of its schema
            raise self.damaged(str(error)) from error

    @property
    def _copy(self) -> Path:
        return self.path.with_name(f"{self.path.stem}-backup{self.path.suffix}")

    def damaged(self, why: str) -> Failed:
        return Failed(
            f"ledger {self.path} of site {self.site} is damaged ({why}): stop the site, move "
            f"{self.path.name} and the files {self.path.name}-wal and -shm away, copy "
            f"{self._copy.name}, which is as old as the last labels that entered training, to "
            f"{self.path.name}, and start the site again"
        )

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
        with self._plain():
            self._db.execute("COMMIT")

    def write(self, sql: str, *values: Any) -> int:
        """Returns the id of the row that was added, if one was."""
        with self._turn, self._plain():
            return self._db.execute(sql, values).lastrowid or 0

    def read(self, sql: str, *values: Any) -> list[Any]:
        with self._turn, self._plain():
            return self._db.execute(sql, values).fetchall()

    def backup(self) -> None:
        """A copy beside the file, whole or not there; it replaces the one before."""
        draft = self._copy.with_name(f"{self._copy.name}.part")
        draft.unlink(missing_ok=True)
        _make_private(draft)
        self.write("VACUUM INTO ?", str(draft))
        draft.replace(self._copy)

    def close(self) -> None:
        with self._turn:
            self._db.close()


def _make_private(path: Path) -> None:
    """A new file that others cannot read; SQLite gives the files beside it the same rights."""
    with suppress(OSError):  # which SQLite says better
        path.touch(mode=0o600)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, so that they can be part of a transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
