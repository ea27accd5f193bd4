"""The exchanges that a site took part in: each is performed once, in order, for one run at a
time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, final

from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId
from fallow.federation.ledger.questions import now
from fallow.federation.ledger.tables import Tables
from fallow.lab.errors import Failed
from fallow.lab.journal import sealed
from fallow.runtimes.envelope import Order
from fallow.runtimes.store import MARK, checksum
from fallow.runtimes.wire import pack, unpack


@dataclass(frozen=True)
class Sent:
    """What left a site by one verb in one run, in bytes of packed answers."""

    run: str
    verb: str
    exchanges: int
    bytes: int


@final
class Orders:
    """The part of a ledger that knows what was asked of the site and what it answered."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def belongs_to(self, site: SiteId, classes: int) -> None:
        self._about("site", site, "a folder belongs to one site; make another one")
        self._about("classes", str(classes), "another study needs another folder")

    def holds(self, rows: int) -> None:
        """Raise Failed unless the site has as many rows as it always had."""
        way_out = "labels belong to rows by their number; put the old file of data back"
        self._about("number of rows", str(rows), way_out)

    def _about(self, name: str, value: str, way_out: str) -> None:
        self._tables.write("INSERT OR IGNORE INTO about VALUES (?, ?)", name, value)
        found = self._tables.read("SELECT value FROM about WHERE name = ?", name)[0][0]
        if found != value:
            raise Failed(
                f"ledger {self._tables.path} says that the {name} is {found}, not {value}: "
                f"{way_out}"
            )

    def rows(self) -> int | None:
        """How many rows the site has; None before its first start."""
        found = self._tables.read("SELECT value FROM about WHERE name = 'number of rows'")
        return int(found[0][0]) if found else None

    def newest_run(self) -> str | None:
        found = self._tables.read("SELECT id FROM run ORDER BY turn DESC LIMIT 1")
        return found[0][0] if found else None

    def is_known(self, run: str) -> bool:
        return bool(self._tables.read("SELECT 1 FROM run WHERE id = ?", run))

    def begin(self, run: str) -> None:
        sql = "INSERT INTO run (id, turn) SELECT ?, coalesce(max(turn), 0) + 1 FROM run"
        self._tables.write(sql, run)

    def standing(self, run: str) -> tuple[int, str | None]:
        """The place and the key of the newest exchange of a run; -1 and None before the first."""
        place, newest = self._tables.read(
            "SELECT place, newest FROM run WHERE id = ?", run
        )[0]
        return place, newest

    def number(self, run: str, key: str) -> int | None:
        """The exchange of a key, as the ledger counts them; None for one that it does not know."""
        sql = "SELECT id FROM exchange WHERE run = ? AND key = ?"
        found = self._tables.read(sql, run, key)
        return found[0][0] if found else None

    def recall(self, order: Order) -> Answer | None:
        """The stored answer to an order; None for a new one.

        Raises ValueError for an order of the same key with other contents, and for one whose answer
        was dropped, because it has counted or was undone.
        """
        sql = "SELECT digest, answer FROM exchange WHERE run = ? AND key = ?"
        found = self._tables.read(sql, order.run, order.key)
        if not found:
            return None
        digest, blob = found[0]
        site = self._tables.site
        if digest != digest_of(order):
            raise Refusal(
                f"site {site} has answered exchange {order.key} with other contents: one key never "
                "means two things; was the coordinator's folder copied or put back from a backup?"
            )
        if blob is None:
            raise Refusal(
                f"site {site} has answered exchange {order.key} before, and it is over: this is a "
                "replay, or the coordinator's folder was put back from a backup"
            )
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._tables.damaged(f"the answer to {order.key} has another checksum")
        answer: Answer = unpack(blob[MARK:])
        return answer

    def finish(self, order: Order, verbs: str, answer: Answer) -> int:
        """An order is done: its answer is kept until it counts.  Returns the exchange's number."""
        kept = sealed(answer)
        about = (digest_of(order), order.place, verbs, len(kept) - MARK, now(), kept)
        sql = "INSERT INTO exchange (run, key, digest, place, verbs, bytes, at, answer) "
        number = self._tables.write(
            f"{sql} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", order.run, order.key, *about
        )
        sql = "UPDATE run SET place = ?, newest = ? WHERE id = ?"
        self._tables.write(sql, order.place, order.key, order.run)
        return number

    def drop(self) -> None:
        """The answers so far are never asked for again."""
        self._tables.write("UPDATE exchange SET answer = NULL WHERE answer IS NOT NULL")

    def sent(self) -> list[Sent]:
        sql = (
            "SELECT e.run, e.verbs, count(*), sum(e.bytes) FROM exchange AS e JOIN run ON "
            "run.id = e.run GROUP BY e.run, e.verbs ORDER BY run.turn, e.verbs"
        )
        return [Sent(*line) for line in self._tables.read(sql)]


def digest_of(order: Order) -> str:
    """Of what an order asks for; when and how often it is sent does not matter."""
    content: Any = {
        "run": order.run,
        "key": order.key,
        "errand": order.errand,
        "body": order.body,
    }
    return hashlib.sha256(pack(content)).hexdigest()
