"""The memory of one run: exchanges, sites, labels and finished steps, in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from fallow.core.types import SiteId, State
from fallow.lab.errors import Failed
from fallow.runtimes.store import Label
from fallow.runtimes.wire import pack, unpack

TABLES = """
CREATE TABLE IF NOT EXISTS exchange (key TEXT PRIMARY KEY, digest TEXT, entry BLOB) STRICT;
CREATE TABLE IF NOT EXISTS finished (step TEXT PRIMARY KEY, result BLOB) STRICT;
CREATE TABLE IF NOT EXISTS kept (site TEXT, name TEXT, state BLOB, PRIMARY KEY (site, name)) STRICT;
CREATE TABLE IF NOT EXISTS label (site TEXT, row INTEGER, value REAL, cycle INTEGER, weight REAL,
                                  probability REAL, PRIMARY KEY (site, row)) STRICT;
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT) STRICT;
"""


@final
class Journal:
    """Journal of the server half and store of the simulated sites.

    Both halves of an exchange are one transaction: after ``kill -9`` either all of it happened or
    nothing did.  ``path=None`` keeps everything in memory.  Raises Failed when the file is
    damaged or its disk is full or read-only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._depth = 0
        with self._plain():
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(TABLES)

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """SQLite's errors as one sentence that says what to do."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Failed(
                f"{self.path} cannot be written ({error}): free some space or make the folder "
                "writable, then run again with --resume; what was finished is kept"
            ) from error
        except sqlite3.DatabaseError as error:
            raise Failed(
                f"{self.path} is damaged ({error}): delete the folder {self.path and self.path.parent} "
                "and run again; other runs are not touched"
            ) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; an inner transaction joins the outer one."""
        if self._depth:
            yield
            return
        with self._plain():
            self._db.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._db.rollback()
            raise
        else:
            self.commit()
        finally:
            self._depth -= 1

    def commit(self) -> None:
        with self._plain():
            self._db.execute("COMMIT")

    def _write(self, sql: str, *values: Any) -> None:
        with self._plain():
            self._db.execute(sql, values)

    def _read(self, sql: str, *values: Any) -> list[Any]:
        with self._plain():
            return self._db.execute(sql, values).fetchall()

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
        entry: dict[str, Any] = unpack(found[0][1])
        return entry

    def record(self, key: str, digest: str, entry: dict[str, Any]) -> None:
        self._write("INSERT INTO exchange VALUES (?, ?, ?)", key, digest, pack(entry))

    # -- finished steps ---------------------------------------------------------------------

    def finish(self, step: str, result: Any) -> None:
        """A step is done: remember its result, forget its exchanges."""
        with self.transaction():
            self._write("INSERT INTO finished VALUES (?, ?)", step, pack(result))
            self._write("DELETE FROM exchange WHERE key LIKE ? || '/%'", step)

    def finished(self, step: str) -> Any:
        """The result of a finished step, or None."""
        found = self._read("SELECT result FROM finished WHERE step = ?", step)
        return unpack(found[0][0]) if found else None

    def about(self, name: str, value: str) -> str:
        """The value first given for ``name``: a later, different one is not stored."""
        self._write("INSERT OR IGNORE INTO about VALUES (?, ?)", name, value)
        return str(self._read("SELECT value FROM about WHERE name = ?", name)[0][0])

    def tidy(self) -> None:
        """After the last step: drop what only a resume needs and give the space back."""
        self._write("DELETE FROM kept")
        self._write("VACUUM")

    def close(self) -> None:
        self._db.close()

    # -- the sites' store -------------------------------------------------------------------

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        if state is None:
            self._write("DELETE FROM kept WHERE site = ? AND name = ?", site, name)
        else:
            self._write("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", site, name, pack(state))

    def kept(self, site: SiteId) -> dict[str, State]:
        rows = self._read("SELECT name, state FROM kept WHERE site = ? ORDER BY name", site)
        return {name: unpack(blob) for name, blob in rows}

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        for label in labels:
            self._write("INSERT INTO label VALUES (?, ?, ?, ?, ?, ?)", site, *label)

    def written(self, site: SiteId) -> list[Label]:
        sql = "SELECT row, value, cycle, weight, probability FROM label WHERE site = ? ORDER BY row"
        return [Label(*row) for row in self._read(sql, site)]
