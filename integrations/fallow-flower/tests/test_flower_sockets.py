"""Test that frames arrive complete or not at all, and sockets answer in sequence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from fallow_flower.app.fallow_pipe.pipe import (
    HEAD,
    LIMIT,
    LOST,
    MESSAGE,
    REPLY,
    SOCKET,
    connect,
    read,
    write,
)
from fallow_flower.sockets import FAILED, SocketNode, private_socket, serve_socket
from tests.transport.files import taking_all_files


@contextmanager
def served(folder: Path, handle: Callable[[bytes], bytes]) -> Iterator[Path]:
    stop = Event()
    with private_socket(folder) as socket_path:
        thread = Thread(target=serve_socket, args=(socket_path, handle, stop))
        thread.start()
        try:
            while not is_served(socket_path):
                thread.join(0.01)
            yield socket_path
        finally:
            stop.set()
            thread.join()


def is_served(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(socket_path)) == 0


def asked(socket_path: Path, kind: bytes, payload: bytes) -> tuple[bytes, bytes] | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path))
        write(connection, kind, payload)
        return read(connection)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 8000])
def test_a_frame_arrives_as_it_was_sent(payload: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        sender = Thread(target=write, args=(one, MESSAGE, payload))
        sender.start()
        assert read(other) == (MESSAGE, payload)
        sender.join()


@pytest.mark.parametrize(
    "sent", [b"", HEAD.pack(10, b"m")[:5], HEAD.pack(10, b"m") + b"half"]
)
def test_a_frame_that_was_cut_off_is_no_frame(sent: bytes) -> None:
    one, other = socket.socketpair()
    with other:
        with one:
            one.sendall(sent)
        assert read(other) is None


def test_an_announced_size_over_the_limit_is_refused_before_anything_is_read() -> None:
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(5)
        one.sendall(HEAD.pack(LIMIT + 1, b"m"))
        with pytest.raises(ValueError, match="over the limit"):
            read(other)


def test_a_message_is_answered_through_the_socket_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, lambda message: b"heard " + message) as socket_path:
        monkeypatch.setenv(SOCKET, str(socket_path))
        with connect() as connection:
            write(connection, MESSAGE, b"you")
            assert read(connection) == (REPLY, b"heard you")


def test_a_moment_without_files_ends_no_socket(tmp_path: Path) -> None:
    with (
        served(tmp_path, bytes.upper) as socket_path,
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as second,
    ):
        with taking_all_files():
            for caller in (first, second):
                caller.connect(str(socket_path))
                write(caller, MESSAGE, b"you")
            time.sleep(0.6)  # Linux keeps a file for the pending connection
        for caller in (first, second):
            assert read(caller) == (REPLY, b"YOU")


def test_what_cannot_be_handled_is_lost_without_its_words_and_the_next_is_answered(
    tmp_path: Path,
) -> None:
    def handle(message: bytes) -> bytes:
        if message == b"bad":
            raise RuntimeError("no room")
        return message

    with served(tmp_path, handle) as socket_path:
        assert asked(socket_path, MESSAGE, b"bad") == (LOST, FAILED)
        assert asked(socket_path, b"?", b"") == (LOST, FAILED)
        assert asked(socket_path, MESSAGE, b"good") == (REPLY, b"good")


def test_messages_are_handled_one_after_the_other(tmp_path: Path) -> None:
    inside = [0]
    highest = [0]

    def handle(message: bytes) -> bytes:
        inside[0] += 1
        highest[0] = max(highest[0], inside[0])
        Event().wait(0.02)
        inside[0] -= 1
        return message

    with served(tmp_path, handle) as socket_path:
        threads = [
            Thread(target=asked, args=(socket_path, MESSAGE, b"x")) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert highest == [1]


def test_a_socket_lies_in_a_folder_of_its_own_that_others_cannot_enter(
    tmp_path: Path,
) -> None:
    with private_socket(tmp_path) as socket_path:
        assert socket_path.parent == tmp_path / "socket"
        assert socket_path.parent.stat().st_mode & 0o777 == 0o700


class Caller:
    """Act as a node that asks once, as Flower's app does."""

    problem = None

    def __init__(self, at: Path) -> None:
        self.at = at

    def start(self) -> None:
        while not is_served(self.at):
            time.sleep(0.01)
        self.reply = asked(self.at, MESSAGE, b"order")

    def stop(self) -> None:
        pass


def test_a_node_answers_at_its_socket_and_leaves_nothing_behind(tmp_path: Path) -> None:
    callers: list[Caller] = []

    def make(at: Path) -> Caller:
        callers.append(Caller(at))
        return callers[0]

    node = SocketNode(tmp_path, lambda message: b"heard " + message, make)
    node.start()
    node.stop()
    assert callers[0].reply == (REPLY, b"heard order")
    assert not callers[0].at.exists()


def test_where_the_path_is_too_long_for_a_socket_a_short_one_is_found(
    tmp_path: Path,
) -> None:
    with private_socket(tmp_path / ("long" * 30)) as socket_path:
        assert len(os.fsencode(socket_path)) <= 100
        assert socket_path.parent.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(socket_path))
    assert not socket_path.parent.exists()


def test_the_socket_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    for _ in range(2):
        with served(tmp_path, bytes) as socket_path:
            assert asked(socket_path, MESSAGE, b"again") == (REPLY, b"again")
            os.link(socket_path, tmp_path / "kept")
        os.rename(tmp_path / "kept", socket_path)
