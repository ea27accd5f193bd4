"""Test peer messages: stored once, found again, and counted when sent and received."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.model_vectors import Layout
from fallow.core.types import State, Values
from fallow.core.view import View
from fallow.engine import Loop, row_loss
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import Phases
from fallow.experiment.first_phase import restore
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.spec import Spec
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import MemoryStore, Store
from fallow.storage.errors import StorageError
from fallow.transport.serialized import SerializingChannel
from tests.experiment.crash import tiny

SITES = "abcd"
ALL = {to: [s for s in SITES if s != to] for to in SITES}
SIZE = 1000  # numbers in a reply


class Passing:
    """Every site passes its only row, many times over, plus a number."""

    contract: ClassVar[Contract] = Contract("passing", "a test", 2024)

    @client.relay("-")
    def model(self, view: View, plus: float = 0.0) -> Values:
        return {"w": view.rows().flatten().repeat(SIZE) + plus, "labels": 2.0}

    @client.relay("-")
    def row(self, view: View) -> Values:
        return {"w": view.rows().flatten()}


def members(store: Store) -> dict[str, LocalSite]:
    net = nn.Sequential()
    net.add_module("head", nn.Linear(1, 2))
    methods: Any = {"training": Passing()}  # all that this test needs
    parts = RunComponents(net, Layout.of(net), methods, 2, 0, lambda generator: {})
    return {
        name: LocalSite(name, torch.tensor([[float(at)]]), parts, store)
        for at, name in enumerate(SITES)
    }


def door(
    made: dict[str, LocalSite], event_log: EventLog, runtime: type = InProcessChannel
) -> Ask:
    net = next(iter(made.values())).parts
    channel = runtime(made, Loop(net.model, net.layout, row_loss("classification")))
    return Ask(channel, event_log, Disclosure(), ExchangeKey("train", "round"), "training")


def brought(site: LocalSite) -> dict[str, list[float]]:
    return {name: kept["w"][:1].tolist() for name, kept in site.memory.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "event_log.sqlite"


@pytest.fixture
def event_log(path: Path) -> Iterator[EventLog]:
    made = EventLog(path)
    yield made
    made.close()


def count_messages(path: Path) -> int:
    with sqlite3.connect(path) as db:
        result: int = db.execute("SELECT count(*) FROM peer_message").fetchone()[0]
    db.close()
    return result


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_an_answer_is_written_once_and_found_by_all_when_the_file_is_opened_again(
    event_log: EventLog, path: Path, runtime: type
) -> None:
    made = members(event_log)
    door(made, event_log, runtime).relay(Passing().model, ALL)
    assert count_messages(path) == len(SITES)
    again = EventLog(path)
    for name, site in members(again).items():
        assert brought(site) == brought(made[name])
        assert site.memory.keys() == {f"model/{sender}" for sender in ALL[name]}
        assert all(float(kept["labels"]) == 2.0 for kept in site.memory.values())
    again.close()


@pytest.mark.parametrize("store", [MemoryStore, None])
def test_receivers_share_the_memory_of_what_they_received(
    event_log: EventLog, store: type | None
) -> None:
    made = members(store() if store else event_log)
    door(made, event_log).relay(Passing().model, ALL)
    reopened = members(made["a"].store)
    for result in (made, reopened):
        of_d = {result[to].memory["model/d"]["w"].data_ptr() for to in "abc"}
        assert len(of_d) == 1


def test_a_later_relay_of_the_verb_replaces_it_where_it_goes_and_nowhere_else(
    event_log: EventLog, path: Path
) -> None:
    made = members(event_log)
    ask = door(made, event_log)
    ask.relay(Passing().row, {"a": ["b"]})
    ask.relay(Passing().model, ALL)
    ask.relay(Passing().model, {"a": ["b"], "c": []}, plus=10.0)
    for result in (made, members(event_log)):
        assert brought(result["a"]) == {"row/b": [1.0], "model/b": [11.0]}
        assert brought(result["b"]) == {
            "model/a": [0.0],
            "model/c": [2.0],
            "model/d": [3.0],
        }
        assert brought(result["c"]) == {}
    assert (
        count_messages(path) == 1 + 1 + 4
    )  # row/b, the new b, and all old ones, which b and d have


def test_letters_that_no_site_holds_are_dropped(event_log: EventLog, path: Path) -> None:
    made = members(event_log)
    ask = door(made, event_log)
    for turn in range(5):
        ask.relay(Passing().model, ALL, plus=float(turn))
        assert count_messages(path) == len(SITES)
    for site in made.values():
        site.forget()
    event_log.finish("0/train", {})
    assert count_messages(path) == 0
    assert all(not site.memory for site in members(event_log).values())


def test_a_relay_that_fails_changes_nothing(event_log: EventLog) -> None:
    made = members(event_log)
    ask = door(made, event_log)
    ask.relay(Passing().model, ALL)
    with pytest.raises(ZeroDivisionError), event_log.transaction():
        made["a"].receive("model", {})
        raise ZeroDivisionError
    assert brought(members(event_log)["a"]).keys() == {"model/b", "model/c", "model/d"}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE peer_message SET content = substr(content, 1, 99)",
        "DELETE FROM peer_message",
    ],
)
def test_a_letter_that_was_changed_is_reported_as_damage(path: Path, sql: str) -> None:
    event_log = EventLog(path)
    door(members(event_log), event_log).relay(Passing().model, ALL)
    event_log.close()
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()
    again = EventLog(path)
    with pytest.raises(
        StorageError, match=r"damaged \(model/b of site a has a wrong checksum\)"
    ):
        members(again)
    again.close()


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_what_is_sent_is_received_in_number_and_in_bytes(
    event_log: EventLog, runtime: type
) -> None:
    ask = door(members(event_log), event_log, runtime)
    ask.relay(Passing().row, {"a": ["b", "c"], "b": ["c"], "d": []})
    before = ask.disclosure.rows()[0]["bytes_down"]
    ask.relay(Passing().row, {"a": ["c"]})
    (row,) = ask.disclosure.rows()
    assert row["sent"] == {"b": 1, "c": 3}
    assert row["received"] == {"a": 3, "b": 1}
    assert row["bytes"] == 4 * 4  # a row is one float32
    assert before >= 3 * 4
    assert (row["bytes_down"] == row["bytes"]) == (
        runtime is InProcessChannel
    )  # requests are bytes too
    twice = Disclosure.of(ask.disclosure.rows()).plus(ask.disclosure)
    assert twice.rows()[0]["sent"] == {"b": 2, "c": 6}


@pytest.fixture(scope="module")
def dpfl(tmp_path_factory: pytest.TempPathFactory) -> Any:
    fields = {"budget": 3, "tau_init": 1}
    return replace(
        tiny(tmp_path_factory.mktemp("tiny")),
        training=Spec("dpfl", fields),
        strategy=Spec("random"),
        validation=0.4,
        cycles=0,
        sites=4,
        initial=0.5,
    )


def test_a_record_says_how_many_models_each_site_sent_and_received(dpfl: Any) -> None:
    event_log = EventLog()
    (*_, last) = ExperimentRun(build_environment(dpfl, 0, event_log), event_log).go()
    sent = last["relayed"]["sent"]
    received = last["relayed"]["received"]
    assert sum(sent.values()) == sum(received.values()) > 0
    (row,) = [row for row in last["revealed"] if row["kind"] == "relay"]
    assert row["sent"] == sent
    plain = replace(dpfl, training=Spec("fedavg"))
    event_log = EventLog()
    assert (
        "relayed"
        not in ExperimentRun(build_environment(plain, 0, event_log), event_log).go()[-1]
    )


def test_a_shared_phase_holds_each_model_once_and_brings_all_back(
    dpfl: Any, tmp_path: Path
) -> None:
    event_log = EventLog()
    simulation = build_environment(dpfl, 0, event_log)
    ExperimentRun(simulation, event_log).go()
    memory = {name: site.memory for name, site in simulation.members.items()}
    assert any(name.startswith("model/") for kept in memory.values() for name in kept)
    phases = Phases(tmp_path)
    done: Any = {"seconds": 1.0}  # of a phase, the only relevant field here
    phases.save("key", done, memory)
    result = phases.load("key")
    assert result is not None
    fresh = build_environment(dpfl, 0, EventLog()).members
    restore(fresh, result["memory"])
    for name, site in fresh.items():
        assert site.memory.keys() == memory[name].keys()
        for what, kept in site.memory.items():
            assert all(
                torch.equal(kept[part], value) for part, value in memory[name][what].items()
            )
    now = {name: site.memory for name, site in fresh.items()}
    assert objects(now) == objects(memory) < sum(map(len, memory.values()))


def objects(memory: dict[str, dict[str, State]]) -> int:
    """Return the number of distinct models that were received."""
    brought = (
        kept for own in memory.values() for what, kept in own.items() if "model/" in what
    )
    return len({kept["w"].data_ptr() for kept in brought})
