"""Exchanges of a site: each instruction is performed once and in order, one run at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Any, final

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.exchange_key import ExchangeKey, read_key
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId, Values
from fallow.deployment.ledger.labeling_tasks import now
from fallow.deployment.ledger.tables import Tables
from fallow.experiment.event_log import with_checksum
from fallow.measurements.meter import Sent
from fallow.storage.errors import StorageError
from fallow.storage.files import MARK, checksum
from fallow.storage.packing import pack, unpack
from fallow.storage.validation import STRICT, Count
from fallow.transport.envelope import Instruction

ROWS_OF_ALL = "rows of all sites, at most"


@with_config(STRICT)
class SentReplies(TypedDict):
    """Replies of one client function that left the site in one run."""

    run: Annotated[str, Field(description="run")]
    owner: Annotated[str, Field(description="owner of the client function")]
    function: Annotated[str, Field(description="client function")]
    exchanges: Annotated[Count, Field(description="number of replies")]
    bytes: Annotated[Count, Field(description="size of the replies in bytes")]


@final
class Instructions:
    """Part of the ledger that records instructions and replies."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def check_owner(self, site: SiteId, classes: int) -> None:
        """Raise StorageError if the ledger belongs to another site or has another number of classes."""
        self._check_fact(
            "site", site, way_out="a folder belongs to one site; create another one"
        )
        self._check_fact(
            "classes", str(classes), way_out="another study needs another folder"
        )

    def check_rows(self, rows: int) -> None:
        """Raise StorageError if the number of rows of the site has changed."""
        way_out = "the ledger stores labels by row number; restore the old data file"
        self._check_fact("number of rows", str(rows), way_out=way_out)

    def _check_fact(self, name: str, value: str, *, way_out: str) -> None:
        """Store a permanent fact, or raise StorageError if another value is stored."""
        sql = "INSERT OR IGNORE INTO metadata (name, value) VALUES (?, ?)"
        self._tables.write(sql, name, value)
        fact = self._tables.read("SELECT value FROM metadata WHERE name = ?", name)[0][0]
        if fact != value:
            raise StorageError(
                f"ledger {self._tables.path} was created with another {name} "
                f"({fact}, not {value}): {way_out}"
            )

    def rows(self) -> int | None:
        """Return the number of rows of the site, or None before its first start."""
        return self._read_number("number of rows")

    def rows_of_all(self) -> int | None:
        """Return the largest possible number of rows of all sites together.

        It follows from the first label budget that the site received. Returns None before that.
        """
        return self._read_number(ROWS_OF_ALL)

    def _read_number(self, name: str) -> int | None:
        one = self._tables.read_one("SELECT value FROM metadata WHERE name = ?", name)
        if one is None:
            return None
        return int(one)

    def note_rows_of_all(self, rows: int) -> None:
        """Store the number of rows of all sites for all runs. It does not change in a study."""
        sql = "INSERT OR IGNORE INTO metadata (name, value) VALUES (?, ?)"
        self._tables.write(sql, ROWS_OF_ALL, str(rows))

    # -- requests that involve models -------------------------------------------------------

    def times(self, run: str, step: str, function: str) -> int:
        """Count the exchanges of a step that requested a client function.

        Exchanges that the run has rolled back are not counted.
        """
        sql = (
            "SELECT count(*) FROM exchange WHERE run = ? AND step = ? AND functions = ? "
            "AND key NOT IN (SELECT key FROM rolled_back WHERE run = exchange.run)"
        )
        result = self._tables.read(sql, run, step, function)
        return int(result[0][0])

    def is_scored(self, run: str, step: str, digest: str) -> bool:
        """Return whether a model was scored at this site after a round."""
        sql = "SELECT 1 FROM scored WHERE run = ? AND step = ? AND digest = ?"
        return bool(self._tables.read(sql, run, step, digest))

    def scores(self) -> int:
        """Return the number of models scored at this site over all runs."""
        return int(self._tables.read("SELECT count(*) FROM scored")[0][0])

    def note_score(self, run: str, step: str, digest: str) -> None:
        """Record that a model was scored after a round. A repeated round counts once."""
        sql = "INSERT OR IGNORE INTO scored (run, step, digest) VALUES (?, ?, ?)"
        self._tables.write(sql, run, step, digest)

    # -- rolling back -----------------------------------------------------------------------

    def times_back(self, run: str) -> int:
        """Return the number of times that a run was rolled back."""
        sql = "SELECT count(*) FROM rollback_log WHERE run = ?"
        return int(self._tables.read(sql, run)[0][0])

    def is_taken_back(self, run: str, key: ExchangeKey) -> bool:
        """Return whether an exchange was rolled back."""
        sql = "SELECT 1 FROM rolled_back WHERE run = ? AND key = ?"
        return bool(self._tables.read(sql, run, str(key)))

    def load_every_key(self, run: str) -> list[ExchangeKey]:
        """Return the keys of all exchanges ever performed in a run."""
        sql = "SELECT fields FROM exchange WHERE run = ? ORDER BY id"
        return [self._read_key(stored) for (stored,) in self._tables.read(sql, run)]

    def load_standing_keys(self, run: str) -> list[ExchangeKey]:
        """Return the keys of the valid exchanges of a run, oldest first."""
        return self._load_standing("exchange", run)

    def load_times(self, run: str, owner: str, function: str) -> dict[int, str]:
        """Return when the valid replies of a client function were last sent, by cycle."""
        sql = (
            "SELECT fields, at FROM exchange WHERE run = ?1 AND owner = ?2 AND functions = ?3 AND "
            "key NOT IN (SELECT key FROM rolled_back WHERE run = ?1) ORDER BY id"
        )
        sent = self._tables.read(sql, run, owner, function)
        return {self._read_key(stored).cycle: at for stored, at in sent}

    def load_failed_keys(self, run: str) -> list[ExchangeKey]:
        """Return the keys of the failed exchanges of a run."""
        return self._load_standing("attempt", run)

    def _load_standing(self, table: str, run: str) -> list[ExchangeKey]:
        sql = (
            f"SELECT fields FROM {table} WHERE run = ?1 AND key NOT IN "
            "(SELECT key FROM rolled_back WHERE run = ?1) ORDER BY rowid"
        )
        return [self._read_key(stored) for (stored,) in self._tables.read(sql, run)]

    def _read_key(self, stored: str) -> ExchangeKey:
        """Return the key with these stored fields, which the ledger has validated before."""
        return read_key(json.loads(stored))

    def go_back(
        self,
        run: str,
        key: ExchangeKey,
        keys: Iterable[ExchangeKey],
        newest: ExchangeKey | None,
    ) -> None:
        """Roll a run back to the instruction ``key``.

        The exchanges ``keys`` become invalid, and ``newest`` is the newest valid one. Their privacy
        cost remains.
        """
        number = self.times_back(run) + 1
        with self._tables.transaction():
            self._tables.write(
                "INSERT INTO rollback_log (run, number, key, at) VALUES (?, ?, ?, ?)",
                run,
                number,
                str(key),
                now(),
            )
            for rolled_back in keys:
                sql = "INSERT INTO rolled_back (run, key) VALUES (?, ?)"
                self._tables.write(sql, run, str(rolled_back))
            text = None
            if newest is not None:
                text = str(newest)
            self._tables.write("UPDATE run SET newest = ? WHERE id = ?", text, run)

    # -- runs -------------------------------------------------------------------------------

    def runs(self) -> int:
        """Return the number of runs that the site took part in."""
        return int(self._tables.read("SELECT count(*) FROM run")[0][0])

    def list_runs(self) -> list[str]:
        """Return the runs that the site took part in, oldest first."""
        return [run for (run,) in self._tables.read("SELECT id FROM run ORDER BY turn")]

    def latest_run(self) -> str | None:
        """Return the newest run by name, except those that the site has left."""
        sql = "SELECT max(id) FROM run WHERE id NOT IN (SELECT id FROM left_run)"
        one: str | None = self._tables.read_one(sql)
        return one

    def leave(self, run: str) -> None:
        """Leave a run. Its instructions are rejected, and another run may start."""
        self._tables.write(
            "INSERT OR IGNORE INTO left_run (id, at) VALUES (?, ?)", run, now()
        )

    def is_left(self, run: str) -> bool:
        """Return whether the site has left a run."""
        return bool(self._tables.read("SELECT 1 FROM left_run WHERE id = ?", run))

    def newest_run(self) -> str | None:
        """Return the run that the site joined last, or None before the first one."""
        sql = "SELECT id FROM run ORDER BY turn DESC LIMIT 1"
        one: str | None = self._tables.read_one(sql)
        return one

    def is_known(self, run: str) -> bool:
        """Return whether the site has ever joined a run."""
        return bool(self._tables.read("SELECT 1 FROM run WHERE id = ?", run))

    def begin(self, run: str) -> None:
        """Start a new run, which becomes the newest one."""
        sql = "INSERT INTO run (id, turn) SELECT ?, coalesce(max(turn), 0) + 1 FROM run"
        self._tables.write(sql, run)

    def find_position(self, run: str) -> tuple[int, ExchangeKey | None]:
        """Return the position and key of the newest exchange of a run, or (-1, None)."""
        sql = (
            "SELECT run.position, exchange.fields FROM run LEFT JOIN exchange "
            "ON exchange.run = run.id AND exchange.key = run.newest WHERE run.id = ?"
        )
        position, stored = self._tables.read(sql, run)[0]
        if stored is None:
            return position, None
        return position, self._read_key(stored)

    def find_exchange(self, run: str, key: str) -> int | None:
        """Return the number of an exchange in the ledger, or None if its key is unknown."""
        sql = "SELECT id FROM exchange WHERE run = ? AND key = ?"
        one: int | None = self._tables.read_one(sql, run, key)
        return one

    def recall(self, instruction: Instruction) -> Values | None:
        """Return the stored reply to an instruction, or None for a new instruction.

        Raises ValueError for an instruction with a known key and different content. Also raises
        ValueError if the reply was deleted because it has counted or was rolled back.
        """
        sql = "SELECT digest, reply FROM exchange WHERE run = ? AND key = ?"
        result = self._tables.read(sql, instruction.run, str(instruction.key))
        if not result:
            return None
        digest, blob = result[0]
        site = self._tables.site
        if digest != digest_of(instruction):
            raise Refusal(
                f"site {site} has replied to exchange {instruction.key} with other content, "
                "but a key belongs to one instruction; was the coordinator's folder copied or "
                "restored from a backup?"
            )
        if blob is None:
            raise Refusal(
                f"site {site} has already replied to exchange {instruction.key}, which is "
                "completed: this is a replay, or the coordinator's folder was restored from "
                "a backup"
            )
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._tables.damage_error(
                f"the reply to {instruction.key} has a wrong checksum"
            )
        reply: Values = unpack(blob[MARK:])
        return reply

    def attempt(self, instruction: Instruction) -> None:
        """Bind a key to an instruction before it is performed, even if it fails.

        Otherwise the coordinator could search for instructions that fail, which depends on the
        data. Raises ValueError for a different instruction under the key of a failed one.
        """
        digest = digest_of(instruction)
        self._tables.write(
            "INSERT OR IGNORE INTO attempt (run, key, fields, digest) VALUES (?, ?, ?, ?)",
            instruction.run,
            str(instruction.key),
            json.dumps(instruction.key.to_dict()),
            digest,
        )
        sql = "SELECT digest FROM attempt WHERE run = ? AND key = ?"
        if self._tables.read(sql, instruction.run, str(instruction.key)) != [(digest,)]:
            raise Refusal(
                f"site {self._tables.site} has tried exchange {instruction.key} with other content, "
                "which failed; a key belongs to one instruction"
            )

    def finish(
        self, instruction: Instruction, owner: str, functions: str, reply: Values
    ) -> int:
        """Store the reply of a completed instruction, and return the number of the exchange."""
        kept = with_checksum(reply)
        number = self._tables.write(
            "INSERT INTO exchange (run, key, step, fields, digest, position, owner, functions, "
            "bytes, at, reply) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            instruction.run,
            str(instruction.key),
            instruction.key.step_name,
            json.dumps(instruction.key.to_dict()),
            digest_of(instruction),
            instruction.number,
            owner,
            functions,
            len(kept) - MARK,
            now(),
            kept,
        )
        sql = "DELETE FROM attempt WHERE run = ? AND key = ?"
        self._tables.write(sql, instruction.run, str(instruction.key))
        sql = "UPDATE run SET position = ?, newest = ? WHERE id = ?"
        self._tables.write(sql, instruction.number, str(instruction.key), instruction.run)
        return number

    def drop(self) -> None:
        """Delete the stored replies, which are no longer needed."""
        self._tables.write("UPDATE exchange SET reply = NULL WHERE reply IS NOT NULL")

    def traffic(self) -> list[SentReplies]:
        """Return the size of all replies, by run, owner and client function."""
        sql = (
            "SELECT e.run, e.owner, e.functions, count(*), sum(e.bytes) FROM exchange AS e "
            "JOIN run ON run.id = e.run GROUP BY e.run, e.owner, e.functions "
            "ORDER BY run.turn, e.functions, e.owner"
        )
        return [
            {
                "run": run,
                "owner": owner,
                "function": function,
                "exchanges": exchanges,
                "bytes": n_bytes,
            }
            for run, owner, function, exchanges, n_bytes in self._tables.read(sql)
        ]


def sum_replies(sent: Iterable[SentReplies]) -> dict[tuple[str, str], Sent]:
    """Return the replies over all runs, by owner and client function."""
    totals: dict[tuple[str, str], Sent] = {}
    for line in sent:
        function = (line["owner"], line["function"])
        before = totals.get(function, Sent(0, 0))
        totals[function] = before.plus(line["exchanges"], line["bytes"])
    return totals


def digest_of(instruction: Instruction) -> str:
    """Return a hash of an instruction's content, without the time and number of attempts."""
    content: Any = {
        "run": instruction.run,
        "key": instruction.key.to_dict(),
        "body": instruction.body,
    }
    return hashlib.sha256(pack(content)).hexdigest()
