"""Test that an interrupted start leaves no socket open (ResourceWarning)."""

from __future__ import annotations

import gc
import socket
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from fallow.transport.https import ConnectionSettings, HttpsNode, HttpsTransport, Listening
from fallow.transport.tls import new_tls
from tests.each import mark_long
from tests.transport.https.served import SOON, STUDY, echo

ENDS = 4  # shutdowns of a coordinator during connection attempts


@pytest.fixture(autouse=True)
def collected() -> None:
    """Collect garbage of other tests first."""
    gc.collect()


def test_a_site_that_is_stopped_amid_a_handshake(tmp_path: Path) -> None:
    authority = new_tls(tmp_path / "tls").authority
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        node = HttpsNode(
            ConnectionSettings(address, authority), "anna", STUDY, bytes(32), echo
        )
        node.start()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1)  # the handshake has started and gets no reply
            node.stop()
    del node
    gc.collect()


@pytest.mark.long
@pytest.mark.parametrize("has_tls", mark_long([False, True], [False]))
def test_a_coordinator_that_is_called_as_it_ends(has_tls: bool, tmp_path: Path) -> None:
    tls = None
    if has_tls:
        tls = new_tls(tmp_path / "tls")
    for _ in range(ENDS):
        transport = HttpsTransport(Listening("127.0.0.1:0", tls), STUDY, {}).start()
        assert transport.wait_until_there(SOON)
        connections: list[socket.socket] = []
        caller = threading.Thread(target=call_often, args=(transport.port, connections))
        caller.start()
        time.sleep(0.01)  # some are connected, others are connecting
        transport.close()
        caller.join()
        assert connections
        for connection in connections:
            connection.close()
        del transport
        gc.collect()


def call_often(port: int, connections: list[socket.socket]) -> None:
    """Connect repeatedly until the port is closed."""
    while len(connections) < 500:
        try:
            connections.append(socket.create_connection(("127.0.0.1", port), 0.2))
        except OSError:
            return
