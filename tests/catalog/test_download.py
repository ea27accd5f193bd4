"""Downloads from a server on this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fallow.catalog import Edition, PublishedFile
from fallow.catalog import named as catalog
from fallow.catalog.download import fetch
from fallow.catalog.entries import HEART
from fallow.cli.lists import datasets

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Server of files by path; ``cut`` is the number of bytes after which it breaks off."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.ranges: list[str | None] = []
        self.cut: int | None = None
        self.ignores_ranges = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        if request.path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[request.path])
            request.end_headers()
            return
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        begin = 0
        if wanted and not self.ignores_ranges:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        request.send_response(206 if begin else 200)
        request.send_header("Content-Length", str(len(content) - begin))
        request.end_headers()
        request.wfile.write(content[begin : self.cut])

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    running = Server()
    running.files["/heart.zip"] = CONTENT
    yield running
    running.close()


def publish(
    monkeypatch: pytest.MonkeyPatch, url: str, size: int | None = None, checksum: str = ""
) -> None:
    """Let the dataset heart have one file at an address."""
    file = PublishedFile(name="in/heart.zip", size=size, checksum=checksum, url=url)
    edition = Edition(files=(file,), read=HEART.editions[0].read)
    entry = dataclasses.replace(HEART, editions=(edition,))
    monkeypatch.setitem(catalog.OWN_ENTRIES, "heart", entry)


def names_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_download_is_verified_reported_and_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/heart.zip", len(CONTENT), f"sha256:{SHA256}")
    events: list[tuple[str, int, int | None]] = []
    paths = fetch("heart", tmp_path, lambda *event: events.append(event))
    assert [path.read_bytes() for path in paths] == [CONTENT]
    assert names_in(tmp_path) == ["in/heart.zip"]
    assert events[-1] == ("in/heart.zip", len(CONTENT), len(CONTENT))
    assert fetch("heart", tmp_path) == paths and len(server.ranges) == 1
    paths[0].write_bytes(b"changed")
    with pytest.raises(ValueError, match="its sha256 differs from the published one"):
        fetch("heart", tmp_path)


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_an_interrupted_download_is_continued(
    ignores_ranges: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/heart.zip", len(CONTENT), f"sha256:{SHA256}")
    server.cut = 1000
    server.ignores_ranges = ignores_ranges
    message = "could not be downloaded .*1000 of 10240 bytes.*; run the command again"
    with pytest.raises(OSError, match=message):
        fetch("heart", tmp_path)
    assert names_in(tmp_path) == ["in/heart.zip.part"]
    server.cut = None
    (path,) = fetch("heart", tmp_path)
    assert path.read_bytes() == CONTENT and server.ranges == [None, "bytes=1000-"]


def test_a_file_with_another_checksum_is_removed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    publish(monkeypatch, f"{server.url}/heart.zip", len(CONTENT), f"md5:{md5}")
    server.files["/heart.zip"] = CONTENT[::-1]
    with pytest.raises(ValueError, match=rf"has the md5 \w+, not {md5}, so it is not"):
        fetch("heart", tmp_path)
    assert names_in(tmp_path) == []


def test_a_response_beyond_the_known_size_ends(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/heart.zip", 100)
    with pytest.raises(OSError, match="has more than 100 B, the size of the file"):
        fetch("heart", tmp_path)
    assert names_in(tmp_path) == []


def test_a_file_without_a_published_checksum_must_not_change_after_its_download(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/heart.zip")
    server.cut = 1000
    with pytest.raises(OSError, match="could not be downloaded"):
        fetch("heart", tmp_path)
    assert names_in(tmp_path) == []  # two halves may not fit
    server.cut = None
    (path,) = fetch("heart", tmp_path)
    record = path.with_name("heart.zip.sha256")
    assert record.read_text() == f"{SHA256}  heart.zip\n"
    path.write_bytes(b"changed")
    with pytest.raises(ValueError, match=r"its sha256 differs from the one in heart\.zip"):
        fetch("heart", tmp_path)


def test_a_missing_page_names_the_publisher(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/nowhere.zip")
    with pytest.raises(OSError, match=r"HTTP Error 404.*get the file from .*dataset/45"):
        fetch("heart", tmp_path)


def test_a_redirect_to_plain_http_or_a_file_is_not_followed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/moved.zip")
    server.redirects["/moved.zip"] = f"{server.url}/heart.zip"
    with pytest.raises(OSError, match=r"redirected to http://.*, which is not an https://"):
        fetch("heart", tmp_path)


def test_the_description_of_openml_has_the_address(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{server.url}/api/v1/json/data/1200")

    def describe(content: object) -> None:
        server.files["/api/v1/json/data/1200"] = json.dumps(content).encode()

    secret = tmp_path / "secret"
    secret.write_text("secret")
    for url in (secret.as_uri(), "http://127.0.0.1:9/stock.arff"):
        describe({"data_set_description": {"url": url}})
        message = f"contains {re.escape(url)}, which is not an https:// address"
        with pytest.raises(OSError, match=message):
            fetch("heart", tmp_path)
    describe({"error": "no such data set"})
    with pytest.raises(OSError, match="data/1200 contains no file"):
        fetch("heart", tmp_path)
    assert names_in(tmp_path) == ["secret"]


def test_what_cannot_be_downloaded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="'hart' is not a known dataset"):
        fetch("hart", tmp_path)
    with pytest.raises(ValueError, match="digits cannot be downloaded: it comes with an"):
        fetch("digits", tmp_path)
    monkeypatch.delenv("FALLOW_DATA", raising=False)
    with pytest.raises(ValueError, match="no data folder is set; set --data-dir"):
        fetch("heart")


def test_the_command_prints_the_paths(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(monkeypatch, f"{server.url}/heart.zip", len(CONTENT), f"sha256:{SHA256}")
    datasets(name="heart", data_dir=tmp_path)
    before = capsys.readouterr().out
    assert "missing, 10,240 bytes" in before and f"sha256:{SHA256}" in before
    assert "license: CC BY 4.0" in before and "--fetch" in before
    datasets(name="heart", fetch=True, data_dir=tmp_path)
    assert capsys.readouterr().out.strip() == str(tmp_path / "in" / "heart.zip")
    datasets(name="heart", data_dir=tmp_path)
    assert "present, 10,240 bytes" in capsys.readouterr().out
