"""Test that a withdrawn example is in no later exchange, also in the middle of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fallow.core.events import Event
from fallow.core.messages import Delivered, Request, Step
from fallow.core.types import SiteId, Values
from fallow.deployment.site.host import Host
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.hosts import NUMBERS, SCHEMA, Leader, agreement, folder, truth
from tests.deployment.simulations import NAMES, federation, rows
from tests.keys import key_of

pytest.importorskip("cryptography")

FEDSVD = "fale:mode=fedsvd:rotate=false"
"""With masked examples, and without the rotation that other sites would send."""
POISON = 1e9
"""Value of all columns of an example that has left."""
LARGEST = 1e6
LABELED, UNLABELED = 0, 9


def poison(leader: Leader, row: int) -> None:
    """Withdraw an example, whose values can then be recognized in every reply."""
    leader.ledger.withdraw(row, "ann")
    leader.host._x[row] = POISON
    site = leader.host._site
    if site is not None:
        site.seen = site.see(site.x)


class Withdrawing(Leader):
    """Coordinator of a site where examples leave before one exchange."""

    before: int = -1
    rows: tuple[int, ...] = ()
    restarts: bool = False
    later: list[Values]

    def exchange(self, requests: Mapping[SiteId, Request], routes: Any = None) -> Delivered:
        if len(self.instructions) == self.before:
            if self.restarts:
                self.again()
            for row in self.rows:
                poison(self, row)
            self.later = []
        delivered = super().exchange(requests, routes)
        if self.before >= 0 and len(self.instructions) > self.before:
            self.later.append(delivered.replies[self.site.name])
        return delivered


def start(path: Path, *settings: str, **chosen: Any) -> Withdrawing:
    agreed = agreement(*settings, schema=chosen.pop("schema", SCHEMA))
    leader = Withdrawing(folder(path, agreed, brought=range(6), **chosen))
    leader.people("hello", "0/hello")
    return leader


def find_poison(reply: Values) -> list[str]:
    """Return the fields of a reply with values of an example that has left."""
    fields = []
    for name, value in reply.items():
        is_large = torch.as_tensor(value).double().abs() > LARGEST
        if bool(is_large.any()):
            fields.append(name)
    return fields


def query(leader: Withdrawing, number: int, *, restarts: bool = False) -> int:
    """Query; examples leave before the exchange of this number.  Return the number of exchanges."""
    first = len(leader.instructions)
    leader.before = first + number
    leader.rows = (LABELED, UNLABELED)
    leader.restarts = restarts
    is_one_pass = leader.host._limits.schedule.is_one_pass
    leader.query(leader.first_model(), cycle=int(is_one_pass))
    return len(leader.instructions) - first


@pytest.mark.parametrize(
    "strategy",
    ["typical", "pivotal", "fale:rotate=false", "fale:mode=tsqr:rotate=false", FEDSVD],
)
def test_an_example_that_leaves_during_a_query_is_in_no_later_exchange(
    strategy: str, tmp_path: Path
) -> None:
    schema = SCHEMA if strategy == "typical" else NUMBERS
    settings = [f"strategy={strategy}"]
    if schema is NUMBERS:
        settings.append("training=server-solve")
    leader = start(tmp_path / "whole", *settings, schema=schema)
    exchanges = query(leader, number=10**6)
    whole: Tensor = leader.host._local_site().memory["selected"]["rows"]
    leader.ledger.close()
    for number in (exchanges // 2, exchanges - 1):
        leader = start(tmp_path / str(number), *settings, schema=schema)
        query(leader, number, restarts=number < exchanges - 1)
        assert [find_poison(reply) for reply in leader.later] == [[] for _ in leader.later]
        site = leader.host._local_site()
        if strategy == "pivotal":  # one score for each example of the pool
            assert len(site.memory["score"]["score"]) == len(site.pool)
        selected: Tensor = site.memory["selected"]["rows"]
        assert UNLABELED not in selected
        if strategy.startswith("fale"):  # an example that leaves changes no other draw
            assert torch.equal(selected, whole)
        assert 1 <= len(selected) <= 3
        leader.ledger.close()


@pytest.mark.parametrize(("value", "left"), [(2.0, 10), (None, 9)])
def test_a_correction_counts_in_the_next_exchange(
    value: float | None, left: int, leader: Leader
) -> None:
    leader.initial()
    site = leader.host._local_site()
    row = int(site.labeled[-1])
    assert float(site.values[row]) == truth(row) != value
    leader.ledger.answer(row, value, "ann")
    request = Request(key_of("0/train/0/1"), "training", 0, 0, (Step("sum", "upload", {}),))
    leader.send(leader.instruction(request))
    assert len(site.labeled) == left
    if value is not None:
        assert float(site.values[row]) == value


# -- FALE under secure aggregation ---------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "moment", ["0/query/6", "0/query/13", "1/train/targets/2", "1/train/0/3", "1/train/1/1"]
)
def test_no_masked_sum_of_fale_has_a_labeled_example_that_has_left(
    moment: str, tmp_path: Path
) -> None:
    """Check that infinite values of the examples, which no mask hides, are in no contribution."""
    config = ExperimentConfig(
        "hospitals",
        model=Spec("linear"),
        strategy=Spec("fale"),
        training=Spec("server-solve"),
        privacy=Privacy(secure_sum=True),
        initial_by="query",
        budget=4,
        rounds=2,
        cycles=1,
        score_rounds=1,
        dtype="float64",
    )
    data = rows(NAMES[:3], classes=0)
    labeled = dict.fromkeys(NAMES[:3], 6)
    simulation = federation(tmp_path, config, data, labeled=labeled)
    chosen = (LABELED, UNLABELED)

    def withdraw(event: Event) -> None:
        simulation.label(event)
        if event["event"] == "refused":
            raise AssertionError(event["reason"])
        if event["event"] != "replied" or event["key"] != moment or event["site"] != "chur":
            return
        host = simulation.transport.alive["chur"].__self__  # type: ignore[attr-defined]
        assert isinstance(host, Host)
        for row in chosen:
            simulation.ledgers["chur"].withdraw(row, "ann")
            host._x[row] = math.inf
        if host._site is not None:
            host._site.seen = host._site.see(host._site.x)

    assert simulation.program(withdraw).go()
    host = simulation.transport.alive["chur"].__self__  # type: ignore[attr-defined]
    assert bool(host._x[LABELED].isinf().all())
    simulation.close()
