"""Property test: promises of a ledger over random histories of one site.

A history consists of runs, labels, corrections, withdrawals, restarts and restored ledgers.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch

from fallow.core.messages import Request, Step
from fallow.core.types import Values
from tests.deployment.hosts import CLASSES, ROWS, Leader, agreement, folder
from tests.keys import key_of

pytest.importorskip("cryptography")

POISON = 1e9
"""Value of all columns of an example that has left."""
ACTIONS = ("run", "correct", "cannot tell", "withdraw", "restart", "restore")


class History:
    """One site, what it has sent in all of its runs, and the places of its labels."""

    def __init__(self, path: Path, seed: int) -> None:
        agreed = agreement(
            "training=closed-form:shown=parts", "encoder=fourier", "validation=0.3"
        )
        chosen = {"limit": 99, "runs": 99}
        self.draw = random.Random(seed)  # noqa: S311 - a test, which is repeated by its seed
        self.site = folder(path, agreed, brought=range(5), **chosen)
        self.runs = 0
        self.leader: Leader
        self.answers: dict[frozenset[int], tuple[Values, Values]] = {}
        self.places: dict[int, tuple[bool, int | None]] = {}
        self.start_run()
        self.leader.ledger.backup()

    # -- actions -------------------------------------------------------------------------------

    def act(self) -> None:
        action = self.draw.choice(ACTIONS)
        if action == "run":
            self.start_run()
        elif action == "restart":
            self.leader.again()
        elif action == "restore":
            self.restore()
        elif action == "withdraw":
            self.leader.ledger.withdraw(self.draw.randrange(ROWS), "ann")
        else:
            self.correct(None if action == "cannot tell" else self.draw.randrange(CLASSES))
        self.poison()
        self.check_places()

    def start_run(self) -> None:
        """Start a run, compare its sums over all examples, and label some."""
        self.runs += 1
        if self.runs > 1:
            self.leader.ledger.close()
        self.leader = Leader(self.site, run=f"{self.runs:010}-" + 16 * "a")
        self.leader.people("hello", "0/hello")
        self.poison()
        excluded = frozenset(self.leader.ledger.requests.find_excluded_rows())
        sums = self.sum_all("encoder", "moments")
        scaled = self.sum_all("scaling", "columns")
        before = self.answers.setdefault(excluded, (sums, scaled))
        assert is_equal(before[0], sums), "a sum over the same examples differs"
        assert is_equal(before[1], scaled), "a sum over the same examples differs"
        assert float(torch.as_tensor(sums["columns"]).abs().max()) < POISON / 2
        assert sums["rows"] == scaled["rows"] == ROWS - len(excluded)
        pool = len(self.leader.host._local_site().pool)
        self.leader.initial(min(2, pool))

    def sum_all(self, owner: str, function: str) -> Values:
        key = {"encoder": "0/initial/encoder/0", "scaling": "0/initial/features/0"}[owner]
        request = Request(key_of(key), owner, 0, 0, (Step("sum", function, {}),))
        return self.leader.exchange({"north": request}).replies["north"]

    def correct(self, value: float | None) -> None:
        rows = [task.row for task in self.leader.ledger.tasks() if task.state == "answered"]
        if rows:
            self.leader.ledger.answer(self.draw.choice(rows), value, "ann")

    def restore(self) -> None:
        """Replace the ledger by its backup, which later events are missing in."""
        ledger = self.leader.ledger
        ledger.close()
        for file in ledger.path.parent.glob(f"{ledger.path.name}-*"):
            file.unlink()
        shutil.copy(ledger.copy, ledger.path)
        self.leader.start()
        known = {label.row for label in self.leader.ledger.store.load_labels("north")}
        self.places = {row: at for row, at in self.places.items() if row in known}
        self.start_run()

    # -- promises ------------------------------------------------------------------------------

    def poison(self) -> None:
        """Make the values of examples that have left recognizable."""
        site = self.leader.host._local_site()
        x = self.site.rows.x.to(site.x.dtype).clone()
        x[site.excluded] = POISON
        self.leader.host._x.copy_(x)

    def check_places(self) -> None:
        for label in self.leader.ledger.store.load_labels("north"):
            fold = (label.is_validation, label.fold)
            assert self.places.setdefault(label.row, fold) == fold


def is_equal(one: Values, other: Values) -> bool:
    """Return whether two replies have the same bits."""
    assert one.keys() == other.keys()
    return all(
        torch.equal(torch.as_tensor(one[name]), torch.as_tensor(other[name]))
        for name in one
    )


@pytest.mark.parametrize("seed", range(3))
def test_sums_folds_and_leaving_hold_over_a_random_history(
    seed: int, tmp_path: Path
) -> None:
    history = History(tmp_path, seed)
    for _ in range(12):
        history.act()
    history.leader.ledger.close()


def test_a_sum_over_all_examples_is_computed_once(tmp_path: Path) -> None:
    history = History(tmp_path, seed=0)
    ((before, _),) = history.answers.values()
    history.site.rows.x.mul_(1.5)  # another machine may round differently
    history.start_run()  # compares the bits
    history.leader.ledger.withdraw(3, "ann")
    history.start_run()
    after, _ = history.answers[frozenset([3])]
    assert not is_equal(before, after)
    stored = history.leader.ledger._tables.read("SELECT DISTINCT examples FROM answer")
    assert len(stored) == 1  # none about the example that has left
    history.leader.ledger.close()
