"""The exchanges that a site took part in: each is performed once, in order, for one run at a
time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from fallow.core.refusal import Refusal
from fallow.core.types import Answer, SiteId
from fallow.experiment.journal import with_checksum
from fallow.federation.ledger.questions import now
from fallow.federation.ledger.tables import Tables
from fallow.network.envelope import Order
from fallow.storage.checksums import MARK, checksum
from fallow.storage.errors import Failed
from fallow.storage.packing import pack, unpack

ROWS_OF_ALL = "rows of all sites, at most"


@dataclass(frozen=True)
class Traffic:
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

    def check_owner(self, site: SiteId, classes: int) -> None:
        """Raise Failed unless the ledger is of this site, and of a study with as many classes."""
        self._check_fact(
            "site", site, way_out="a folder belongs to one site; make another one"
        )
        self._check_fact(
            "classes", str(classes), way_out="another study needs another folder"
        )

    def check_rows(self, rows: int) -> None:
        """Raise Failed unless the site has as many rows as it always had."""
        way_out = "labels belong to rows by their number; put the old file of data back"
        self._check_fact("number of rows", str(rows), way_out=way_out)

    def _check_fact(self, name: str, value: str, *, way_out: str) -> None:
        """Note what holds for all time, or raise Failed where something else was noted before."""
        sql = "INSERT OR IGNORE INTO about (name, value) VALUES (?, ?)"
        self._tables.write(sql, name, value)
        fact = self._tables.read("SELECT value FROM about WHERE name = ?", name)[0][0]
        if fact != value:
            raise Failed(
                f"ledger {self._tables.path} says that the {name} is {fact}, not {value}: "
                f"{way_out}"
            )

    def rows(self) -> int | None:
        """How many rows the site has; None before its first start."""
        return self._read_number("number of rows")

    def rows_of_all(self) -> int | None:
        """The most rows that all sites of the study have together, by the first number of labels
        that the site was asked for; None where no number said it yet."""
        return self._read_number(ROWS_OF_ALL)

    def _read_number(self, name: str) -> int | None:
        one = self._tables.read_one("SELECT value FROM about WHERE name = ?", name)
        if one is None:
            return None
        return int(one)

    def note_rows_of_all(self, rows: int) -> None:
        """Once and for all runs: rows of a study do not change."""
        sql = "INSERT OR IGNORE INTO about (name, value) VALUES (?, ?)"
        self._tables.write(sql, ROWS_OF_ALL, str(rows))

    # -- what was asked of models -----------------------------------------------------------

    def times(self, run: str, asks: str, verb: str) -> int:
        """How many exchanges of the keys ``<asks>/<turn>`` asked for a verb, without those that the
        run has gone back behind."""
        sql = (
            "SELECT count(*) FROM exchange WHERE run = ? AND key > ? AND key < ? AND verbs = ? "
            "AND key NOT IN (SELECT key FROM taken_back WHERE run = exchange.run)"
        )
        # keys that begin with "<asks>/" lie between it and the next character, "0"
        result = self._tables.read(sql, run, f"{asks}/", f"{asks}0", verb)
        return int(result[0][0])

    def is_scored(self, run: str, step: str, digest: str) -> bool:
        """Whether a model was scored here after a round."""
        sql = "SELECT 1 FROM scored WHERE run = ? AND step = ? AND digest = ?"
        return bool(self._tables.read(sql, run, step, digest))

    def scores(self) -> int:
        """How many models were scored here, over all runs."""
        return int(self._tables.read("SELECT count(*) FROM scored")[0][0])

    def note_score(self, run: str, step: str, digest: str) -> None:
        """A model is scored after a round: it counts once, however often the round is asked anew."""
        sql = "INSERT OR IGNORE INTO scored (run, step, digest) VALUES (?, ?, ?)"
        self._tables.write(sql, run, step, digest)

    # -- going back -------------------------------------------------------------------------

    def times_back(self, run: str) -> int:
        """How often a run has gone back."""
        sql = "SELECT count(*) FROM going_back WHERE run = ?"
        return int(self._tables.read(sql, run)[0][0])

    def is_taken_back(self, run: str, key: str) -> bool:
        """Whether an exchange was asked and the run has gone back behind it since."""
        sql = "SELECT 1 FROM taken_back WHERE run = ? AND key = ?"
        return bool(self._tables.read(sql, run, key))

    def load_every_key(self, run: str) -> list[str]:
        """The keys of all that was ever performed in a run."""
        sql = "SELECT key FROM exchange WHERE run = ? ORDER BY id"
        return [key for (key,) in self._tables.read(sql, run)]

    def load_standing_keys(self, run: str) -> list[str]:
        """The keys of all that a run has asked and that stands, oldest first."""
        return self._load_standing("exchange", run)

    def load_failed_keys(self, run: str) -> list[str]:
        """The keys of what a run has asked and that failed."""
        return self._load_standing("attempt", run)

    def _load_standing(self, table: str, run: str) -> list[str]:
        sql = (
            f"SELECT key FROM {table} WHERE run = ?1 AND key NOT IN "
            "(SELECT key FROM taken_back WHERE run = ?1) ORDER BY rowid"
        )
        return [key for (key,) in self._tables.read(sql, run)]

    def go_back(self, run: str, key: str, keys: Iterable[str], newest: str | None) -> None:
        """A run goes back to an order, ``key``: the exchanges of ``keys`` stand no more, and
        ``newest`` is the newest of those that do.  What they cost stays.
        """
        number = self.times_back(run) + 1
        with self._tables.transaction():
            self._tables.write(
                "INSERT INTO going_back (run, number, key, at) VALUES (?, ?, ?, ?)",
                run,
                number,
                key,
                now(),
            )
            for taken_back in keys:
                sql = "INSERT INTO taken_back (run, key) VALUES (?, ?)"
                self._tables.write(sql, run, taken_back)
            self._tables.write("UPDATE run SET newest = ? WHERE id = ?", newest, run)

    # -- runs -------------------------------------------------------------------------------

    def runs(self) -> int:
        """How many runs the site took part in."""
        return int(self._tables.read("SELECT count(*) FROM run")[0][0])

    def latest_run(self) -> str | None:
        """The run that began last by its name, of those that people have not left."""
        sql = "SELECT max(id) FROM run WHERE id NOT IN (SELECT id FROM left_run)"
        one: str | None = self._tables.read_one(sql)
        return one

    def leave(self, run: str) -> None:
        """People gave a run up: nothing of it is performed any more, and another one may begin."""
        self._tables.write(
            "INSERT OR IGNORE INTO left_run (id, at) VALUES (?, ?)", run, now()
        )

    def is_left(self, run: str) -> bool:
        """Whether people gave a run up."""
        return bool(self._tables.read("SELECT 1 FROM left_run WHERE id = ?", run))

    def note_news(self, run: str, news: str) -> None:
        """Remember what the coordinator has told people at the site; a sentence once for a run."""
        unprintable = {sign for sign in news if not sign.isprintable()}
        plain = news.translate({ord(sign): " " for sign in unprintable})
        mark = hashlib.sha256(plain.encode()).hexdigest()[:16]
        sql = "INSERT OR IGNORE INTO about (name, value) VALUES (?, ?)"
        self._tables.write(sql, f"news/{run}/{mark}", plain)

    def load_news(self) -> list[str]:
        """What the coordinator has told people at the site in the newest run."""
        sql = "SELECT value FROM about WHERE instr(name, ?) = 1 ORDER BY rowid"
        lines = self._tables.read(sql, f"news/{self.newest_run()}/")
        return [line for (line,) in lines]

    def newest_run(self) -> str | None:
        """The run that the site entered last; None before the first."""
        sql = "SELECT id FROM run ORDER BY turn DESC LIMIT 1"
        one: str | None = self._tables.read_one(sql)
        return one

    def is_known(self, run: str) -> bool:
        """Whether the site ever entered a run."""
        return bool(self._tables.read("SELECT 1 FROM run WHERE id = ?", run))

    def begin(self, run: str) -> None:
        """A new run: from now on it is the newest."""
        sql = "INSERT INTO run (id, turn) SELECT ?, coalesce(max(turn), 0) + 1 FROM run"
        self._tables.write(sql, run)

    def find_position(self, run: str) -> tuple[int, str | None]:
        """The place and the key of the newest exchange of a run; -1 and None before the first."""
        place, newest = self._tables.read(
            "SELECT place, newest FROM run WHERE id = ?", run
        )[0]
        return place, newest

    def find_exchange(self, run: str, key: str) -> int | None:
        """The exchange of a key, as the ledger counts them; None for one that it does not know."""
        sql = "SELECT id FROM exchange WHERE run = ? AND key = ?"
        one: int | None = self._tables.read_one(sql, run, key)
        return one

    def recall(self, order: Order) -> Answer | None:
        """The stored answer to an order; None for a new one.

        Raises ValueError for an order of the same key with other contents, and for one whose answer
        was dropped, because it has counted or was undone.
        """
        sql = "SELECT digest, answer FROM exchange WHERE run = ? AND key = ?"
        result = self._tables.read(sql, order.run, order.key)
        if not result:
            return None
        digest, blob = result[0]
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
            raise self._tables.damage_error(
                f"the answer to {order.key} has another checksum"
            )
        answer: Answer = unpack(blob[MARK:])
        return answer

    def attempt(self, order: Order) -> None:
        """Before an order is performed: from now on its key means this order, also where it fails.
        Else what makes it fail could be searched for, and that depends on rows.

        Raises ValueError for another order under the key of one that failed.
        """
        digest = digest_of(order)
        self._tables.write(
            "INSERT OR IGNORE INTO attempt (run, key, digest) VALUES (?, ?, ?)",
            order.run,
            order.key,
            digest,
        )
        sql = "SELECT digest FROM attempt WHERE run = ? AND key = ?"
        if self._tables.read(sql, order.run, order.key) != [(digest,)]:
            raise Refusal(
                f"site {self._tables.site} has tried exchange {order.key} with other contents and "
                "it failed: one key never means two things"
            )

    def finish(self, order: Order, verbs: str, answer: Answer) -> int:
        """An order is done: its answer is kept until it counts.  Returns the exchange's number."""
        kept = with_checksum(answer)
        number = self._tables.write(
            "INSERT INTO exchange (run, key, digest, place, verbs, bytes, at, answer) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            order.run,
            order.key,
            digest_of(order),
            order.place,
            verbs,
            len(kept) - MARK,
            now(),
            kept,
        )
        sql = "DELETE FROM attempt WHERE run = ? AND key = ?"
        self._tables.write(sql, order.run, order.key)
        sql = "UPDATE run SET place = ?, newest = ? WHERE id = ?"
        self._tables.write(sql, order.place, order.key, order.run)
        return number

    def drop(self) -> None:
        """The answers so far are never asked for again."""
        self._tables.write("UPDATE exchange SET answer = NULL WHERE answer IS NOT NULL")

    def traffic(self) -> list[Traffic]:
        """What left this site, by run and verb."""
        sql = (
            "SELECT e.run, e.verbs, count(*), sum(e.bytes) FROM exchange AS e JOIN run ON "
            "run.id = e.run GROUP BY e.run, e.verbs ORDER BY run.turn, e.verbs"
        )
        result: list[Traffic] = []
        for run, verb, exchanges, n_bytes in self._tables.read(sql):
            result.append(Traffic(run=run, verb=verb, exchanges=exchanges, bytes=n_bytes))
        return result


def digest_of(order: Order) -> str:
    """Of what an order asks for; when and how often it is sent does not matter."""
    content: Any = {
        "run": order.run,
        "key": order.key,
        "errand": order.errand,
        "body": order.body,
    }
    return hashlib.sha256(pack(content)).hexdigest()
