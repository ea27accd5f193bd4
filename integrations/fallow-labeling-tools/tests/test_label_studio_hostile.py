"""Test that a hostile Label Studio controls nothing and exhausts no memory."""

from __future__ import annotations

import gzip
import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from labeling_sites import TOKEN, Studio, site, sync

from fallow.deployment.labeling_page import LabelQueue
from fallow.storage.errors import StorageError
from fallow_labeling_tools import label_studio_server
from fallow_labeling_tools.label_studio_server import SERVER
from tests.deployment.label_queues import HEART, make_queue

pytest.importorskip("httpx")

Serve = Callable[[BaseHTTPRequestHandler], None]


def send(to: BaseHTTPRequestHandler, answer: object) -> None:
    """Send a JSON response."""
    send_bytes(to, json.dumps(answer).encode())


def send_bytes(to: BaseHTTPRequestHandler, content: bytes, *encodings: str) -> None:
    to.send_response(200)
    to.send_header("Content-Length", str(len(content)))
    for encoding in encodings:
        to.send_header("Content-Encoding", encoding)
    to.end_headers()
    to.wfile.write(content)


@contextmanager
def studio(serve: Serve) -> Iterator[tuple[Studio, list[Any]]]:
    """Run a server in the place of Label Studio; yield it and its requests."""
    asked: list[Any] = []

    class Machine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            try:
                serve(self)
            except OSError:
                self.close_connection = True  # the site has closed the connection

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *args: object) -> None:
            """Suppress the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Machine)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield Studio(f"http://127.0.0.1:{server.server_port}", TOKEN), asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def queue(tmp_path: Path) -> LabelQueue:
    return make_queue(tmp_path, HEART)


def test_the_token_goes_to_no_machine_that_a_redirection_names(
    queue: LabelQueue, tmp_path: Path
) -> None:
    with studio(lambda to: send(to, {"results": []})) as (other, heard):

        def lead_away(to: BaseHTTPRequestHandler) -> None:
            to.send_response(302)
            to.send_header("Location", f"{other.address}{to.path}")
            to.send_header("Content-Length", "0")
            to.end_headers()

        with (
            studio(lead_away) as (first, _),
            pytest.raises(StorageError, match="302 to GET"),
        ):
            sync(site(queue, tmp_path, first), queue)
    assert heard == []


def test_an_answer_that_is_packed_many_times_is_not_unpacked(
    queue: LabelQueue, tmp_path: Path
) -> None:
    # 64 MiB of zeros in 2 KiB; each further layer adds a factor of hundreds
    content = gzip.compress(gzip.compress(bytes(1 << 26), 1))
    assert len(content) < 1 << 14

    def pack(to: BaseHTTPRequestHandler) -> None:
        send_bytes(to, content, "gzip, gzip")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with studio(pack) as (there, _), pytest.raises(StorageError, match="200 to GET"):
        sync(site(queue, tmp_path, there), queue)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1 << 15  # KiB


def test_an_answer_without_an_end_is_read_to_the_bound(
    queue: LabelQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_studio_server, "LARGEST", 1 << 16)
    sent = []

    def pour(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        while True:
            to.wfile.write(b" " * (1 << 14))
            sent.append(1 << 14)

    with studio(pour) as (there, _), pytest.raises(StorageError, match="200 to GET"):
        sync(site(queue, tmp_path, there), queue)
    assert sum(sent) < 1 << 26  # data in the buffers of the system


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_of_a_byte_now_and_then_is_cut_off(
    queue: LabelQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    monkeypatch.setattr(label_studio_server, "MAX_RESPONSE_SECONDS", 0.2)

    def trickle(to: BaseHTTPRequestHandler) -> None:
        to.wfile.write(begins)
        for _ in range(200):
            to.wfile.write(b"1")
            time.sleep(0.02)

    began = time.monotonic()
    with (
        studio(trickle) as (there, _),
        pytest.raises(StorageError, match="was not reached"),
    ):
        sync(site(queue, tmp_path, there), queue)
    assert time.monotonic() - began < 3


def test_a_list_of_projects_without_an_end_is_left(
    queue: LabelQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_studio_server, "MOST_PAGES", 3)
    more = {"results": [{"id": 1, "title": "another"}], "next": "http://evil.example/"}
    with (
        studio(lambda to: send(to, more)) as (there, asked),
        pytest.raises(StorageError, match="200 to GET /api/projects"),
    ):
        sync(site(queue, tmp_path, there), queue)
    assert len(asked) == 3
    assert all(path.startswith("/api/projects?page=") for path, _ in asked)


def test_annotations_of_other_sites_and_studies_and_of_rows_never_asked_are_no_labels(
    queue: LabelQueue, tmp_path: Path
) -> None:
    folder = site(queue, tmp_path, Studio("", TOKEN))
    study = folder.agreement.digest
    ours = {"study": study, "site": folder.name, "row": 3, "id": "patient-3"}
    choice = {"from_name": "label", "type": "choices", "value": {"choices": ["ill"]}}
    several = [
        ours | {"site": "another"},
        {name: value for name, value in ours.items() if name != "site"},
        ours | {"study": "another"},
        ours | {"id": "patient-1"},  # the row differs from the name
        ours | {"id": "patient-7", "row": 7},  # never asked
        ours | {"id": "../patient-3"},
        {"study": study, "site": folder.name},
    ]
    tasks = [
        {"id": n, "data": data, "annotations": [{"result": [choice], "completed_by": 1}]}
        for n, data in enumerate(several)
    ]
    people = [{"id": 1, "email": "eve@example.org"}]

    def answer(to: BaseHTTPRequestHandler) -> None:
        result: object = {"results": [], "id": 1}
        if "/export" in to.path:
            result = tasks
        if "/users/" in to.path:
            result = people
        send(to, result)

    with studio(answer) as (there, _):
        (tmp_path / SERVER).write_text(f'address = "{there.address}"\ntoken = "{TOKEN}"\n')
        taken = sync(folder, queue).taken
    assert taken.recorded == 0
    assert len(taken.refused) == 4
    assert len(queue.ledger.tasks(state="open")) == 3
