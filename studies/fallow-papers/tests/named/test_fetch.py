"""Downloads, with folders in place of the network."""

from __future__ import annotations

import dataclasses
import json
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fallow.cli.lists import datasets
from fallow.data import fetch, load
from fallow_papers.datasets.catalog import ENTRIES
from fallow_papers.datasets.fetch import fetch_file
from fallow_papers.datasets.sources import SOURCES

CT = SOURCES["ct"]
TABLE = "patientId,value0,reference\n" + "".join(
    f"{i % 3},{i / 4},{i}\n" for i in range(20)
)


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a folder that replaces the source of ct, and an empty data folder."""
    there = tmp_path / "there"
    here = tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with zipfile.ZipFile(there / CT.file, "w") as archive:
        archive.writestr(CT.member, TABLE)
    url = (there / CT.file).as_uri()
    move(monkeypatch, "ct", url)
    return there, here


def move(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    """Let the entry of a published table download from another address."""
    moved = dataclasses.replace(SOURCES[name], url=url)
    entry = dataclasses.replace(ENTRIES[name], fetch=partial(fetch_file, moved))
    monkeypatch.setitem(ENTRIES, name, entry)


def test_a_fetched_file_is_the_published_one_with_its_sum_beside_it(
    near: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, here = near
    monkeypatch.setenv("FALLOW_DATA", str(here))
    path = fetch("ct")
    assert path.read_bytes() == (there / path.name).read_bytes()
    record = here / f"{path.name}.sha256"
    assert (
        len(record.read_text().split()[0]) == 64
        and record.read_text().split()[1] == path.name
    )
    assert {file.name for file in here.iterdir()} == {path.name, record.name}
    assert len(load("ct", here).x) == 16
    (there / path.name).unlink()
    datasets(name="ct", data_dir=here)  # existing files are kept
    assert capsys.readouterr().out.strip() == str(path)
    path.write_bytes(b"changed")
    with pytest.raises(
        ValueError, match=r"has changed since its download: .* remove both and download"
    ):
        fetch("ct", here)


def test_a_download_that_fails_leaves_nothing_and_says_what_to_do(
    near: tuple[Path, Path],
) -> None:
    there, here = near
    (there / CT.file).unlink()
    with pytest.raises(
        OSError, match=r"could not be downloaded .*; get it from .*dataset/206 and"
    ):
        fetch("ct", here)
    assert not list(here.iterdir())


def test_a_download_that_breaks_off_is_not_taken_for_the_file(
    near: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaks(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"PK")

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setenv("no_proxy", "*")
    with HTTPServer(("127.0.0.1", 0), Breaks) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        move(monkeypatch, "ct", f"http://127.0.0.1:{server.server_port}/")
        with pytest.raises(OSError, match="was interrupted after 2 of 1000 bytes"):
            fetch("ct", near[1])
        thread.join()
    assert not list(near[1].iterdir())


def test_openml_says_in_a_description_where_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "api" / "v1" / "json"
    folder.mkdir(parents=True)
    (tmp_path / "stock.arff").write_text("@data\n")
    url = (tmp_path / "stock.arff").as_uri()
    description = folder / "1200"
    description.write_text(f'{{"data_set_description": {{"url": "{url}"}}}}')
    move(monkeypatch, "stock", description.as_uri())
    assert fetch("stock", tmp_path).read_text() == "@data\n"
    (tmp_path / "openml_1200.arff").unlink()
    description.write_text('{"error": "no such data set"}')
    with pytest.raises(
        OSError, match=r"the response of .*1200 contains no file.*; get it from .*d/1200"
    ):
        fetch("stock", tmp_path)


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_a_description_from_the_web_names_no_file_of_this_machine_and_no_plain_http(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("@data\n")
    named = (tmp_path / "secret").as_uri()
    if scheme == "http":
        named = "http://127.0.0.1:9/stock.arff"
    output = json.dumps({"data_set_description": {"url": named}})

    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(output.encode())

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setenv("no_proxy", "*")
    with HTTPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/api/v1/json/data/1200"
        move(monkeypatch, "stock", url)
        with pytest.raises(
            OSError, match=rf"contains {scheme}://.*, which is not an https:// address"
        ):
            fetch("stock", tmp_path)
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_what_cannot_be_fetched_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="'cta' is not a known dataset"):
        fetch("cta", tmp_path)
    with pytest.raises(
        ValueError, match="digits cannot be downloaded: it comes with Fallow; available"
    ):
        fetch("digits", tmp_path)
    with pytest.raises(
        ValueError, match="pol cannot be downloaded: put its files there by hand"
    ):
        fetch("pol", tmp_path)
    monkeypatch.delenv("FALLOW_DATA", raising=False)
    with pytest.raises(
        ValueError, match="no data folder is set; set --data-dir or FALLOW_DATA"
    ):
        fetch("ct")
