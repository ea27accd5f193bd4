"""The memory of one run: exchanges, sites, labels and finished steps, in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, final

from fallow.core.types import SiteId, State
from fallow.privacy import Released
from fallow.sites.store import Label, RelayedMessages
from fallow.storage.checksums import MARK, checksum
from fallow.storage.database import Database, Durability, Words
from fallow.storage.errors import Failed
from fallow.storage.packing import pack, unpack

DURABLE: Durability = "FULL"
Result = TypeVar("Result")  # of a step: a dictionary of what `pack` knows

UNHELD = """
DELETE FROM letter WHERE NOT EXISTS (SELECT 1 FROM received WHERE received.mark = letter.mark)
"""
HELD = "ALTER TABLE label ADD COLUMN held INTEGER NOT NULL DEFAULT 0"
"""For files from before labels could be held back for validation: theirs all train."""
TABLES = """
CREATE TABLE IF NOT EXISTS exchange (key TEXT PRIMARY KEY, digest TEXT, entry BLOB) STRICT;
CREATE TABLE IF NOT EXISTS finished (step TEXT PRIMARY KEY, result BLOB) STRICT;
CREATE TABLE IF NOT EXISTS kept (site TEXT, name TEXT, state BLOB, PRIMARY KEY (site, name)) STRICT;
CREATE TABLE IF NOT EXISTS letter (mark BLOB PRIMARY KEY, content BLOB) STRICT;
CREATE TABLE IF NOT EXISTS received (site TEXT, name TEXT, mark BLOB,
                                     PRIMARY KEY (site, name)) STRICT;
CREATE INDEX IF NOT EXISTS received_mark ON received (mark);
CREATE TABLE IF NOT EXISTS label (site TEXT, row INTEGER, value REAL, cycle INTEGER, weight REAL,
                                  probability REAL, mark BLOB, held INTEGER NOT NULL DEFAULT 0,
                                  PRIMARY KEY (site, row)) STRICT;
