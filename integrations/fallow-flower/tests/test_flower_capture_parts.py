"""Test that data which Flower would add to a site's messages is removed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fallow_flower.launch import CLIENT, REASON, _guard, _staying, _without_words
from tests.deployment.planted import FOLDER, hidden_in

pytest.importorskip("flwr")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower
def test_why_an_app_of_flower_failed_names_no_folder_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FOLDER
    client = importlib.import_module(CLIENT)
    monkeypatch.setattr(client, "Error", client.Error)  # restores what is replaced now
    _guard(CLIENT, "Error", _without_words)
    full = OSError(28, "No space left on device", str(path / "flower" / "home" / "apps"))
    error = client.Error(code=3, reason=str(full))
    assert (error.code, error.reason) == (3, REASON)
    assert not hidden_in(error.reason.encode())
    assert client.Error(code=3).reason is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower
def test_a_supernode_goes_nowhere_that_the_superlink_redirects_it_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    httpx = importlib.import_module("httpx")
    fleet = importlib.import_module("flwr.supernode.fleet_http_client")
    asked = importlib.import_module("flwr.proto.fleet_pb2").ActivateNodeRequest
    monkeypatch.setattr(httpx, "Client", httpx.Client)  # restores what is replaced now
    with redirecting() as (address, visited):
        for stays in (False, True):
            if stays:
                _guard("httpx", "Client", _staying)
            client = fleet.FleetHttpClient.from_server_address(address, True, None, [])
            with client, pytest.raises(httpx.HTTPStatusError):
                client.ActivateNode(asked())
    assert visited == ["/v1/fleet/activate-node", "/inside", "/v1/fleet/activate-node"]


@contextmanager
def redirecting() -> Iterator[tuple[str, list[str]]]:
    """Redirect all requests; yield the server's address and the requested paths."""
    visited = list[str]()

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(404 if self.path == "/inside" else 307)
            visited.append(self.path)
            self.send_header("location", "/inside")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", visited
        finally:
            server.shutdown()
            thread.join()
