"""Test HTTPS transport: delivery, presence of sites and mutual authentication."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from fallow.privacy.signing import new_signing_key, verify_key
from fallow.transport.https import (
    ConnectionSettings,
    HttpsNode,
    HttpsTransport,
    Listening,
    Pair,
)
from fallow.transport.https.signed import POLL, WINDOW
from fallow.transport.https.transport import allow_largest
from fallow.transport.tls import Tls, new_tls
from tests.transport.https.served import (
    SOON,
    STUDY,
    Served,
    echo,
    served,
    sign,
    status,
    until,
)

SimulationOf = Callable[[Path], AbstractContextManager[Served]]
"""Function that serves a simulation; tests that take one also run in `fallow-nvflare`."""


@pytest.fixture
def environment_of() -> SimulationOf:
    return served


# -- messages ------------------------------------------------------------------------------


def test_each_site_gets_its_own_message_and_brings_its_own_answer(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    with environment_of(tmp_path) as simulation:
        for name in simulation.secrets:
            simulation.start_site(name)
        for size in (1, 1000, 1 << 20):
            messages = {"anna": b"a" * size, "bert": b"b" * size}
            wanted = {name: b"echo:" + message for name, message in messages.items()}
            assert simulation.ask(messages) == wanted


def test_a_message_waits_for_a_site_that_is_not_there_yet(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    with environment_of(tmp_path) as simulation:
        simulation.transport.send({"anna": b"early"})
        assert simulation.transport.receive(0.1) == []
        assert simulation.transport.online() == set()
        simulation.start_site("anna")
        assert simulation.replies({"anna"}) == {"anna": b"echo:early"}
        assert simulation.transport.online() == {"anna"}


def test_a_newer_message_replaces_one_at_work_and_the_late_answer_is_dropped(
    tmp_path: Path,
) -> None:
    may_end = threading.Event()
    begun = threading.Event()

    def handle(message: bytes) -> bytes:
        if message == b"slow":
            begun.set()
            assert may_end.wait(SOON)
        return echo(message)

    with served(tmp_path) as simulation:
        node = simulation.start_site("anna", handle)
        simulation.transport.send({"anna": b"slow"})
        assert begun.wait(SOON)
        simulation.transport.send({"anna": b"newer"})
        until(lambda: "anna" in simulation.transport.online())  # also while it works
        may_end.set()
        assert simulation.replies({"anna"}) == {"anna": b"echo:newer"}
        assert simulation.transport.receive(0.2) == []
        assert node.problem is None


def test_a_site_that_ended_amid_its_work_gets_the_message_again(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    begun = threading.Event()
    never = threading.Event()

    def hang(message: bytes) -> bytes:
        begun.set()
        never.wait(SOON)
        return b"nobody hears this"

    with environment_of(tmp_path) as simulation:
        simulation.start_site("anna", hang)
        simulation.transport.send({"anna": b"order"})
        assert begun.wait(SOON)
        simulation.stop_site("anna")
        simulation.start_site("anna")
        assert simulation.replies({"anna"}) == {"anna": b"echo:order"}
        never.set()


def test_what_a_site_could_not_answer_comes_again_and_its_words_stay(
    tmp_path: Path,
) -> None:
    tries = []

    def handle(message: bytes) -> bytes:
        tries.append(message)
        if len(tries) == 1:
            raise RuntimeError("row 17: Anna Meier")
        return echo(message)

    with served(tmp_path) as simulation:
        node = simulation.start_site("anna", handle)
        simulation.transport.send({"anna": b"order"})
        until(lambda: node.problem is not None or len(tries) > 1)
        assert "Meier" not in str(node.problem)
        assert simulation.replies({"anna"}) == {"anna": b"echo:order"}
        assert tries == [b"order", b"order"]
        until(lambda: node.problem is None)


def test_another_process_of_the_coordinator_takes_over_at_the_same_address(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    with environment_of(tmp_path) as simulation:
        simulation.start_site("anna")
        assert simulation.ask({"anna": b"one"}) == {"anna": b"echo:one"}
        keys = {name: verify_key(secret) for name, secret in simulation.secrets.items()}
        listening = Listening(simulation.address, simulation.tls)
        simulation.transport.close()
        simulation.transport = HttpsTransport(listening, STUDY, keys).start()
        try:
            assert simulation.transport.wait_until_there(SOON)
            assert simulation.ask({"anna": b"two"}, 60.0) == {"anna": b"echo:two"}
        finally:
            simulation.transport.close()


def test_a_site_that_was_restarted_goes_on_from_its_newest_count(tmp_path: Path) -> None:
    with served(tmp_path) as simulation:
        simulation.transport.send({"anna": b"one"})
        signed = sign(
            simulation.secrets["anna"], "anna", simulation.challenge(), count=WINDOW
        )
        assert status(simulation.request(POLL, signed)) == 200
        simulation.start_site("anna")
        assert simulation.replies({"anna"}) == {"anna": b"echo:one"}


def test_an_answer_above_the_limit_is_said_at_the_site_and_the_study_goes_on(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    with environment_of(tmp_path) as simulation:
        node = simulation.start_site("anna", lambda message: bytes(2000))
        simulation.start_site("bert")
        simulation.transport.limit(lambda site: 1000)
        assert simulation.ask({"bert": b"hello"}) == {"bert": b"echo:hello"}
        simulation.transport.send({"anna": b"order"})
        until(lambda: node.problem is not None)
        assert "a reply of this site has at most 1000 bytes" in str(node.problem)
        simulation.transport.limit(allow_largest)
        assert simulation.replies({"anna"}) == {"anna": bytes(2000)}


def test_a_site_that_has_gone_counts_as_gone_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.transport.https.mailbox.OFFLINE_AFTER", 0.5)
    with served(tmp_path) as simulation:
        simulation.start_site("anna")
        until(lambda: simulation.transport.online() == {"anna"})
        simulation.stop_site("anna")
        until(lambda: not simulation.transport.online())
        assert simulation.transport.online() == set()


@pytest.mark.long
def test_a_port_that_is_in_use_is_said_and_tried_again(tmp_path: Path) -> None:
    tls = new_tls(tmp_path / "tls")
    output: list[object] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        transport = HttpsTransport(
            Listening(address, tls), STUDY, {}, output.append
        ).start()
        until(lambda: transport.problem is not None)
        assert address in str(transport.problem)
    try:
        assert transport.wait_until_there(SOON)
        assert transport.problem is None
        assert output
    finally:
        transport.close()


# -- authentication ------------------------------------------------------------------------


def site_of(
    simulation: Served, calling: ConnectionSettings, name: str = "anna"
) -> HttpsNode:
    node = HttpsNode(calling, name, STUDY, simulation.secrets[name], echo)
    simulation.nodes[name] = node
    node.start()
    return node


def test_a_site_talks_to_no_machine_that_another_authority_vouches_for(
    tmp_path: Path,
) -> None:
    other = new_tls(tmp_path / "other")
    with served(tmp_path) as simulation:
        simulation.transport.send({"anna": b"order"})
        node = site_of(simulation, ConnectionSettings(simulation.address, other.authority))
        until(lambda: node.problem is not None)
        assert "did not present a certificate for that address" in str(node.problem)
        assert str(other.authority) in str(node.problem)
        assert simulation.transport.receive(0.5) == []


def test_a_site_with_an_authority_of_its_own_does_not_ask_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = new_tls(tmp_path / "pinned")
    with served(tmp_path) as simulation:
        # the system trusts the issuer of this machine's certificate
        monkeypatch.setenv("SSL_CERT_FILE", str(simulation.tls.authority))
        simulation.transport.send({"anna": b"order"})
        node = site_of(simulation, ConnectionSettings(simulation.address, pinned.authority))
        until(lambda: node.problem is not None)
        assert "did not present a certificate for that address" in str(node.problem)
        simulation.stop_site("anna")

        # shows that the system trusts the certificate
        site_of(simulation, ConnectionSettings(simulation.address))
        assert simulation.replies({"anna"}) == {"anna": b"echo:order"}


def test_a_site_talks_to_no_machine_under_a_name_that_is_not_its_own(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as simulation:
        address = f"127.0.0.2:{simulation.transport.port}"  # also this machine, but in no certificate
        simulation.transport.send({"anna": b"order"})
        node = site_of(simulation, ConnectionSettings(address, simulation.tls.authority))
        until(lambda: node.problem is not None)
        assert simulation.transport.receive(0.5) == []


def test_without_an_authority_only_those_of_the_system_count(tmp_path: Path) -> None:
    with served(tmp_path) as simulation:
        node = site_of(simulation, ConnectionSettings(simulation.address))
        until(lambda: node.problem is not None)
        assert "from the authority in this system" in str(node.problem)


def test_with_mutual_tls_a_site_without_a_certificate_is_not_heard(tmp_path: Path) -> None:
    clients = new_tls(tmp_path / "clients")
    with served(tmp_path, clients=clients.authority) as simulation:
        calling = ConnectionSettings(simulation.address, simulation.tls.authority)
        node = site_of(simulation, calling)
        simulation.transport.send({"anna": b"order"})
        until(lambda: node.problem is not None)
        assert simulation.transport.receive(0.5) == []
        assert "own_certificate" in str(node.problem)
        simulation.stop_site("anna")

        strange = new_tls(tmp_path / "strange")
        node = site_of(simulation, with_own(calling, strange))
        until(lambda: node.problem is not None)
        assert simulation.transport.receive(0.5) == []
        simulation.stop_site("anna")

        site_of(simulation, with_own(calling, clients))
        assert simulation.replies({"anna"}) == {"anna": b"echo:order"}


def with_own(calling: ConnectionSettings, own: Tls) -> ConnectionSettings:
    return ConnectionSettings(
        calling.address, calling.authority, Pair(own.certificate, own.key)
    )


def test_a_certificate_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    one = new_tls(tmp_path / "one")
    other = new_tls(tmp_path / "other")
    mixed = Tls(one.authority, one.certificate, other.key)
    with pytest.raises(ValueError, match="two matching PEM files"):
        HttpsTransport(Listening("127.0.0.1:0", mixed), STUDY, {})
    with pytest.raises(ValueError, match="two matching PEM files"):
        HttpsNode(
            with_own(ConnectionSettings("a:1"), mixed), "anna", STUDY, bytes(32), echo
        )


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.168.1.7:443", "[::]:443"])
def test_without_tls_nothing_is_served_to_other_machines(address: str) -> None:
    with pytest.raises(ValueError, match="requires a certificate"):
        Listening(address, None)


def test_a_site_that_is_not_admitted_reads_so(tmp_path: Path) -> None:
    with served(tmp_path, sites=("anna",)) as simulation:
        simulation.secrets = {**simulation.secrets, "carl": new_signing_key()}
        node = simulation.start_site("carl")
        until(lambda: node.problem is not None)
        assert "site carl is not admitted" in str(node.problem)
        assert "send join.json" in str(node.problem)


def test_a_revoked_site_is_turned_away_at_once(
    tmp_path: Path, environment_of: SimulationOf
) -> None:
    with environment_of(tmp_path) as simulation:
        node = simulation.start_site("anna")
        simulation.start_site("bert")
        assert simulation.ask({"anna": b"one", "bert": b"one"}).keys() == {"anna", "bert"}
        simulation.transport.revoke("anna")  # while it waits for a message
        until(lambda: node.problem is not None)
        assert "site anna is not admitted" in str(node.problem)
        assert simulation.ask({"bert": b"two"}) == {"bert": b"echo:two"}


def test_a_revoked_site_cannot_answer_the_message_that_it_has(tmp_path: Path) -> None:
    begun = threading.Event()
    revoked = threading.Event()

    def wait(message: bytes) -> bytes:
        begun.set()
        revoked.wait(SOON)
        return echo(message)

    with served(tmp_path) as simulation:
        node = simulation.start_site("anna", wait)
        simulation.start_site("bert")
        simulation.transport.send({"anna": b"order"})
        assert begun.wait(SOON)
        simulation.transport.revoke("anna")
        until(lambda: not simulation.transport._app.keys.keys() & {"anna"})
        revoked.set()
        until(lambda: node.problem is not None)
        assert simulation.ask({"bert": b"two"}) == {"bert": b"echo:two"}
        assert simulation.transport.receive(1.0) == []


def test_a_coordinator_that_does_not_run_is_said(tmp_path: Path) -> None:
    tls = new_tls(tmp_path / "tls")
    calling = ConnectionSettings("127.0.0.1:9", tls.authority)
    node = HttpsNode(calling, "anna", STUDY, new_signing_key(), echo)
    node.start()
    try:
        until(lambda: node.problem is not None)
        assert "the coordinator at 127.0.0.1:9 cannot be reached" in str(node.problem)
    finally:
        node.stop()


# -- a hostile server in the coordinator's place -------------------------------------------


@contextmanager
def impostor(folder: Path, reply: bytes) -> Iterator[tuple[Tls, int, list[bytes]]]:
    """Run a server with the right certificate and one response; record its requests."""
    tls = new_tls(folder / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    asked: list[bytes] = []
    is_over = threading.Event()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.1)

        def serve() -> None:
            while not is_over.is_set():
                try:
                    bare, _ = server.accept()
                    bare.settimeout(SOON)
                    with context.wrap_socket(bare, server_side=True) as connection:
                        asked.append(connection.recv(1 << 16))
                        connection.sendall(reply)
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield tls, server.getsockname()[1], asked
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (
            b"HTTP/1.1 307 Go\r\nlocation: https://127.0.0.1:9/x\r\ncontent-length: 0\r\n\r\n",
            "responds with 307",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nab",
            "encoded",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nab",
            "too large",
        ),
        (b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\n\x1b[2J", "responds with 500 ([2J)"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000, "cannot be reached"),
        (b"\x00" * 100, "cannot be reached"),
    ],
)
def test_a_site_follows_no_redirect_and_takes_no_encoded_or_endless_answer(
    reply: bytes, word: str, tmp_path: Path
) -> None:
    messages: list[bytes] = []

    def handle(message: bytes) -> bytes:
        messages.append(message)
        return b""

    with impostor(tmp_path, reply) as (tls, port, asked):
        calling = ConnectionSettings(f"127.0.0.1:{port}", tls.authority)
        node = HttpsNode(calling, "anna", STUDY, new_signing_key(), handle)
        node.start()
        try:
            until(lambda: node.problem is not None)
            assert word in str(node.problem)
        finally:
            node.stop()
    assert messages == []
    assert asked


def test_a_challenge_of_another_form_is_not_signed(tmp_path: Path) -> None:
    reply = (
        b"HTTP/1.1 401 No\r\nfallow-challenge: sign\x20this\x20sentence\r\n"
        b"content-length: 0\r\nconnection: close\r\n\r\n"
    )
    with impostor(tmp_path, reply) as (tls, port, asked):
        calling = ConnectionSettings(f"127.0.0.1:{port}", tls.authority)
        node = HttpsNode(calling, "anna", STUDY, new_signing_key(), echo)
        node.start()
        until(lambda: len(asked) >= 2)
        node.stop()
    assert all(b"fallow-challenge: " + b"0" * 32 in request for request in asked)


# -- proxy ---------------------------------------------------------------------------------


@contextmanager
def tunnel(is_open: bool = True) -> Iterator[tuple[str, list[bytes]]]:
    """Run a CONNECT proxy; return its address, requests and relayed bytes."""
    seen: list[bytes] = []
    is_over = threading.Event()
    pipes: list[threading.Thread] = []

    def pipe(source: socket.socket, target: socket.socket) -> None:
        try:
            while part := source.recv(1 << 16):
                seen.append(part)
                target.sendall(part)
        except OSError:
            return
        finally:
            target.close()

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.1)

        def serve() -> None:
            while not is_over.is_set():
                try:
                    client, _ = server.accept()
                except TimeoutError:
                    continue
                client.settimeout(None)
                head = client.recv(1 << 16)
                seen.append(head)
                if not is_open:
                    client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                    client.close()
                    continue
                host, _, port = head.split()[1].decode().rpartition(":")
                there = socket.create_connection((host, int(port)))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                for pair in ((client, there), (there, client)):
                    pipes.append(threading.Thread(target=pipe, args=pair, daemon=True))
                    pipes[-1].start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
        finally:
            is_over.set()
            thread.join()


def test_a_proxy_carries_what_it_cannot_read(tmp_path: Path) -> None:
    with served(tmp_path) as simulation, tunnel() as (proxy, seen):
        calling = ConnectionSettings(
            simulation.address, simulation.tls.authority, proxy=proxy
        )
        site_of(simulation, calling)
        assert simulation.ask({"anna": b"a secret order"}) == {
            "anna": b"echo:a secret order"
        }
        simulation.stop_site("anna")
    assert seen[0].startswith(f"CONNECT {simulation.address} HTTP/1.1".encode())
    passed = b"".join(seen[1:])
    assert len(passed) > 1000
    assert b"secret order" not in passed
    assert b"anna" not in passed


def test_behind_a_program_that_ends_https_the_coordinator_needs_no_certificate(
    tmp_path: Path,
) -> None:
    secret = new_signing_key()
    transport = HttpsTransport(
        Listening("127.0.0.1:0", None), STUDY, {"anna": verify_key(secret)}
    )
    transport.start()
    assert transport.wait_until_there(SOON)
    with ending_https(tmp_path, transport.port) as (tls, port):
        calling = ConnectionSettings(f"127.0.0.1:{port}", tls.authority)
        node = HttpsNode(calling, "anna", STUDY, secret, echo)
        node.start()
        try:
            transport.send({"anna": b"order"})
            assert transport.receive(SOON) == [("anna", b"echo:order")]
        finally:
            node.stop()
            transport.close()


@contextmanager
def ending_https(folder: Path, behind: int) -> Iterator[tuple[Tls, int]]:
    """Run a TLS-terminating proxy in front of a local port."""
    tls = new_tls(folder / "proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(1 << 16):
                writer.write(part)
                await writer.drain()
        finally:
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", behind)
        both = (pump(reader, back), pump(there, writer))
        await asyncio.gather(*both, return_exceptions=True)

    async def end_tasks() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.1)  # now all closed connections are gone

    server = loop.run_until_complete(
        asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    )
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield tls, server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        until(lambda: not server.is_serving())
        time.sleep(0.2)  # connections end with sites that are gone
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(end_tasks())
        loop.close()


def test_a_proxy_that_refuses_is_named(tmp_path: Path) -> None:
    with served(tmp_path) as simulation, tunnel(is_open=False) as (proxy, _):
        node = site_of(
            simulation,
            ConnectionSettings(simulation.address, simulation.tls.authority, proxy=proxy),
        )
        until(lambda: node.problem is not None)
        assert "the proxy between this site and" in str(node.problem)


def test_the_environment_names_a_proxy_but_never_for_this_machine() -> None:
    assert ConnectionSettings("hub.example:443").uses_environment
    assert not ConnectionSettings("127.0.0.1:443").uses_environment
    assert not ConnectionSettings("[::1]:443").uses_environment


def test_a_site_ends_within_moments(tmp_path: Path) -> None:
    with served(tmp_path) as simulation:
        simulation.start_site("anna")
        until(lambda: simulation.transport.online() == {"anna"})
        begun = time.monotonic()
        simulation.stop_site("anna")
        assert time.monotonic() - begun < 3.0


@pytest.mark.long
def test_a_coordinator_that_has_nothing_to_say_at_once_is_not_called_without_a_pause(
    tmp_path: Path,
) -> None:
    with impostor(tmp_path, b"HTTP/1.1 204 No Content\r\n\r\n") as (tls, port, asked):
        calling = ConnectionSettings(f"127.0.0.1:{port}", tls.authority)
        node = HttpsNode(calling, "anna", STUDY, new_signing_key(), echo)
        node.start()
        until(lambda: len(asked) > 1)
        before = len(asked)
        time.sleep(2)
        node.stop()
    assert len(asked) - before <= 5  # about forty without a pause