CREATE TABLE IF NOT EXISTS spent (site TEXT, key TEXT, line BLOB, PRIMARY KEY (site, key)) STRICT;
CREATE TABLE IF NOT EXISTS secret (site TEXT PRIMARY KEY, held BLOB) STRICT;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT) STRICT;
"""


@final
class Journal:
    """Journal of the server half and store of the simulated sites.

    Both halves of an exchange are one transaction: after ``kill -9`` either all of it happened or
    nothing did.  ``path=None`` keeps everything in memory.  ``is_durable``: as real sites need it,
    which drop their answers once they count; a power cut takes back nothing either, and nobody
    else may read the file.  Every value carries a checksum.  Raises Failed when the file is damaged
    or its disk is full or read-only.
    """

    def __init__(self, path: Path | None = None, is_durable: bool = False) -> None:
        self.path = path
        self._read_letters: dict[bytes, State] = {}
        words = Words(self._damaged, self._unwritable)
        self._file = Database(path, words, DURABLE if is_durable else "NORMAL", is_durable)
        self._file.create(TABLES)
        if "held" not in [column[1] for column in self._read("PRAGMA table_info(label)")]:
            self._write(HELD)

    def _unwritable(self, why: str) -> Failed:
        return Failed(
            f"{self.path} cannot be written ({why}): free some space or make the folder "
            "writable, then run again with --resume (coordinate start: without); what was "
            "finished is kept"
        )

    def _damaged(self, why: str) -> Failed:
        return Failed(
            f"journal {self.path} is damaged ({why}): delete the folder "
            f"{self.path and self.path.parent} and run again with --resume (coordinate start: "
            "without); other runs are not touched"
        )

    def _opened(self, blob: bytes, what: str) -> Any:
        """What `with_checksum` closed; a changed byte is noticed."""
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._damaged(f"{what} has another checksum")
        return unpack(blob[MARK:])

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; an inner transaction joins the outer one."""
        return self._file.transaction()

    def _write(self, sql: str, *values: Any) -> None:
        try:
            self._file.write(sql, *values)
        except sqlite3.IntegrityError as error:  # nothing here is ever written twice
            raise self._damaged(str(error)) from error

    def _read(self, sql: str, *values: Any) -> list[Any]:
        return self._file.read(sql, *values)

    # -- exchanges --------------------------------------------------------------------------

    def recall(self, key: str, digest: str) -> dict[str, Any] | None:
        """What an exchange answered, or None if it never finished."""
        found = self._read("SELECT digest, entry FROM exchange WHERE key = ?", key)
        if not found:
            return None
        if found[0][0] != digest:
            raise Failed(
                f"exchange {key} of {self.path} was recorded with other contents: the run was "
                "changed since; start it in a new folder"
            )
        entry: dict[str, Any] = self._opened(found[0][1], f"exchange {key}")
        return entry

    def record(self, key: str, digest: str, entry: dict[str, Any]) -> None:
        self._write(
            "INSERT INTO exchange VALUES (?, ?, ?)", key, digest, with_checksum(entry)
        )

    def exchanges(self) -> list[str]:
        """The keys of the exchanges of the open step, as they were recorded."""
        return [key for (key,) in self._read("SELECT key FROM exchange ORDER BY rowid")]

    def take_back(self, exchanges: Sequence[str], steps: Sequence[str]) -> None:
        """Forget exchanges and finished steps: what follows from them is done again."""
        with self.transaction():
            for key in exchanges:
                self._write("DELETE FROM exchange WHERE key = ?", key)
            for step in steps:
                self._write("DELETE FROM finished WHERE step = ?", step)

    # -- finished steps ---------------------------------------------------------------------

    def finish(self, step: str, result: Result) -> Result:
        """A step is done: remember its result, forget its exchanges.

        Returns the result as a resumed run will read it (tuples are lists then), so that a run
        that was never disturbed goes on with the very same.
        """
        with self.transaction():
            self._write("INSERT INTO finished VALUES (?, ?)", step, with_checksum(result))
            self._write("DELETE FROM exchange WHERE instr(key, ?) = 1", f"{step}/")
            self._write(UNHELD)
        kept: Result = unpack(pack(result))
        return kept

    def finished(self, step: str) -> dict[str, Any] | None:
        """The result of a finished step, or None."""
        found = self._read("SELECT result FROM finished WHERE step = ?", step)
        return self._opened(found[0][0], f"step {step}") if found else None

    def steps(self) -> list[str]:
        """The names of the finished steps."""
        return [step for (step,) in self._read("SELECT step FROM finished ORDER BY rowid")]

    def about(self, name: str, value: str) -> str:
        """The value first given for ``name``: a later, different one is not stored."""
        self._write("INSERT OR IGNORE INTO about VALUES (?, ?)", name, value)
        return str(self._read("SELECT value FROM about WHERE name = ?", name)[0][0])

    def noted(self, name: str) -> str | None:
        """What was last noted under ``name``, or None."""
        found = self._read("SELECT value FROM about WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def note(self, name: str, value: str) -> None:
        """Remember ``value`` under ``name``, in place of what was noted there before."""
        self._write("INSERT OR REPLACE INTO about VALUES (?, ?)", name, value)

    def tidy(self) -> None:
        """After the last step: drop what only a resume needs and give the space back."""
        for table in ("kept", "received", "letter", "secret"):
            self._write(f"DELETE FROM {table}")
        self._write("VACUUM")

    def close(self) -> None:
        self._file.close()

    # -- the sites' store -------------------------------------------------------------------

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        for table in ("kept", "received"):
            self._write(f"DELETE FROM {table} WHERE site = ? AND name = ?", site, name)
        if state is not None:
            self._write(
                "INSERT INTO kept VALUES (?, ?, ?)", site, name, with_checksum(state)
            )

    def receive(self, site: SiteId, verb: str, letters: RelayedMessages) -> None:
        """A letter is written once, whoever receives it, and kept while a site holds it."""
        self._read_letters.clear()
        for table in ("kept", "received"):
            sql = f"DELETE FROM {table} WHERE site = ? AND instr(name, ?) = 1"
            self._write(sql, site, f"{verb}/")
        for sender, letter in letters.items():
            if not self._read("SELECT 1 FROM letter WHERE mark = ?", letter.mark):
                self._write("INSERT INTO letter VALUES (?, ?)", letter.mark, letter.content)
            self._write(
                "INSERT INTO received VALUES (?, ?, ?)",
                site,
                f"{verb}/{sender}",
                letter.mark,
            )
        self._write(UNHELD)

    def load_states(self, site: SiteId) -> dict[str, State]:
        rows = self._read("SELECT name, state FROM kept WHERE site = ? ORDER BY name", site)
        kept = {name: self._opened(blob, f"{name} of site {site}") for name, blob in rows}
        rows = self._read(
            "SELECT name, mark FROM received WHERE site = ? ORDER BY name", site
        )
        return kept | {
            name: self._letter(mark, f"{name} of site {site}") for name, mark in rows
        }

    def _letter(self, mark: bytes, what: str) -> State:
        """What a letter says; sites that hold the same one share it."""
        if mark not in self._read_letters:
            found = self._read("SELECT content FROM letter WHERE mark = ?", mark)
            self._read_letters[mark] = self._opened(
                mark + (found[0][0] if found else b""), what
            )
        return self._read_letters[mark]

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        for label in labels:
            *bought, held = label
            line = (site, *bought, _line_mark(site, label), held)
            self._write("INSERT INTO label VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *line)

    def load_labels(self, site: SiteId) -> list[Label]:
        sql = "SELECT row, value, cycle, weight, probability, held, mark FROM label WHERE site = ?"
        labels = []
        for row, value, cycle, weight, p, held, mark in self._read(
            f"{sql} ORDER BY row", site
        ):
            label = Label(row, value, cycle, weight, p, bool(held))
            if _line_mark(site, label) != mark:
                raise self._damaged(
                    f"the label of row {label.row} of site {site} was changed"
                )
            labels.append(label)
        return labels

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        line = with_checksum({**released._asdict(), "key": key})
        self._write("INSERT INTO spent VALUES (?, ?, ?)", site, key, line)

    def released(self, site: SiteId) -> dict[str, Released]:
        found = {}
        sql = "SELECT key, line FROM spent WHERE site = ? ORDER BY rowid"
        for key, blob in self._read(sql, site):
            line = self._opened(blob, f"release {key} of site {site}")
            if line.pop("key") != key:
                raise self._damaged(
                    f"release {key} of site {site} stands under another key"
                )
            found[key] = Released(**line)
        return found

    def hide(self, site: SiteId, secret: dict[str, Any]) -> None:
        self._write(
            "INSERT OR REPLACE INTO secret VALUES (?, ?)", site, with_checksum(secret)
        )

    def hidden(self, site: SiteId) -> dict[str, Any] | None:
        found = self._read("SELECT held FROM secret WHERE site = ?", site)
        return self._opened(found[0][0], f"the secret of site {site}") if found else None


def with_checksum(tree: Any) -> bytes:
    """A structure as bytes, its checksum first."""
    blob = pack(tree)
    return checksum(blob) + blob


def _line_mark(site: SiteId, label: Label) -> bytes:
    row, value, cycle, weight, p, held = label
    line = (site, row, float(value), cycle, float(weight), None if p is None else float(p))
    return checksum(repr((*line, "held") if held else line).encode())
