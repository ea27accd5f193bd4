"""Database file of the ledger: tables, constraints and errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from threading import Lock
from typing import Any, final

from fallow.core.types import SiteId
from fallow.deployment.ledger.labeling_tasks import now
from fallow.storage.database import BUSY, Database, DatabaseErrors, Durability, make_private
from fallow.storage.errors import (
    DamagedFileError,
    ReplacedFileError,
    StorageError,
    UnwritableFileError,
)
from fallow.storage.files import checksum

SYNCHRONOUS: Durability = "FULL"  # a power failure loses no label
COPIED = "copied at"
"""Mark of a restored backup, until labels of a cycle were added."""
NOTICED = "is older since"
"""Mark of a restored backup whose missing releases were charged, for the same time."""
VERSION = 5
"""Version of the tables. A file of another version is rejected."""

TABLES = """
CREATE TABLE metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL, mark BLOB) STRICT;

CREATE TABLE run (id TEXT PRIMARY KEY, turn INTEGER NOT NULL UNIQUE,
    position INTEGER NOT NULL DEFAULT -1, newest TEXT, mark BLOB) STRICT;
CREATE TABLE exchange (id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL,
    key TEXT NOT NULL, step TEXT NOT NULL, fields TEXT NOT NULL, digest TEXT NOT NULL,
    position INTEGER NOT NULL, owner TEXT NOT NULL, functions TEXT NOT NULL,
    bytes INTEGER NOT NULL, at TEXT NOT NULL, reply BLOB, mark BLOB, UNIQUE (run, key)) STRICT;

CREATE TABLE memory (name TEXT PRIMARY KEY, state BLOB NOT NULL) STRICT;
CREATE TABLE undo (exchange INTEGER NOT NULL, name TEXT NOT NULL, state BLOB,
    PRIMARY KEY (exchange, name)) STRICT;
CREATE TABLE privacy_spending (run TEXT NOT NULL, key TEXT NOT NULL, epsilon REAL NOT NULL,
    line BLOB NOT NULL, mark BLOB, PRIMARY KEY (run, key)) STRICT;
CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1),
    content BLOB NOT NULL) STRICT;

CREATE TABLE label (row INTEGER PRIMARY KEY, value REAL NOT NULL,
    cycle INTEGER NOT NULL, weight REAL NOT NULL, probability REAL, mark BLOB NOT NULL) STRICT;
CREATE TABLE place (row INTEGER PRIMARY KEY, is_validation INTEGER NOT NULL,
    fold INTEGER NOT NULL, mark BLOB) STRICT;
CREATE TABLE answer (digest TEXT PRIMARY KEY, covers TEXT NOT NULL, examples TEXT NOT NULL,
    reply BLOB NOT NULL) STRICT;
CREATE TABLE excluded (row INTEGER PRIMARY KEY, reason TEXT NOT NULL
    CHECK (reason IN ('withdrawn', 'declined')), annotator TEXT NOT NULL, note TEXT NOT NULL,
    at TEXT NOT NULL, mark BLOB) STRICT;

CREATE TABLE label_budget (id INTEGER PRIMARY KEY CHECK (id = 1), maximum INTEGER,
    asked INTEGER NOT NULL DEFAULT 0, mark BLOB,
    CHECK (maximum IS NULL OR asked <= maximum)) STRICT;
INSERT INTO label_budget (id) VALUES (1);
CREATE TABLE request (id INTEGER PRIMARY KEY, run TEXT NOT NULL, step TEXT NOT NULL,
    cycle INTEGER NOT NULL, allowed INTEGER NOT NULL, asked INTEGER NOT NULL DEFAULT 0,
    asked_at TEXT NOT NULL, deadline TEXT, closed INTEGER NOT NULL DEFAULT 0, mark BLOB,
    UNIQUE (run, step), CHECK (asked BETWEEN 0 AND allowed)) STRICT;
