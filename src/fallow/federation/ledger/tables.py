"""The file of a site's ledger: its tables, the rules that the database itself keeps, its errors."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Lock
from typing import Any, final

from fallow.core.types import SiteId
from fallow.federation.ledger.questions import now
from fallow.lab.errors import Damaged, Failed, Unwritable
from fallow.runtimes.database import BUSY, Database, Durability, Words, make_private

SYNCHRONOUS: Durability = "FULL"  # a power cut loses nothing that was answered
COPIED = "copied at"
"""What a copy says of itself, until it is known again what was released."""
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


def copy_of(ledger: Path) -> Path:
    """Where the copy of a ledger's file lies."""
    return ledger.with_name(f"{ledger.stem}-backup{ledger.suffix}")


@final
class Tables:
    """The tables of one site, in its file, which nobody else may read.

    Raises Failed, in one sentence with the way out, where the file cannot be read or written.
    """

    def __init__(self, path: Path, site: SiteId) -> None:
        self.path, self.site, self._copying = path, site, Lock()
        words = Words(self.damaged, self._unwritable)
        self._file = Database(path, words, SYNCHRONOUS, is_private=True)
        with self.transaction():
            self._create()

    def _create(self) -> None:
        found = self.read("PRAGMA user_version")[0][0]
        if found > VERSION:
            raise Failed(
                f"ledger {self.path} was written by a later version of Fallow: install that one"
            )
        if found < VERSION:
            self._file.create(TABLES)
            self.write(f"PRAGMA user_version = {VERSION}")

    @property
    def copy(self) -> Path:
        return copy_of(self.path)

    def damaged(self, why: str) -> Failed:
        return Damaged(
            f"ledger {self.path} of site {self.site} is damaged ({why}): end the site and its "
            f"page, move {self.path.name} and the files {self.path.name}-wal and -shm away, copy "
            f"{self.copy.name}, which is an hour old at most where the site was running, to "
            f"{self.path.name}, and start the site again"
        )

    def _unwritable(self, why: str) -> Failed:
        if "locked" in why or "busy" in why:
            return Failed(
                f"ledger {self.path} has been busy for {BUSY:g} seconds: another process is "
                "writing; end it, or try again; nothing was changed"
            )
        return Unwritable(
            f"ledger {self.path} of site {self.site} cannot be read or written ({why}): "
            "free some space or make the folder writable; what was written is kept, and the "
            "coordinator asks again"
        )

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; an inner transaction joins the outer one."""
        return self._file.transaction()

    def write(self, sql: str, *values: Any) -> int:
        """Returns the id of the row that was added, if one was."""
        return self._file.write(sql, *values)

    def read(self, sql: str, *values: Any) -> list[Any]:
        return self._file.read(sql, *values)

    def backup(self) -> None:
        """A copy beside the file, whole or not there; it replaces the one before.  It says that it
        is a copy: a site that works on it does not know what it did since."""
        draft = self.copy.with_name(f"{self.copy.name}.part")
        words = Words(self.damaged, self._unwritable)
        with self._copying:
            draft.unlink(missing_ok=True)
            make_private(draft)
            self.write("VACUUM INTO ?", str(draft))
            with closing(Database(draft, words, SYNCHRONOUS)) as copy:
                copy.write("INSERT OR REPLACE INTO about VALUES (?, ?)", COPIED, now())
                copy.read("PRAGMA journal_mode=DELETE")  # the copy is one file
            draft.replace(self.copy)

    def close(self) -> None:
        self._file.close()
