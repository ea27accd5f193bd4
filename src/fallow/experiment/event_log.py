"""Event log of one run: exchanges, sites, labels and finished steps, in an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, final

from fallow.core.exchange_key import ExchangeKey, read_key
from fallow.core.messages import StateName
from fallow.core.types import SiteId, State, Values
from fallow.privacy.ledger import Released, SumKey
from fallow.sites.store import Label, PeerMessages, read_label
from fallow.storage.database import Database, DatabaseErrors, Durability
from fallow.storage.errors import StorageError
from fallow.storage.files import MARK, checksum
from fallow.storage.packing import list_parts, pack, unpack

DURABLE: Durability = "FULL"
PAGE = 2**15  # bytes; models are written in a third of the time that pages of 4,096 take
Result = TypeVar("Result")  # of a step: a dictionary that `pack` supports

DROP_MESSAGES = """
DELETE FROM peer_message
WHERE NOT EXISTS (SELECT 1 FROM received WHERE received.mark = peer_message.mark)
"""
"""Delete peer messages that are no longer in the memory of any site."""
KEEP = """
INSERT INTO memory VALUES (?, ?, ?)
ON CONFLICT (site, name) DO UPDATE SET state = excluded.state
"""
"""Write a state over the earlier one, in its pages if both have the same size."""
TABLES = """
CREATE TABLE IF NOT EXISTS exchange (key TEXT PRIMARY KEY, phase TEXT, fields TEXT, digest TEXT,
                                     entry BLOB) STRICT;
CREATE TABLE IF NOT EXISTS finished (step TEXT PRIMARY KEY, result BLOB) STRICT;
CREATE TABLE IF NOT EXISTS memory (site TEXT, name TEXT, state BLOB,
                                   PRIMARY KEY (site, name)) STRICT;
CREATE TABLE IF NOT EXISTS peer_message (mark BLOB PRIMARY KEY, content BLOB) STRICT;
CREATE TABLE IF NOT EXISTS received (site TEXT, name TEXT, mark BLOB,
                                     PRIMARY KEY (site, name)) STRICT;
CREATE INDEX IF NOT EXISTS received_mark ON received (mark);
CREATE TABLE IF NOT EXISTS label (site TEXT, row INTEGER, value REAL, cycle INTEGER, weight REAL,
                                  probability REAL, mark BLOB, is_validation INTEGER NOT NULL,
                                  fold INTEGER, PRIMARY KEY (site, row)) STRICT;
CREATE TABLE IF NOT EXISTS privacy_spending (site TEXT, key TEXT, line BLOB,
                                             PRIMARY KEY (site, key)) STRICT;
