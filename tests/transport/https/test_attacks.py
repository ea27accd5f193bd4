"""Test attacks on the coordinator's address: short responses and no loss of messages.

Each attack runs during an honest exchange, which must end as if there were no attack.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from fallow.privacy.signing import new_signing_key, verify_key
from fallow.transport.https import app, connections
from fallow.transport.https.mailbox import Mailbox
from fallow.transport.https.signed import POLL, REPLY, sum_of
from tests.transport.https.served import (
    SOON,
    STUDY,
    Served,
    raw,
    read_all,
    served,
    sign,
    status,
    until,
)

SHORT = 400  # bytes of an error response, including its header
MESSAGE = b"an order to anna"
SIZE = 2**16  # bytes of a body


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Served]:
    """Run a test during an exchange with the offline site anna, then let anna reply."""
    with served(tmp_path) as server:
        server.transport.send({"anna": MESSAGE})
        yield server
        assert server.transport.receive(0.0) == [], "an answer that nobody gave"
        server.start_site("anna")
        assert server.replies({"anna"}) == {"anna": b"echo:" + MESSAGE}
        assert server.transport.problem is None
        assert server.events == []


def refusal(reply: bytes, word: str) -> int:
    """Return the status of a response that is short, ends the connection and has ``word``."""
    assert len(reply) <= SHORT
    assert word.encode() in reply
    assert b"connection: close" in reply.lower()
    return status(reply)


# -- authentication ------------------------------------------------------------------------


def test_an_unknown_site_is_refused_before_its_body_is_read(simulation: Served) -> None:
    fields = sign(
        new_signing_key(), "eve", simulation.challenge(), path=REPLY, length=1 << 30
    )
    # the response arrives although the body is never sent
    assert refusal(simulation.request(REPLY, fields, length=1 << 30), "not admitted") == 403


def test_a_request_that_another_key_signed_is_refused(simulation: Served) -> None:
    fields = sign(simulation.secrets["bert"], "anna", simulation.challenge())
    assert refusal(simulation.request(POLL, fields), "not admitted") == 403


@pytest.mark.parametrize(
    "changed",
    ["fallow-site", "fallow-instruction", "fallow-body", "fallow-count", "fallow-study"],
)
def test_a_field_that_was_changed_after_it_was_signed_is_noticed(
    changed: str, simulation: Served
) -> None:
    body = b"an answer"
    fields = dict(
        sign(
            simulation.secrets["anna"],
            "anna",
            simulation.challenge(),
            path=REPLY,
            body=body,
        )
    )
    other = {
        "fallow-site": "bert",
        "fallow-instruction": sum_of(MESSAGE),
        "fallow-body": sum_of(b"another"),
        "fallow-count": "2",
        "fallow-study": "6" * 32,
    }
    fields[changed] = other[changed]
    assert (
        refusal(simulation.request(REPLY, list(fields.items()), body), "not admitted")
        == 403
    )


def test_a_length_that_was_changed_after_it_was_signed_is_noticed(
    simulation: Served,
) -> None:
    body = b"an answer"
    fields = sign(
        simulation.secrets["anna"], "anna", simulation.challenge(), path=REPLY, body=body
    )
    assert (
        refusal(simulation.request(REPLY, fields, length=len(body) + 1), "not admitted")
        == 403
    )


def test_a_request_that_is_sent_again_is_refused(simulation: Served) -> None:
    body = b"an answer to an order that nobody has sent"
    signed = sign(
        simulation.secrets["anna"],
        "anna",
        simulation.challenge(),
        path=REPLY,
        body=body,
        instruction=sum_of(b"another order"),
    )
    request = raw(REPLY, signed, body)
    assert refusal(simulation.write(request), "not pending") == 410
    assert refusal(simulation.write(request), "was received before") == 409


def test_a_request_that_another_key_signed_moves_no_count(simulation: Served) -> None:
    challenge = simulation.challenge()
    forged = sign(simulation.secrets["bert"], "anna", challenge, path=REPLY, count=500)
    assert refusal(simulation.request(REPLY, forged), "not admitted") == 403
    # anna is still sending her first request
    body = b"an answer"
    own = sign(simulation.secrets["anna"], "anna", challenge, path=REPLY, body=body)
    assert refusal(simulation.request(REPLY, own, body), "not pending") == 410


@pytest.mark.parametrize("count", [10**20 - 1, 2**63, 2**62, 10**6])
def test_a_thief_of_a_key_cannot_lock_its_site_out_by_a_count(
    count: int, simulation: Served
) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge(), count=count)
    assert status(simulation.request(POLL, signed)) in (400, 409)
    # the fixture starts the site itself and receives its reply


def test_what_was_recorded_is_worth_nothing_to_another_process_of_the_coordinator(
    simulation: Served, tmp_path: Path
) -> None:
    signed = sign(
        simulation.secrets["anna"], "anna", simulation.challenge(), path=POLL, count=9
    )
    with served(tmp_path / "again") as again:
        assert refusal(again.request(POLL, signed), "challenge") == 401


def test_a_request_that_was_signed_for_one_path_is_refused_at_the_other(
    simulation: Served,
) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge(), path=POLL)
    assert refusal(simulation.request(REPLY, signed), "not admitted") == 403


def test_a_request_of_another_study_is_refused(simulation: Served) -> None:
    signed = sign(
        simulation.secrets["anna"], "anna", simulation.challenge(), study="6" * 32
    )
    assert STUDY != "6" * 32
    assert refusal(simulation.request(POLL, signed), "another study") == 403


def test_a_site_learns_nothing_of_another_sites_messages(simulation: Served) -> None:
    signed = sign(
        simulation.secrets["bert"],
        "bert",
        simulation.challenge(),
        path=REPLY,
        body=b"x",
        instruction=sum_of(MESSAGE),
    )
    assert refusal(simulation.request(REPLY, signed, b"x"), "not pending") == 410


# -- contents of requests ------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/fallow/1/poll/",
        "/fallow/1/poll?site=anna",
        "/fallow/1/../1/poll",
        "//fallow/1/poll",
        "/fallow/1/%70oll",
        "/fallow/1/poll%00",
        "/FALLOW/1/POLL",
        "http://127.0.0.1/fallow/1/poll",
        "/../../etc/passwd",
    ],
)
def test_nothing_but_two_paths_is_there(path: str, simulation: Served) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge())
    assert refusal(simulation.request(path, signed), "unknown path") == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_nothing_but_post_is_taken(method: str, simulation: Served) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge())
    assert status(simulation.request(POLL, signed, method=method)) == 405


def test_a_compressed_body_is_refused_before_it_is_read(simulation: Served) -> None:
    bomb = gzip.compress(bytes(1 << 24))
    signed = sign(
        simulation.secrets["anna"], "anna", simulation.challenge(), path=REPLY, body=bomb
    )
    fields = [*signed, ("content-encoding", "gzip")]
    assert refusal(simulation.request(REPLY, fields, bomb), "without an encoding") == 415


def test_a_body_of_unknown_length_is_refused(simulation: Served) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge(), path=REPLY)
    lines = [f"{name}: {value}" for name, value in signed]
    head = [f"POST {REPLY} HTTP/1.1", "host: a", "transfer-encoding: chunked", *lines]
    assert (
        refusal(simulation.write("\r\n".join(head).encode() + b"\r\n\r\n"), "encoding")
        == 415
    )


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "1, 2", "9" * 40, ""])
def test_a_length_that_is_no_number_is_refused(length: str, simulation: Served) -> None:
    head = f"POST {REPLY} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"
    reply = simulation.write(head.encode())
    assert status(reply) in (400, 411)
    assert len(reply) <= SHORT


def test_two_lengths_are_refused(simulation: Served) -> None:
    head = f"POST {REPLY} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n"
    assert status(simulation.write(head.encode() + b"\r\n")) == 400


def test_a_field_that_comes_twice_is_refused(simulation: Served) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge())
    assert refusal(simulation.request(POLL, [*signed, signed[0]]), "must occur once") == 400


def test_an_answer_above_the_limit_is_refused_before_it_is_read(simulation: Served) -> None:
    simulation.transport.limit(lambda site: 1000)
    signed = sign(
        simulation.secrets["anna"],
        "anna",
        simulation.challenge(),
        path=REPLY,
        instruction=sum_of(MESSAGE),
        length=1001,
    )
    assert (
        refusal(simulation.request(REPLY, signed, length=1001), "at most 1000 bytes") == 413
    )


def test_a_poll_brings_no_body(simulation: Served) -> None:
    signed = sign(simulation.secrets["anna"], "anna", simulation.challenge(), length=1)
    assert refusal(simulation.request(POLL, signed, length=1), "no body") == 413


def test_a_body_that_is_not_the_signed_one_is_refused(simulation: Served) -> None:
    body = b"an answer"
    signed = sign(
        simulation.secrets["anna"],
        "anna",
        simulation.challenge(),
        path=REPLY,
        body=body,
        instruction=sum_of(MESSAGE),
    )
    assert (
        refusal(
            simulation.request(REPLY, signed, b"on answer"), "differs from the signed one"
        )
        == 400
    )


def test_a_head_without_an_end_is_refused_when_it_is_long(simulation: Served) -> None:
    reply = simulation.write(
        b"POST /fallow/1/poll HTTP/1.1\r\n", b"x-long: " + b"a" * 40_000
    )
    assert status(reply) in (0, 400)
    assert len(reply) <= SHORT


def test_bytes_that_are_no_request_are_refused(simulation: Served) -> None:
    assert status(simulation.write(b"\x00\xff" * 500 + b"\r\n\r\n")) in (0, 400)


# -- forms of requests ---------------------------------------------------------------------


def test_a_head_that_trickles_in_is_cut_off(
    simulation: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD", 1.0)
    with simulation.connect() as connection:
        begun = time.monotonic()
        is_open = True
        while is_open:
            assert time.monotonic() - begun < SOON, "it may go on for ever"
            time.sleep(0.1)
            try:
                connection.sendall(b"P")
            except OSError:
                is_open = False
    assert time.monotonic() - begun >= 0.5


def test_a_body_that_trickles_in_is_cut_off(
    simulation: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SECONDS", 1.0)
    body = b"a" * 1000
    signed = sign(
        simulation.secrets["anna"],
        "anna",
        simulation.challenge(),
        path=REPLY,
        body=body,
        instruction=sum_of(MESSAGE),
    )
    assert refusal(simulation.write(raw(REPLY, signed, body)[:-10]), "too slowly") == 408


def test_a_connection_without_tls_is_cut_off(
    simulation: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE", 1.0)
    with socket.create_connection(("127.0.0.1", simulation.transport.port)) as silent:
        assert read_all(silent) == b""


def test_plain_http_is_not_answered(simulation: Served) -> None:
    with socket.create_connection(("127.0.0.1", simulation.transport.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert b"HTTP" not in read_all(plain)


def test_many_connections_of_strangers_keep_nobody_out(simulation: Served) -> None:
    silent = [
        socket.create_connection(("127.0.0.1", simulation.transport.port))
        for _ in range(connections.STRANGERS + 40)
    ]
    try:
        until(lambda: sum(is_closed(connection) for connection in silent) >= 40)
        simulation.start_site("bert")
        assert simulation.ask({"bert": b"hello"}) == {"bert": b"echo:hello"}
        assert not all(is_closed(connection) for connection in silent)
    finally:
        for item in silent:
            item.close()


def test_who_opens_many_connections_closes_none_of_another_network(
    simulation: Served,
) -> None:
    """A distant site needs several round trips to sign; others connect meanwhile."""
    many = []
    try:
        with socket.create_connection(
            ("127.0.0.1", simulation.transport.port), SOON
        ) as slow:
            for _ in range(connections.STRANGERS + 40):
                many.append(connect_from("127.0.0.2", simulation.transport.port))
            until(lambda: sum(is_closed(connection) for connection in many) >= 40)
            assert not is_closed(slow)
        assert not all(is_closed(connection) for connection in many)
    finally:
        for item in many:
            item.close()


def connect_from(address: str, port: int) -> socket.socket:
    """Connect from another address of this machine."""
    try:
        return socket.create_connection(("127.0.0.1", port), SOON, (address, 0))
    except OSError as error:
        pytest.skip(f"this machine has no {address}: {error}")


def test_a_connection_belongs_to_the_site_that_spoke_on_it_last(simulation: Served) -> None:
    """A TLS-terminating proxy sends requests of several sites over one connection."""
    challenge = simulation.challenge()
    open_ones = []
    try:
        shared = simulation.connect()
        open_ones.append(shared)
        shared.sendall(raw(POLL, sign(simulation.secrets["anna"], "anna", challenge)))
        shared.settimeout(SOON)
        output = b""
        while MESSAGE not in output:
            output += shared.recv(1000)
        shared.sendall(raw(POLL, sign(simulation.secrets["bert"], "bert", challenge)))
        until(lambda: "bert" in simulation.transport.online())
        for count in range(2, 3 + connections.EACH):
            mine = simulation.connect()
            open_ones.append(mine)
            signed = sign(simulation.secrets["anna"], "anna", challenge, count=count)
            mine.sendall(raw(POLL, signed))
            assert status(mine.recv(1000)) == 200
        simulation.transport.send({"bert": b"for bert"})
        output = b""
        while b"for bert" not in output:
            part = shared.recv(1000)
            assert part, "anna's connections closed the one that bert waits on"
            output += part
    finally:
        for connection in open_ones:
            connection.close()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_many_polls_of_one_site_leave_one_of_them_and_few_connections(
    simulation: Served,
) -> None:
    challenge = simulation.challenge()
    open_ones = []
    try:
        for count in range(1, 13):
            connection = simulation.connect()
            signed = sign(simulation.secrets["bert"], "bert", challenge, count=count)
            connection.sendall(raw(POLL, signed))
            open_ones.append(connection)
        newest = open_ones[-1]
        simulation.transport.send({"bert": b"for the newest"})
        newest.settimeout(SOON)
        output = newest.recv(1000)
        while b"for the newest" not in output:
            output += newest.recv(1000)
        assert status(output) == 200
        for older in open_ones[:-1]:  # closed, or answered without a message
            older.settimeout(SOON)
            assert b"for the newest" not in older.recv(1000)
    finally:
        for connection in open_ones:
            connection.close()


def test_an_answer_that_nobody_signed_inside_is_passed_on_for_the_coordinator_to_refuse(
    tmp_path: Path,
) -> None:
    """The transport does not open messages; the coordinator verifies their signatures."""
    with served(tmp_path) as simulation:
        simulation.start_site("anna", handle=lambda message: b"no envelope at all")
        assert simulation.ask({"anna": MESSAGE}) == {"anna": b"no envelope at all"}
        # it is requested again in the same words
        assert simulation.ask({"anna": MESSAGE}) == {"anna": b"no envelope at all"}


def test_an_order_is_answered_once(tmp_path: Path) -> None:
    with served(tmp_path) as simulation:
        simulation.transport.send({"anna": MESSAGE})
        challenge = simulation.challenge()
        replies = []
        for count in (1, 2):
            body = b"answer %d" % count
            signed = sign(
                simulation.secrets["anna"],
                "anna",
                challenge,
                path=REPLY,
                count=count,
                body=body,
                instruction=sum_of(MESSAGE),
            )
            with simulation.connect() as connection:
                connection.sendall(raw(REPLY, signed, body))
                replies.append(status(connection.recv(1000)))
        assert replies == [204, 410]
        assert simulation.transport.receive(1.0) == [("anna", b"answer 1")]
        assert simulation.transport.receive(0.2) == []


def test_a_hostile_site_is_no_obstacle_to_another_one(simulation: Served) -> None:
    challenge = simulation.challenge()
    for count in range(30):
        body = b"a" * 100
        signed = sign(
            simulation.secrets["bert"],
            "bert",
            challenge,
            path=REPLY,
            count=count + 1,
            body=body,
            instruction=sum_of(MESSAGE),
        )
        assert status(simulation.request(REPLY, signed, body)) == 410


def test_a_body_in_tiny_pieces_takes_little_more_memory_than_its_size() -> None:
    secret = new_signing_key()
    mailbox = Mailbox()
    mailbox.send({"anna": MESSAGE})
    server = app.Application(
        mailbox, STUDY, {"anna": verify_key(secret)}, lambda site: SIZE
    )
    fields = sign(
        secret,
        "anna",
        server.challenge,
        path=REPLY,
        instruction=sum_of(MESSAGE),
        body=bytes(SIZE),
    )
    headers = [(name.encode(), value.encode()) for name, value in fields]
    headers.append((b"content-length", str(SIZE).encode()))
    connection = connections.Gate(
        connections.Connections(connections.make_config(server), None)
    )
    scope: app.Scope = {
        "type": "http",
        "method": "POST",
        "path": REPLY,
        "raw_path": REPLY.encode(),
        "query_string": b"",
        "headers": headers,
        "state": {connections.GATE: connection},
    }
    pieces = iter(range(SIZE - 1, -1, -1))
    statuses: list[object] = []

    async def receive() -> app.Received:
        piece = bytes(bytearray(1))  # equal pieces of one byte would be one object
        return {"type": "http.request", "body": piece, "more_body": next(pieces) > 0}

    async def send(message: Mapping[str, object]) -> None:
        statuses.append(message.get("status"))

    tracemalloc.start()
    try:
        asyncio.run(server(scope, receive, send))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert statuses[0] == 204
    assert mailbox.receive(0.0) == [("anna", bytes(SIZE))]
    assert peak < 4 * SIZE
