"""Test that each message gets one reply even if Flower's app is restarted."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow_flower.app.fallow_pipe.pipe import (
    LOST,
    NODE,
    NODES,
    NUMBER,
    REPLY,
    read,
    write,
)
from fallow_flower.hub import Hub

ASH = [[7, "ash", "monday"]]


class App:
    """Act as the coordinator's end of Flower's app."""

    def __init__(self, hub: Hub) -> None:
        while not hub.path.exists():
            time.sleep(0.01)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(5)
        self.connection.connect(str(hub.path))

    def sees(self, nodes: list[list[object]]) -> None:
        write(self.connection, NODES, json.dumps(nodes).encode())

    def takes(self) -> tuple[int, int, bytes]:
        """Return the next message: its number, node and content."""
        frame = read(self.connection)
        assert frame is not None
        number, node = NODE.unpack_from(frame[1])
        return number, node, frame[1][NODE.size :]

    def gives(self, number: int, content: bytes, kind: bytes = REPLY) -> None:
        write(self.connection, kind, NUMBER.pack(number) + content)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def hub(tmp_path: Path, events: list[Event]) -> Iterator[Hub]:
    made = Hub(tmp_path / "s", events.append)
    made.start()
    yield made
    made.close()


@pytest.fixture
def app(hub: Hub) -> Iterator[App]:
    made = App(hub)
    yield made
    made.connection.close()


def test_a_message_goes_to_the_node_of_its_site_and_the_answer_comes_back(
    hub: Hub, app: App
) -> None:
    hub.send({"ash": b"order"})
    app.sees([[7, "ash", "monday"], [8, "birch", "monday"]])
    number, node, content = app.takes()
    assert (node, content) == (7, b"order")
    assert hub.online() == {"ash", "birch"}
    app.gives(number, b"reply")
    assert hub.receive(5) == [("ash", b"reply")]
    assert hub.receive(0) == []


def test_a_message_waits_for_a_site_that_is_not_there_yet(hub: Hub, app: App) -> None:
    app.sees([])
    hub.send({"ash": b"order"})
    time.sleep(0.3)
    app.sees(ASH)
    assert app.takes()[1:] == (7, b"order")


def test_what_has_no_answer_is_sent_through_the_next_app_and_what_has_one_is_not(
    hub: Hub, app: App
) -> None:
    nodes = [[7, "ash", "monday"], [8, "birch", "monday"]]
    app.sees(nodes)
    hub.send({"ash": b"a", "birch": b"b"})
    numbers = {content: number for number, _, content in (app.takes(), app.takes())}
    app.gives(numbers[b"a"], b"done")
    assert hub.receive(5) == [("ash", b"done")]
    app.connection.close()
    again = App(hub)
    again.sees(nodes)
    number, node, content = again.takes()
    assert (node, content) == (8, b"b")
    again.gives(numbers[b"b"], b"of the old connection, which does not count")
    again.gives(number, b"new")
    assert hub.receive(5) == [("birch", b"new")]
    again.connection.close()


def test_the_newest_app_takes_the_place_of_one_that_hangs(hub: Hub, app: App) -> None:
    app.sees(ASH)
    hub.send({"ash": b"order"})
    app.takes()
    again = App(hub)
    assert read(app.connection) is None
    again.sees(ASH)
    assert again.takes()[2] == b"order"
    again.connection.close()


def test_a_lost_message_is_sent_again_after_a_while_and_the_reason_is_said(
    hub: Hub, app: App, events: list[Event]
) -> None:
    app.sees(ASH)
    hub.send({"ash": b"order"})
    began = time.monotonic()
    app.gives(app.takes()[0], b"the process of the site does not run", LOST)
    assert app.takes()[2] == b"order"
    assert time.monotonic() - began > 0.9
    assert events == [
        {"event": "lost", "site": "ash", "reason": "the process of the site does not run"}
    ]


def test_a_message_of_which_nothing_is_heard_is_sent_again_and_answered_once(
    tmp_path: Path,
) -> None:
    hub = Hub(tmp_path / "s", silence=0.2)
    hub.start()
    app = App(hub)
    try:
        app.sees(ASH)
        hub.send({"ash": b"train"})
        first = app.takes()
        again = app.takes()
        assert (first[2], again[2]) == (b"train", b"train")
        assert first[0] != again[0]
        app.gives(again[0], b"done")
        app.gives(first[0], b"done")
        assert hub.receive(5) == [("ash", b"done")]
        assert hub.receive(0.2) == []
    finally:
        hub.close()
        app.connection.close()


def test_what_a_node_had_when_it_was_started_again_is_sent_again(
    hub: Hub, app: App
) -> None:
    app.sees(ASH)
    hub.send({"ash": b"order"})
    first = app.takes()[0]
    app.sees([[7, "ash", "tuesday"]])
    second, _, content = app.takes()
    assert content == b"order"
    app.gives(first, b"late")  # either reply is from the site itself
    app.gives(second, b"twice")
    assert hub.receive(5) == [("ash", b"late")]
    assert hub.receive(0.3) == []


def test_of_two_nodes_of_one_site_the_one_that_came_last_counts(hub: Hub, app: App) -> None:
    app.sees([[9, "ash", "tuesday"], [7, "ash", "monday"]])
    hub.send({"ash": b"order"})
    assert app.takes()[1] == 9


def test_a_message_that_was_replaced_is_answered_no_more(hub: Hub, app: App) -> None:
    app.sees(ASH)
    hub.send({"ash": b"first"})
    old = app.takes()[0]
    hub.send({"ash": b"second"})
    new = app.takes()[0]
    app.gives(old, b"to the first")
    app.gives(new, b"to the second")
    assert hub.receive(5) == [("ash", b"to the second")]


def test_a_message_that_was_dropped_is_answered_no_more(hub: Hub, app: App) -> None:
    app.sees([[1, "ash", "1"]])
    hub.send({"ash": b"question"})
    number, _, _ = app.takes()
    hub.drop("ash")
    app.gives(number, b"answer")
    assert hub.receive(0.5) == []
    hub.drop("ash")  # there is none


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (NODES, b"{not json"),
        (NODES, b"5"),
        (NODES, b"[[7]]"),
        (NODES, b'[{"node": 7}]'),
        (REPLY, b"no"),
    ],
)
def test_nonsense_from_the_app_ends_its_connection_and_nothing_else(
    hub: Hub, app: App, events: list[Event], kind: bytes, payload: bytes
) -> None:
    write(app.connection, kind, payload)
    assert read(app.connection) is None
    assert "broke" in str(events[0]["reason"])
    again = App(hub)
    again.sees(ASH)
    hub.send({"ash": b"order"})
    assert again.takes()[2] == b"order"
    again.connection.close()