CREATE TABLE task (id INTEGER PRIMARY KEY,
    request INTEGER NOT NULL REFERENCES request, run TEXT NOT NULL, cycle INTEGER NOT NULL,
    row INTEGER NOT NULL, position INTEGER NOT NULL, reasons TEXT NOT NULL, weight REAL NOT NULL,
    probability REAL, answers INTEGER NOT NULL DEFAULT 1 CHECK (answers >= 1),
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN
        ('open', 'answered', 'declined', 'conflict', 'expired', 'withdrawn')),
    entered INTEGER NOT NULL DEFAULT 0, is_check INTEGER NOT NULL DEFAULT 0, mark BLOB,
    UNIQUE (run, cycle, row)) STRICT;
CREATE INDEX task_row ON task (row);
CREATE INDEX task_request ON task (request);
CREATE INDEX task_state ON task (run, state);
CREATE INDEX task_progress ON task (run, cycle, state);
CREATE TABLE annotation (id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES task, annotator TEXT NOT NULL, value REAL,
    at TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN
        ('answer', 'confirmed', 'earlier', 'imported', 'resolved', 'taken back')),
    undoes INTEGER UNIQUE,
    reason TEXT NOT NULL DEFAULT '', mark BLOB) STRICT;
CREATE INDEX annotation_task ON annotation (task);
CREATE INDEX annotation_annotator ON annotation (annotator);
CREATE TABLE skipped (id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES task, annotator TEXT NOT NULL, mark BLOB) STRICT;
CREATE INDEX skipped_task ON skipped (task);

CREATE TRIGGER never_asked_again BEFORE INSERT ON task
WHEN EXISTS (SELECT 1 FROM label WHERE row = NEW.row) <> NEW.is_check
  OR EXISTS (SELECT 1 FROM excluded WHERE row = NEW.row)
BEGIN SELECT RAISE(ABORT, 'a row with a label is only checked, and one that has left is never asked');
END;
CREATE TRIGGER asking_costs AFTER INSERT ON task BEGIN
    UPDATE request SET asked = asked + 1 WHERE id = NEW.request;
    UPDATE label_budget SET asked = asked + NEW.answers;
END;
CREATE TRIGGER expired_is_given_back AFTER UPDATE OF state ON task
WHEN NEW.state = 'expired' AND OLD.state <> 'expired' BEGIN
    UPDATE request SET asked = asked - 1 WHERE id = NEW.request;
    UPDATE label_budget SET asked = asked - max(0, OLD.answers -
        (SELECT count(DISTINCT annotator) FROM annotation WHERE task = OLD.id
        AND kind NOT IN ('taken back', 'earlier') AND id NOT IN
        (SELECT undoes FROM annotation WHERE undoes IS NOT NULL)));
END;
CREATE TRIGGER expired_for_good BEFORE UPDATE OF state ON task
WHEN OLD.state IN ('expired', 'withdrawn') AND NEW.state <> OLD.state
BEGIN SELECT RAISE(ABORT, 'a task that has ended is never opened again'); END;
CREATE TRIGGER place_is_decided_once BEFORE UPDATE OF row, is_validation, fold ON place
BEGIN SELECT RAISE(ABORT, 'the place of a label is decided once'); END;
CREATE TRIGGER place_stays BEFORE DELETE ON place
BEGIN SELECT RAISE(ABORT, 'the place of a label is decided once'); END;
CREATE TRIGGER history_stays
BEFORE UPDATE OF id, task, annotator, value, at, kind, undoes, reason ON annotation
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;
CREATE TRIGGER history_is_whole BEFORE DELETE ON annotation
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;

CREATE TABLE display_budget (id INTEGER PRIMARY KEY CHECK (id = 1), maximum INTEGER,
    shown INTEGER NOT NULL DEFAULT 0, mark BLOB,
    CHECK (maximum IS NULL OR shown <= maximum)) STRICT;
INSERT INTO display_budget (id) VALUES (1);
CREATE TRIGGER showing_counts AFTER INSERT ON task BEGIN
    UPDATE display_budget SET shown = shown + NEW.answers;
END;

CREATE TABLE scored (run TEXT NOT NULL, step TEXT NOT NULL, digest TEXT NOT NULL, mark BLOB,
    PRIMARY KEY (run, step, digest)) STRICT;
