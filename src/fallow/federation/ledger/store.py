"""What a site keeps between exchanges: memory, labels, releases, secrets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId, State
from fallow.federation.ledger.tables import COPIED, Tables
from fallow.lab.journal import sealed
from fallow.privacy import Released
from fallow.runtimes.store import MARK, Label, checksum
from fallow.runtimes.wire import unpack

REMEMBER = (
    "INSERT OR IGNORE INTO undo SELECT ?1, ?2, (SELECT state FROM kept WHERE name = ?2)"
)
OLDEST = (
    "FROM undo AS u WHERE exchange = (SELECT min(exchange) FROM undo WHERE name = u.name)"
)
LOST = ", perhaps released"
"""Behind the key of what the site may have released, and no longer knows."""


@final
class SiteStore:
    """The store of one site, in its ledger.

    What is kept can be undone until its exchange counts: the table ``undo`` holds what each
    ``exchange`` found under the names that it changed.  Labels, releases and secrets are never
    undone.  ``run``: whose releases are in the book; what other runs spent counts against the
    site's own limit, ``epsilon``, alone.
    """

    def __init__(self, tables: Tables, epsilon: float | None = None) -> None:
        self._tables, self._epsilon = tables, epsilon
        self.run, self.exchange = "", 0

    # -- memory -----------------------------------------------------------------------------

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        with self._tables.transaction():
            self._tables.write(REMEMBER, self.exchange, name)
            if state is None:
                self._tables.write("DELETE FROM kept WHERE name = ?", name)
            else:
                sql = "INSERT OR REPLACE INTO kept VALUES (?, ?)"
                self._tables.write(sql, name, sealed(state))

    def kept(self, site: SiteId) -> dict[str, State]:
        rows = self._tables.read("SELECT name, state FROM kept ORDER BY name")
        return {
            name: self._opened(blob, f"what it remembers as {name}") for name, blob in rows
        }

    def settle(self, exchange: int) -> None:
        """What was kept up to an exchange counts: it cannot be undone any more."""
        self._tables.write("DELETE FROM undo WHERE exchange <= ?", exchange)

    def restore(self) -> bool:
        """Undo all that is not settled; whether there was anything."""
        with self._tables.transaction():
            if not self._tables.read("SELECT 1 FROM undo LIMIT 1"):
                return False
            self._tables.write("DELETE FROM kept WHERE name IN (SELECT name FROM undo)")
            self._tables.write(
                f"INSERT INTO kept SELECT name, state {OLDEST} AND state IS NOT NULL"
            )
            self._tables.write("DELETE FROM undo")
            return True

    def clear(self) -> None:
        """Forget all that belongs to a run: another one begins."""
        for table in ("kept", "undo", "secret"):
            self._tables.write(f"DELETE FROM {table}")

    # -- labels -----------------------------------------------------------------------------

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        with self._tables.transaction():
            for label in labels:
                sql = "INSERT INTO label VALUES (?, ?, ?, ?, ?, ?, ?)"
                self._tables.write(sql, *label, _mark(site, label))

    def written(self, site: SiteId) -> list[Label]:
        rows = self._tables.read("SELECT * FROM label ORDER BY row")
        return [self._label(line) for line in rows]

    def _label(self, line: Any) -> Label:
        row, value, cycle, weight, probability, held, mark = line
        label = Label(row, value, cycle, weight, probability, bool(held))
        if _mark(self._tables.site, label) != mark:
            raise self._tables.damaged(f"the label of row {label.row} was changed")
        return label

    def erase(self, row: int) -> Label | None:
        """Take the label of a row out, to correct it; what it was."""
        found = self._tables.read("SELECT * FROM label WHERE row = ?", row)
        self._tables.write("DELETE FROM label WHERE row = ?", row)
        return self._label(found[0]) if found else None

    def bring(self) -> None:
        """What earlier runs bought is, to a new one, brought like labels in the site's data."""
        with self._tables.transaction():
            for label in self.written(self._tables.site):
                self.erase(label.row)
                self.write(self._tables.site, [label._replace(cycle=-1)])

    # -- noise and masks --------------------------------------------------------------------

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        with self._tables.transaction():
            so_far = self.spent()
            cost = released.epsilon
            if self._epsilon is not None and so_far + cost > self._epsilon * (1 + 1e-9):
                raise Refusal(
                    f"site {site} has spent epsilon {so_far:g} of the {self._epsilon:g} that it "
                    f"allows over all runs, and another release costs {cost:g}: raise the limit "
                    "under [privacy] in its site.toml, or leave the study"
                )
            line = sealed({**released._asdict(), "key": key})
            self._tables.write(
                "INSERT INTO spent VALUES (?, ?, ?, ?)", self.run, key, cost, line
            )

    def doubt(self, site: SiteId, key: str, epsilon: float) -> None:
        """Refuse noise where the ledger was put back from its copy: the site may have answered the
        same with other noise before, and both together say more.  That one is counted as spent."""
        copied = self.copied()
        if copied is None:
            return
        self._charge(f"{key}{LOST}", epsilon)
        raise Refusal(
            f"the ledger of site {site} was put back from its copy of {copied}, and what the site "
            "released since is not in it: it releases nothing until the labels of this cycle have "
            "been entered; go on without it until then (quorum), or begin in a new folder"
        )

    def trust(self, epsilon: float | None) -> None:
        """What may be asked from now on was never asked before: a ledger that was put back is as
        good as any.  epsilon: of the release that it has perhaps forgotten."""
        if self.copied() is None:
            return
        sql = "SELECT 1 FROM spent WHERE run = ? AND substr(key, -length(?)) = ?"
        if epsilon is not None and not self._tables.read(sql, self.run, LOST, LOST):
            self._charge(LOST, epsilon)
        self._tables.write("DELETE FROM about WHERE name = ?", COPIED)

    def copied(self) -> str | None:
        """When the copy was made that this ledger was put back from, until the labels of a cycle
        have been entered; None for a ledger that is no copy."""
        found = self._tables.read("SELECT value FROM about WHERE name = ?", COPIED)
        return found[0][0] if found else None

    def _charge(self, key: str, epsilon: float) -> None:
        line = sealed({**Released(epsilon, "", {})._asdict(), "key": key})
        sql = "INSERT OR IGNORE INTO spent VALUES (?, ?, ?, ?)"
        self._tables.write(sql, self.run, key, epsilon, line)

    def spent(self) -> float:
        """ε of all releases of all runs."""
        return math.fsum(cost for (cost,) in self._tables.read("SELECT epsilon FROM spent"))

    def released(self, site: SiteId) -> dict[str, Released]:
        found = {}
        sql = "SELECT key, line FROM spent WHERE run = ? ORDER BY rowid"
        for key, blob in self._tables.read(sql, self.run):
            line = self._opened(blob, f"release {key}")
            if line.pop("key") != key:
                raise self._tables.damaged(f"release {key} stands under another key")
            found[key] = Released(**line)
        return found

    def hide(self, site: SiteId, secret: dict[str, Any]) -> None:
        self._tables.write("INSERT OR REPLACE INTO secret VALUES (1, ?)", sealed(secret))

    def hidden(self, site: SiteId) -> dict[str, Any] | None:
        found = self._tables.read("SELECT held FROM secret")
        return self._opened(found[0][0], "the key of a secure sum") if found else None

    def _opened(self, blob: bytes, what: str) -> Any:
        """What `sealed` closed; a changed byte is noticed."""
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._tables.damaged(f"{what} has another checksum")
        return unpack(blob[MARK:])


def _mark(site: SiteId, label: Label) -> bytes:
    row, value, cycle, weight, p, held = label
    line = (
        site,
        row,
        float(value),
        cycle,
        float(weight),
        None if p is None else float(p),
        held,
    )
    return checksum(repr(line).encode())
