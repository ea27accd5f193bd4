"""Persistent state of a site: states, labels, releases and secrets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, final

from fallow.core.refusal import Refusal
from fallow.core.types import SiteId, State, Values
from fallow.deployment.ledger.labeling_tasks import now
from fallow.deployment.ledger.releases import NAME, ReleaseEntry, Releases, UnreadableBook
from fallow.deployment.ledger.tables import COPIED, NOTICED, Tables
from fallow.experiment.event_log import with_checksum
from fallow.privacy.ledger import Released, SumKey, add_up, as_written, doubtful
from fallow.sites.folds import FoldAssignment
from fallow.sites.store import Label, Question, read_label
from fallow.storage.files import MARK, checksum
from fallow.storage.packing import unpack

REMEMBER = (
    "INSERT OR IGNORE INTO undo SELECT ?1, ?2, (SELECT state FROM memory WHERE name = ?2)"
)
OLDEST = (
    "FROM undo AS u WHERE exchange = (SELECT min(exchange) FROM undo WHERE name = u.name)"
)
PUT_BACK = "put back"
"""Prefix of the key of a cost that is charged because the ledger was restored."""
RECORDED = "releases are recorded"
"""Mark of a ledger: `Releases` has all of its releases."""
RESTORED = "put back, in words"
"""Mark of a ledger: description of the cost of restoring it."""
LABELS = """
SELECT l.row, l.value, l.cycle, l.weight, l.probability, p.is_validation, p.fold, l.mark
FROM label AS l LEFT JOIN place AS p ON p.row = l.row
"""
"""Labels with their places: training or validation, and the fold."""
NEW_RELEASE = "INSERT INTO privacy_spending (run, key, epsilon, line) VALUES (?, ?, ?, ?)"


@final
class SiteStore:
    """Store of one site in its ledger.

    Changes can be undone until their exchange is settled: the table ``undo`` has the previous value
    of each name that an ``exchange`` changed. Labels, releases and secrets are never undone.
    ``run`` selects the releases in the ledger. Releases of other runs count only against the site's
    own limits ``epsilon`` and ``delta``. With a limit on epsilon, releases are also written to a
    release log (`Releases`), and the two are compared at each release. ``seed``, ``classes``
    and ``groups`` decide the folds of labels.
    """

    def __init__(
        self,
        tables: Tables,
        epsilon: float | None = None,
        delta: float | None = None,
        seed: int = 0,
        classes: int = 0,
        groups: Sequence[int] | None = None,
    ) -> None:
        self._tables = tables
        self._epsilon = epsilon
        self._delta = delta
        self._seed = seed
        self._classes = classes
        self._groups = groups
        self.run = ""
        self.exchange = 0
        self._releases = Releases(tables.path.with_name(NAME), tables.site)
        self.compare()

    # -- states ----------------------------------------------------------------------------

    def keep(self, site: SiteId, name: str, state: State | None) -> None:
        """Store a state under a name, or delete it with None, until it is undone or settled."""
        with self._tables.transaction():
            self._tables.write(REMEMBER, self.exchange, name)
            if state is None:
                self._tables.write("DELETE FROM memory WHERE name = ?", name)
            else:
                sql = "INSERT OR REPLACE INTO memory VALUES (?, ?)"
                self._tables.write(sql, name, with_checksum(state))

    def load_states(self, site: SiteId) -> dict[str, State]:
        """Return all stored states by name. Raises StorageError if one is damaged."""
        rows = self._tables.read("SELECT name, state FROM memory ORDER BY name")
        states: dict[str, State] = {}
        for name, blob in rows:
            states[name] = self._unpack(blob, f"the state {name}")
        return states

    def settle(self, exchange: int) -> None:
        """Make all changes up to an exchange permanent."""
        self._tables.write("DELETE FROM undo WHERE exchange <= ?", exchange)

    def restore(self) -> bool:
        """Undo all changes that are not settled, and return whether there were any."""
        with self._tables.transaction():
            if not self._tables.read("SELECT 1 FROM undo LIMIT 1"):
                return False
            self._tables.write("DELETE FROM memory WHERE name IN (SELECT name FROM undo)")
            self._tables.write(
                f"INSERT INTO memory SELECT name, state {OLDEST} AND state IS NOT NULL"
            )
            self._tables.write("DELETE FROM undo")
            return True

    def clear(self) -> None:
        """Delete all states of a run before another one starts."""
        for table in ("memory", "undo", "secret"):
            self._tables.write(f"DELETE FROM {table}")

    # -- labels -----------------------------------------------------------------------------

    def write(self, site: SiteId, labels: Sequence[Label]) -> None:
        """Add labels, which are never undone.

        The first label of a row decides its place for good: training or validation, and the fold.
        """
        sql = (
            "INSERT INTO label (row, value, cycle, weight, probability, mark) "
            "VALUES (?, ?, ?, ?, ?, ?)"
        )
        with self._tables.transaction():
            for label in self._place(labels):
                self._tables.write(
                    sql,
                    label.row,
                    label.value,
                    label.cycle,
                    label.weight,
                    label.probability,
                    label.checksum(site),
                )

    def _place(self, labels: Sequence[Label]) -> list[Label]:
        """Return labels in the places of their rows, which new rows are given now."""
        lines = self._tables.read("SELECT row, is_validation, fold FROM place")
        places = {row: (bool(is_validation), fold) for row, is_validation, fold in lines}
        placed = []
        for label in labels:
            if label.row in places:
                is_validation, fold = places[label.row]
                label = label._replace(is_validation=is_validation, fold=fold)
            placed.append(label)
        if all(label.row in places for label in labels):
            return placed
        assignment = FoldAssignment(
            self._seed, self._tables.site, self._classes, self._groups
        )
        assignment.remember({row: fold for row, (_, fold) in places.items()})
        assignment.assign(self.load_labels(self._tables.site))
        placed = assignment.assign(placed)
        sql = "INSERT OR IGNORE INTO place (row, is_validation, fold) VALUES (?, ?, ?)"
        for label in placed:
            self._tables.write(sql, label.row, label.is_validation, label.fold)
        return placed

    def load_labels(self, site: SiteId) -> list[Label]:
        """Return all labels by row. Raises StorageError if one was changed."""
        rows = self._tables.read(f"{LABELS} ORDER BY l.row")
        return [self._read_label(line) for line in rows]

    def _read_label(self, line: Sequence[Any]) -> Label:
        """Parse a line of the table and verify its checksum."""
        label = read_label(line, self._tables.site)
        if label is None:
            raise self._tables.damage_error(f"the label of row {line[0]} was changed")
        return label

    def erase(self, row: int) -> Label | None:
        """Remove and return the label of a row for a correction."""
        result = self._tables.read(f"{LABELS} WHERE l.row = ?", row)
        self._tables.write("DELETE FROM label WHERE row = ?", row)
        if not result:
            return None
        return self._read_label(result[0])

    def carry_labels_over(self) -> None:
        """Treat labels of earlier runs like labels in the site's data."""
        with self._tables.transaction():
            for label in self.load_labels(self._tables.site):
                self.erase(label.row)
                self.write(self._tables.site, [label._replace(cycle=-1)])

    # -- sums over all examples --------------------------------------------------------------

    def load_answer(self, question: Question) -> Values | None:
        """Return the earlier reply to a question, or None."""
        sql = "SELECT reply FROM answer WHERE digest = ?"
        blob = self._tables.read_one(sql, question.digest)
        if blob is None:
            return None
        reply: Values = self._unpack(blob, "the reply of an earlier sum")
        return reply

    def keep_answer(self, question: Question, reply: Values) -> None:
        """Store a reply for all later runs, and delete those about other examples."""
        with self._tables.transaction():
            sql = "DELETE FROM answer WHERE covers = ? AND examples <> ?"
            self._tables.write(sql, question.over, question.examples)
            self._tables.write(
                "INSERT OR IGNORE INTO answer (digest, covers, examples, reply) "
                "VALUES (?, ?, ?, ?)",
                question.digest,
                question.over,
                question.examples,
                with_checksum(reply),
            )

    # -- noise and masks --------------------------------------------------------------------

    def spend(self, site: SiteId, key: str, released: Released) -> None:
        """Record a release, first in the release log, which a restored ledger cannot hide.

        Raises ValueError beyond the site's own limit.
        """
        with self._tables.transaction():
            self._tables.check(["privacy_spending"])
            self.compare()
            cost = released.epsilon
            if self._epsilon is not None:
                so_far = self._spent_exactly()
                if so_far + as_written(cost) > as_written(self._epsilon):
                    raise Refusal(
                        f"site {site} has spent epsilon {float(so_far):g} of the "
                        f"{self._epsilon:g} {self._in_doubt()}that it allows over "
                        f"all runs, but another release costs {cost:g}: raise the "
                        "limit under [privacy] in its site.toml, or leave the study"
                    )
            self._check_delta(site, released.delta)
            line = with_checksum(released.to_line(key))
            self._enter(ReleaseEntry(run=self.run, key=key, epsilon=cost, line=line))

    def _check_delta(self, site: SiteId, delta: float) -> None:
        """Raise Refusal beyond the site's own limit of delta."""
        if self._delta is None or not delta:
            return
        so_far = self._spent_delta()
        if so_far + as_written(delta) > as_written(self._delta):
            raise Refusal(
                f"site {site} has spent delta {float(so_far):g} of the "
                f"{self._delta:g} that it allows over all runs, but a run of this "
                f"study costs {delta:g}: raise delta under [privacy] in its "
                "site.toml, or leave the study"
            )

    def _in_doubt(self) -> str:
        """Describe the privacy cost that is charged because releases may be unknown."""
        sql = "SELECT epsilon FROM privacy_spending WHERE substr(key, 1, length(?)) = ?"
        costs = self._tables.read(sql, PUT_BACK, PUT_BACK)
        unknown = [Released(epsilon=cost, digest="", reply={}) for (cost,) in costs]
        return doubtful(unknown)

    def _enter(self, release: ReleaseEntry) -> None:
        """Write a new release to the release log and the ledger."""
        if self._epsilon is not None:
            self._releases.add(release)
        self._write_entry(release)

    def _write_entry(self, release: ReleaseEntry) -> None:
        """Write a release to the ledger."""
        self._tables.write(
            NEW_RELEASE, release.run, release.key, release.epsilon, release.line
        )

    # -- restored ledger --------------------------------------------------------------------

    def compare(self) -> None:
        """Repair a ledger that is older than the release log.

        Missing releases are added from the log with their replies. If the log is missing, damaged
        or was restored too, the releases since then are unknown. The remaining privacy budget of
        the site is then charged in full.
        """
        if self._epsilon is None:
            return
        with self._tables.transaction():
            self._compare()

    def _compare(self) -> None:
        known = self._load_entries()
        noted = self._read_note(RECORDED)
        copied = self.find_copy_time()
        is_copy = copied is not None and self._read_note(NOTICED) is None

        recorded, is_sure = self._read_second_book()
        entries = recorded or []
        in_second = {(entry.run, entry.key) for entry in entries}
        missing: list[ReleaseEntry] = []  # in the release log only
        for entry in entries:
            if (entry.run, entry.key) not in known:
                missing.append(entry)
        strange: list[ReleaseEntry] = []  # in the ledger only
        for key, entry in known.items():
            if key not in in_second:
                strange.append(entry)

        is_older = is_copy or bool(missing) or (noted is None and recorded is not None)
        if recorded is None:
            # a new ledger has no earlier releases, and an earlier version had no release log
            is_new = noted is None and copied is None
            is_in_doubt = not is_new
        else:
            # a release log that lacks entries of the ledger was restored too
            is_in_doubt = bool(strange) or (is_older and not is_sure)
        if not (is_older or is_in_doubt or recorded is None):
            return

        for entry in missing:
            self._write_entry(entry)
        if recorded is None:
            self._releases.begin(self._load_entries().values())
        else:
            for entry in strange:
                self._releases.add(entry)
        self._note(RECORDED, now())
        # The site may have crashed during a single release. One missing line is not a reason to reject
        # a coordinator that is ahead of this ledger.
        is_loss = len(missing) > 1 or any(e.key.startswith(PUT_BACK) for e in missing)
        if is_in_doubt:
            self.exhaust_budget()
        elif is_copy or is_loss:
            again = add_up(entry.epsilon for entry in missing)
            self._note(
                RESTORED,
                f"noise: this ledger was restored from a backup; {len(missing)} missing "
                f"releases with ε {float(again):g} were added from {NAME}",
            )
            self._note(NOTICED, now())

    def exhaust_budget(self) -> str:
        """Charge the remaining privacy budget, and describe it in a sentence."""
        with self._tables.transaction():
            if self._epsilon is None:
                return ""
            rest = max(as_written(self._epsilon) - self._spent_exactly(), as_written(0.0))
            cost = float(rest)
            if as_written(cost) < rest:  # rounding down must not leave a remainder
                cost = math.nextafter(cost, math.inf)
            delta = 0.0
            if self._delta is not None:
                delta = max(float(as_written(self._delta) - self._spent_delta()), 0.0)
            if cost > 0 or delta > 0:
                self._enter_doubtful(cost, delta)
            self._note(NOTICED, now())
            description = (
                "noise: this ledger was restored from a backup, and the releases of site "
                f"{self._tables.site} since then are unknown; ε {cost:g}, the rest of its "
                f"limit of {self._epsilon:g}, counts as spent; to release more, raise the "
                "limit under [privacy] in site.toml"
            )
            self._note(RESTORED, description)
            return description

    def _enter_doubtful(self, cost: float, delta: float) -> None:
        """Record a cost for releases that may have happened."""
        newest = self._tables.read_one("SELECT id FROM run ORDER BY turn DESC LIMIT 1")
        run: str = newest or self.run
        n_releases = self._tables.read_one("SELECT count(*) FROM privacy_spending")
        key = f"{PUT_BACK} {now()} {n_releases}"
        unknown = Released(epsilon=cost, digest="", reply={}, delta=delta)
        line = with_checksum(unknown.to_line(key))
        self._enter(ReleaseEntry(run=run, key=key, epsilon=cost, line=line))

    def _read_second_book(self) -> tuple[list[ReleaseEntry] | None, bool]:
        """Return the release log, or None, and whether it is the one that this site wrote."""
        try:
            return self._releases.read(), self._releases.is_own_log()
        except UnreadableBook:
            return None, False

    def _load_entries(self) -> dict[tuple[str, str], ReleaseEntry]:
        """Return the releases in this ledger by run and key."""
        lines = self._tables.read(
            "SELECT run, key, epsilon, line FROM privacy_spending ORDER BY rowid"
        )
        entries = [ReleaseEntry._make(line) for line in lines]
        return {(entry.run, entry.key): entry for entry in entries}

    def _read_note(self, name: str) -> str | None:
        sql = "SELECT value FROM metadata WHERE name = ?"
        one: str | None = self._tables.read_one(sql, name)
        return one

    def _note(self, name: str, value: str) -> None:
        self._tables.write(
            "INSERT OR REPLACE INTO metadata (name, value) VALUES (?, ?)", name, value
        )

    def trust(self) -> None:
        """Clear the restored state: labels of a cycle were added, or another run starts."""
        for name in (COPIED, NOTICED):
            self._tables.write("DELETE FROM metadata WHERE name = ?", name)

    def find_copy_time(self) -> str | None:
        """Return the time of the backup that this ledger was restored from.

        Returns None for a ledger that was not restored, and after labels of a cycle were added.
        """
        return self._read_note(COPIED)

    def describe_restored_ledger(self) -> str | None:
        """Describe the privacy cost of restoring this ledger, or return None."""
        return self._read_note(RESTORED)

    def is_known_older(self) -> bool:
        """Return whether the releases that this ledger lacks were already charged."""
        return self._read_note(NOTICED) is not None or self.find_copy_time() is not None

    # -- privacy costs ----------------------------------------------------------------------

    def list_release_times(self) -> dict[tuple[str, str], str]:
        """Return the time of each release in the release log, by run and key.

        Returns nothing if there is no readable log.
        """
        try:
            return self._releases.read_times()
        except UnreadableBook:
            return {}

    def sum_spent(self) -> float:
        """Return the epsilon of all releases in all runs."""
        return float(self._spent_exactly())

    def sum_spent_delta(self) -> float:
        """Return the delta of all releases in all runs."""
        return float(self._spent_delta())

    def _spent_delta(self) -> Fraction:
        deltas: list[float] = []
        for key, blob in self._tables.read("SELECT key, line FROM privacy_spending"):
            deltas.append(self._unpack(blob, f"release {key}").get("delta", 0.0))
        return add_up(deltas)

    def _spent_exactly(self) -> Fraction:
        return add_up(
            cost for (cost,) in self._tables.read("SELECT epsilon FROM privacy_spending")
        )

    def load_releases(self, site: SiteId) -> dict[str, Released]:
        """Return the releases of the run by key, in the order of spending."""
        self.compare()
        releases: dict[str, Released] = {}
        sql = "SELECT key, line FROM privacy_spending WHERE run = ? ORDER BY rowid"
        for key, blob in self._tables.read(sql, self.run):
            line = self._unpack(blob, f"release {key}")
            released = Released.from_line(line, key)
            if released is None:
                raise self._tables.damage_error(
                    f"release {key} is stored under another key"
                )
            releases[key] = released
        return releases

    def hide(self, site: SiteId, secret: SumKey) -> None:
        """Store a secret, replacing the previous one."""
        self._tables.write(
            "INSERT OR REPLACE INTO secret VALUES (1, ?)", with_checksum(secret)
        )

    def load_secret(self, site: SiteId) -> SumKey | None:
        """Return the latest secret, or None if there is none."""
        packed = self._tables.read_one("SELECT content FROM secret")
        if packed is None:
            return None
        secret: SumKey = self._unpack(packed, "the key of a secure aggregation")
        return secret

    def _unpack(self, blob: bytes, what: str) -> Any:
        """Unpack the output of `with_checksum` and verify the checksum."""
        if checksum(blob[MARK:]) != blob[:MARK]:
            raise self._tables.damage_error(f"{what} has a wrong checksum")
        return unpack(blob[MARK:])