CREATE TABLE attempt (run TEXT NOT NULL, key TEXT NOT NULL, fields TEXT NOT NULL,
    digest TEXT NOT NULL, mark BLOB, PRIMARY KEY (run, key)) STRICT;
CREATE TABLE left_run (id TEXT PRIMARY KEY, at TEXT NOT NULL, mark BLOB) STRICT;
CREATE TABLE rollback_log (run TEXT NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL,
    at TEXT NOT NULL, mark BLOB, PRIMARY KEY (run, number)) STRICT;
CREATE TABLE rolled_back (run TEXT NOT NULL, key TEXT NOT NULL, mark BLOB,
    PRIMARY KEY (run, key)) STRICT;
"""
MARKED = {
    "metadata": ("name", "value"),
    "run": ("id", "turn", "position", "newest"),
    "exchange": (
        "id",
        "run",
        "key",
        "step",
        "fields",
        "digest",
        "position",
        "owner",
        "functions",
        "bytes",
        "at",
    ),
    "privacy_spending": ("run", "key", "epsilon"),
    "place": ("row", "is_validation", "fold"),
    "excluded": ("row", "reason", "annotator", "note", "at"),
    "label_budget": ("id", "maximum", "asked"),
    "display_budget": ("id", "maximum", "shown"),
    "request": (
        "id",
        "run",
        "step",
        "cycle",
        "allowed",
        "asked",
        "asked_at",
        "deadline",
        "closed",
    ),
    "task": (
        "id",
        "request",
        "run",
        "cycle",
        "row",
        "position",
        "reasons",
        "weight",
        "probability",
        "answers",
        "state",
        "entered",
        "is_check",
    ),
    "annotation": ("id", "task", "annotator", "value", "at", "kind", "undoes", "reason"),
    "skipped": ("id", "task", "annotator"),
    "scored": ("run", "step", "digest"),
    "attempt": ("run", "key", "fields", "digest"),
    "left_run": ("id", "at"),
    "rollback_log": ("run", "number", "key", "at"),
    "rolled_back": ("run", "key"),
}
"""Tables whose lines have a checksum of these columns. Other tables have their own checksums: labels
(`store`), states, secrets, replies and releases (`with_checksum`)."""
LABEL_TABLES = (
    "place",
    "excluded",
    "label_budget",
    "display_budget",
    "request",
    "task",
    "annotation",
)
"""The subset of these tables from which labels are derived."""
MARK_OF = "fallow_mark"
"""Name of `mark_of` in the database."""
Value = str | int | float | bytes | None
"""Value of a cell in SQLite."""


def mark_of(*line: Value) -> bytes:
    """Return the checksum of a line from the name of its table and its values."""
    return checksum(repr(line).encode())


def _mark_statements(table: str) -> str:
    """Return SQL statements by which the database maintains the checksums of a table."""
    names = ", ".join(MARKED[table])
    mark = (
        f"UPDATE {table} SET mark = {MARK_OF}('{table}', {names}) WHERE rowid = NEW.rowid"
    )
    return (
        f"UPDATE {table} SET mark = {MARK_OF}('{table}', {names});\n"
        f"CREATE TRIGGER {table}_is_marked AFTER INSERT ON {table} BEGIN {mark}; END;\n"
        f"CREATE TRIGGER {table}_is_marked_again AFTER UPDATE OF {names} ON {table} "
        f"BEGIN {mark}; END;\n"
    )


def copy_of(ledger: Path) -> Path:
    """Return the path of the backup of a ledger."""
    return ledger.with_name(f"{ledger.stem}-backup{ledger.suffix}")


@final
class Tables:
    """Tables of one site in a private file.

    Raises StorageError, with instructions for recovery, if the file cannot be read or written.
    """

    def __init__(self, path: Path, site: SiteId) -> None:
        self.path = path
        self.site = site
        self._copying = Lock()  # one backup at a time
        words = DatabaseErrors(self.damage_error, self._write_error)
        self._file = Database(path, words, SYNCHRONOUS, is_private=True)
        self._file.teach(MARK_OF, mark_of)
        with self.transaction():
            self._create()
            self.check(tuple(MARKED))

    def _create(self) -> None:
        """Create the tables of a new file."""
        version = self.read("PRAGMA user_version")[0][0]
        if version == 0:
            marks = [_mark_statements(table) for table in MARKED]
            self._file.create(TABLES + "".join(marks))
            self.write(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise StorageError(
                f"ledger {self.path} was written by another version of Fallow: install that one"
            )

    def check(self, tables: Sequence[str] = LABEL_TABLES) -> None:
        """Raise StorageError if a line of these tables was changed."""
        for table in tables:
            columns = ", ".join(MARKED[table])
            sql = (
                f"SELECT rowid FROM {table} WHERE mark IS NOT "
                f"{MARK_OF}('{table}', {columns}) LIMIT 1"
            )
            changed = self.read(sql)
            if changed:
                line = changed[0][0]
                raise self.damage_error(f"line {line} of its table {table} was changed")

    @property
    def copy(self) -> Path:
        """Return the path of the backup."""
        return copy_of(self.path)

    def damage_error(self, why: str) -> StorageError:
        """Return the error for a damaged file, with instructions for recovery."""
        return DamagedFileError(
            f"ledger {self.path} of site {self.site} is damaged ({why}): stop the "
            f"site and its page, move {self.path.name} and the files "
            f"{self.path.name}-wal and -shm away, copy {self.copy.name}, which is at "
            f"most an hour old if the site was running, to {self.path.name}, and "
            "start the site again"
        )

    def _write_error(self, why: str) -> StorageError:
        if "locked" in why or "busy" in why:
            return StorageError(
                f"ledger {self.path} has been locked for {BUSY:g} seconds by another "
                "process: stop that process, or try again; nothing was changed"
            )
        return UnwritableFileError(
            f"ledger {self.path} of site {self.site} cannot be read or written ({why}): "
            "free some space or make the folder writable; existing data is kept, and the "
            "coordinator repeats its instruction"
        )

    def transaction(self) -> AbstractContextManager[None]:
        """Run a transaction. An inner transaction joins the outer one."""
        return self._file.transaction()

    def write(self, sql: str, *values: Value) -> int:
        """Execute a statement, and return the ID of an added line."""
        return self._file.write(sql, *values)

    def read(self, sql: str, *values: Value) -> list[Any]:
        """Return all lines of a query as tuples."""
        return self._file.read(sql, *values)

    def read_one(self, sql: str, *values: Value) -> Any:
        """Return the first column of the first line of a query, or None without lines."""
        for line in self.read(sql, *values):
            return line[0]
        return None

    def backup(self) -> None:
        """Replace the backup atomically.

        The backup is marked as such, because a site that works with it lacks later events.
        """
        draft = self.copy.with_name(f"{self.copy.name}.part")
        words = DatabaseErrors(self.damage_error, self._write_error)
        with self._copying:
            draft.unlink(missing_ok=True)
            make_private(draft)
            self._file.copy_to(draft)
            with closing(Database(draft, words, SYNCHRONOUS)) as copy:
                copy.teach(MARK_OF, mark_of)
                copy.write(
                    "INSERT OR REPLACE INTO metadata (name, value) VALUES (?, ?)",
                    COPIED,
                    now(),
                )
                # a backup that is restored later starts without this finding
                copy.write("DELETE FROM metadata WHERE name = ?", NOTICED)
                # a restored key would mask a second contribution
                copy.write("DELETE FROM secret")
                copy.read("VACUUM")  # remove the deleted key from free pages as well
                copy.read("PRAGMA journal_mode=DELETE")  # keep the backup in a single file
            draft.replace(self.copy)

    def check_in_place(self) -> None:
        """Raise ReplacedFileError if the file was replaced by another one since it was opened."""
        if not self._file.is_in_place():
            raise ReplacedFileError(
                f"ledger {self.path} of site {self.site} was moved away or replaced while the site "
                "was running: stop the site and its page, restore the right file, and start the "
                "site again"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