CREATE TABLE IF NOT EXISTS secret (site TEXT PRIMARY KEY, content BLOB) STRICT;
CREATE TABLE IF NOT EXISTS metadata (name TEXT PRIMARY KEY, value TEXT) STRICT;
"""


@final
@dataclass
class _Draft:
    """Exchanges and states of the last transaction that are not yet in the file."""

    exchanges: list[tuple[str | bytes, ...]] = field(default_factory=list)
    states: dict[StateName, State | None] = field(default_factory=dict)


@final
class EventLog:
    """Event log of the server side, and store of the simulated sites.

    Both sides of an exchange are one transaction, which ``kill -9`` cannot split. In a
    simulation it is written before the next exchange is sent, without the models that the
    sites replace in that exchange before they read them.
    ``path=None`` stores everything in memory. ``is_durable`` is for real sites, which
    delete their replies once they count: a power cut loses nothing, and only the owner may
    read the file. Every value has a checksum. Raises StorageError if the file is damaged, or if
    its disk is full or read-only.

    >>> event_log = EventLog()
    >>> event_log.finish("0/train", {"seconds": 1.5})
    {'seconds': 1.5}
    >>> event_log.load_step("0/train"), event_log.load_step("0/query")
    ({'seconds': 1.5}, None)
    """

    def __init__(self, path: Path | None = None, is_durable: bool = False) -> None:
        self.path = path
        self._is_delayed = not is_durable
        self._draft = _Draft()
        self._is_open = False  # a transaction
        self._has_writes = False  # of the open transaction, in the file
        self._messages: dict[bytes, State] = {}  # those that were read, by their checksum
        words = DatabaseErrors(self._damaged, self._unwritable)
        durability: Durability = "NORMAL"
        if is_durable:
            durability = DURABLE
        self._file = Database(
            path, words, durability, is_private=is_durable, page_bytes=PAGE
        )
        self._refuse_what_runs()
        self._file.create(TABLES)

    def _refuse_what_runs(self) -> None:
        """Raise StorageError if the file has views or triggers.

        No event log has any. They would run on every access, and the file may be from
        another person.
        """
        kinds = self._read("SELECT type, name FROM sqlite_schema")
        for kind, name in kinds:
            if kind not in ("table", "index"):
                raise self._damaged(f"it has a {kind}, {name:.40}, which no event log has")

    def _unwritable(self, reason: str) -> StorageError:
        return StorageError(
            f"{self.path} cannot be written ({reason}): free some space or make the folder "
            "writable, then run again with --resume (coordinate start: without); "
            "finished steps are kept"
        )

    def _damaged(self, reason: str) -> StorageError:
        return StorageError(
            f"event log {self.path} is damaged ({reason}): delete the folder "
            f"{self.path and self.path.parent} and run again with --resume (coordinate "
            "start: without); other runs are not affected"
        )

    def _unpack(self, blob: bytes, what: str) -> Any:
        """Return the structure that `with_checksum` packed, after a check of its checksum.

        ``what`` is used in the error.
        """
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._damaged(f"{what} has a wrong checksum")
        return unpack(blob[MARK:])

    @contextmanager
    def transaction(self, replaces: Collection[StateName] = ()) -> Iterator[None]:
        """Run a block in one transaction; an inner transaction joins the outer one.

        Exchanges and states of a block without other writes are written before the next
        access to the file. ``replaces``: states of sites that the block replaces before it
        reads them; earlier ones that are not written yet are dropped.
        """
        if self._is_open:
            yield
            return
        for name in replaces:
            self._draft.states.pop(name, None)
        self._write_draft()
        self._is_open = True
        self._has_writes = False
        try:
            with self._file.transaction():
                yield
                if self._has_writes or not self._is_delayed:
                    self._write_draft()
        except BaseException:
            self._draft = _Draft()
            raise
        finally:
            self._is_open = False

    def _write_draft(self) -> None:
        """Write exchanges and states that are not yet in the file."""
        draft = self._draft
        if not draft.exchanges and not draft.states:
            return
        self._draft = _Draft()
        with self._file.transaction():
            for row in draft.exchanges:
                self._write("INSERT INTO exchange VALUES (?, ?, ?, ?, ?)", *row)
            for (site, name), state in draft.states.items():
                self._write_state(site, name, state)

    def _write_state(self, site: SiteId, name: str, state: State | None) -> None:
        self._write("DELETE FROM received WHERE site = ? AND name = ?", site, name)
        if state is None:
            self._write("DELETE FROM memory WHERE site = ? AND name = ?", site, name)
        else:
            self._write(KEEP, site, name, with_checksum(state))

    def _write(self, sql: str, *values: object) -> None:
        self._write_draft()
        self._has_writes = True
        try:
            self._file.write(sql, *values)
        except sqlite3.IntegrityError as error:  # nothing is written twice here
            raise self._damaged(str(error)) from error

    def _read(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a query as tuples."""
        self._write_draft()
        return self._file.read(sql, *values)

    # -- exchanges --------------------------------------------------------------------------

    def recall(self, key: ExchangeKey, digest: str) -> Any:
        """Return the recorded reply of an exchange, or None if it was not finished.

        ``digest`` identifies the request. Raises StorageError if the recorded request differs.
        """
        if any(name == str(key) for name, *_ in self._draft.exchanges):
            self._write_draft()
        # without other exchanges and states, which wait for the next transaction
        rows = self._file.read("SELECT digest, entry FROM exchange WHERE key = ?", str(key))
        if not rows:
            return None
        digest_then, blob = rows[0]
        if digest_then != digest:
            raise StorageError(
                f"exchange {key} of {self.path} was recorded with other contents, because "
                "the run was changed since; start it in a new folder"
            )
        return self._unpack(blob, f"exchange {key}")

    def record(self, key: ExchangeKey, digest: str, entry: Mapping[str, object]) -> None:
        """Store the reply of an exchange."""
        fields = json.dumps(key.to_dict())
        row = (str(key), key.phase_name, fields, digest, with_checksum(entry))
        self._draft.exchanges.append(row)
        if not self._is_open:
            self._write_draft()

    def load_aggregates(self, phase: str) -> list[Values]:
        """Return the aggregates over sites of the open step ``phase``, in order of recording."""
        rows = self._read(
            "SELECT key, entry FROM exchange WHERE phase = ? ORDER BY rowid", phase
        )
        entries = [self._unpack(blob, f"exchange {key}") for key, blob in rows]
        replies = [entry.get("replies", {}) for entry in entries]
        return [reply[""] for reply in replies if "" in reply]

    def exchanges(self) -> list[ExchangeKey]:
        """Return the keys of the exchanges of the open step, in the order of recording."""
        rows = self._read("SELECT key, fields FROM exchange ORDER BY rowid")
        return [self._read_key(text, stored) for text, stored in rows]

    def _read_key(self, text: str, stored: str) -> ExchangeKey:
        try:
            key = read_key(json.loads(stored))
        except ValueError as error:
            raise self._damaged(f"the key {text:.40}: {error}") from error
        if str(key) != text:
            raise self._damaged(f"the key {text:.40} has the fields of {key}")
        return key

    def take_back(self, exchanges: Sequence[ExchangeKey]) -> None:
        """Delete exchanges of the open step, which are then requested again."""
        with self.transaction():
            for key in exchanges:
                self._write("DELETE FROM exchange WHERE key = ?", str(key))

    # -- finished steps ---------------------------------------------------------------------

    def finish(self, step: str, result: Result) -> Result:
        """Store the result of a finished step, and delete its exchanges.

        Return the result as a resumed run will read it (with lists instead of tuples), so
        that both continue with the same values.
        """
        with self.transaction():
            self._write("INSERT INTO finished VALUES (?, ?)", step, with_checksum(result))
            self._write("DELETE FROM exchange WHERE phase = ?", step)
            self._write(DROP_MESSAGES)
        as_read: Result = unpack(pack(result))
        return as_read

    def load_step(self, step: str) -> Any:
        """Return the result of a finished step, or None."""
        rows = self._read("SELECT result FROM finished WHERE step = ?", step)
        if not rows:
            return None
        return self._unpack(rows[0][0], f"step {step}")

    def steps(self) -> list[str]:
        """Return the names of the finished steps."""
        return [step for (step,) in self._read("SELECT step FROM finished ORDER BY rowid")]

    # -- notes ------------------------------------------------------------------------------

    def note_once(self, name: str, value: str) -> str:
        """Store ``value`` under ``name`` unless there is one, and return the stored value."""
        self._write("INSERT OR IGNORE INTO metadata VALUES (?, ?)", name, value)
        return str(self._read("SELECT value FROM metadata WHERE name = ?", name)[0][0])

    def note(self, name: str, value: str) -> None:
        """Store ``value`` under ``name``, and replace an earlier value."""
        self._write("INSERT OR REPLACE INTO metadata VALUES (?, ?)", name, value)

    def read_note(self, name: str) -> str | None:
        """Return the latest note under ``name``, or None."""
        rows = self._read("SELECT value FROM metadata WHERE name = ?", name)
        if not rows:
            return None
        return str(rows[0][0])

    # -- the end ----------------------------------------------------------------------------

    def tidy(self) -> None:
        """After the last step, delete data that is needed only for a resume, and free the
        space.
        """
        for table in ("memory", "received", "peer_message", "secret"):
            self._write(f"DELETE FROM {table}")
        self._file.shrink()

    def close(self) -> None:
        """Close the file; the event log cannot be used afterwards."""
        try:
            self._write_draft()
        finally:
            self._file.close()

    # -- memory of the sites (`fallow.sites.store.Store`)
    # --------------------------------------

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        self._draft.states[site, name] = state
        if not self._is_open:
            self._write_draft()

    def receive(self, site: SiteId, function: str, messages: PeerMessages) -> None:
        """Store a peer message once for all receivers, as long as a site has it in memory."""
        self._messages.clear()
        for table in ("memory", "received"):
            sql = f"DELETE FROM {table} WHERE site = ? AND instr(name, ?) = 1"
            self._write(sql, site, f"{function}/")
        for sender, message in messages.items():
            name = f"{function}/{sender}"
            if not self._read("SELECT 1 FROM peer_message WHERE mark = ?", message.mark):
                self._write(
                    "INSERT INTO peer_message VALUES (?, ?)", message.mark, message.content
                )
            self._write("INSERT INTO received VALUES (?, ?, ?)", site, name, message.mark)
        self._write(DROP_MESSAGES)

    def load_states(self, site: SiteId) -> dict[str, State]:
        states: dict[str, State] = {}
        sql = "SELECT name, state FROM memory WHERE site = ? ORDER BY name"
        for name, blob in self._read(sql, site):
            states[name] = self._unpack(blob, f"{name} of site {site}")
        sql = "SELECT name, mark FROM received WHERE site = ? ORDER BY name"
        for name, mark in self._read(sql, site):
            states[name] = self._load_message(mark, f"{name} of site {site}")
        return states

    def _load_message(self, mark: bytes, what: str) -> State:
        """Return the content of a peer message. Sites with the same message share one object.

        ``mark`` is the checksum of its content.
        """
        if mark not in self._messages:
            rows = self._read("SELECT content FROM peer_message WHERE mark = ?", mark)
            content = b""  # a wrong checksum
            if rows:
                content = rows[0][0]
            self._messages[mark] = self._unpack(mark + content, what)
        return self._messages[mark]

    # -- labels of the sites -------------------------------------------------------------

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        rows = []
        for label in labels:
            rows.append(
                (
                    site,
                    label.row,
                    label.value,
                    label.cycle,
                    label.weight,
                    label.probability,
                    label.checksum(site),
                    label.is_validation,
                    label.fold,
                )
            )
        sql = "INSERT INTO label VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._write_draft()
        self._has_writes = True
        try:
            self._file.write_many(sql, rows)
        except sqlite3.IntegrityError as error:  # no label is acquired twice
            raise self._damaged(str(error)) from error

    def load_labels(self, site: SiteId) -> list[Label]:
        sql = """
            SELECT row, value, cycle, weight, probability, is_validation, fold, mark
            FROM label WHERE site = ? ORDER BY row
        """
        labels = []
        for line in self._read(sql, site):
            label = read_label(line, site)
            if label is None:
                raise self._damaged(
                    f"the label of row {line[0]} of site {site} was changed"
                )
            labels.append(label)
        return labels

    # -- releases of the sites (`fallow.privacy.ledger.Ledger`)
    # ------------------------------------

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        line = with_checksum(released.to_line(key))
        self._write("INSERT INTO privacy_spending VALUES (?, ?, ?)", site, key, line)

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        releases = {}
        sql = "SELECT key, line FROM privacy_spending WHERE site = ? ORDER BY rowid"
        for key, blob in self._read(sql, site):
            line = self._unpack(blob, f"release {key} of site {site}")
            released = Released.from_line(line, key)
            if released is None:
                raise self._damaged(
                    f"release {key} of site {site} is stored under another key"
                )
            releases[key] = released
        return releases

    def hide(self, site: SiteId, secret: SumKey) -> None:
        blob = with_checksum(secret)
        self._write("INSERT OR REPLACE INTO secret VALUES (?, ?)", site, blob)

    def load_secret(self, site: SiteId) -> SumKey | None:
        rows = self._read("SELECT content FROM secret WHERE site = ?", site)
        if not rows:
            return None
        secret: SumKey = self._unpack(rows[0][0], f"the secret of site {site}")
        return secret


def with_checksum(tree: object) -> bytes:
    """Return a structure (`fallow.storage.packing`) as bytes, preceded by its checksum.

    >>> len(with_checksum({"a": 1})) - len(pack({"a": 1})) == MARK
    True
    """
    parts = list_parts(tree)
    return b"".join([checksum(*parts), *parts])
