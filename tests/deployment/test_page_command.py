"""Test ``fallow label`` as a process: printed address, page and clean exit."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from fallow.cli.app import build_app
from fallow.cli.label import PORT
from fallow.deployment.labeling_page.local_server import listen
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.study_file import write_agreement
from fallow.storage.errors import StorageError
from tests.deployment.agreed import agreed, table
from tests.deployment.label_queues import RUN, ask

pytest.importorskip("cryptography")
WAIT = 120.0


def make_site(folder: Path) -> SiteFolder:
    """Return a site with a labeling task for its third row."""
    write_agreement(folder / "study.toml", agreed())
    data = str(table(folder / "rows.csv"))
    site = SiteFolder.create(
        folder / "SITE", folder / "study.toml", name="north", data=data
    )
    ledger = site.open_ledger()
    ledger.instructions.begin(RUN)
    ask(ledger, (2,))
    ledger.close()
    return site


def make_browser(folder: Path) -> Path:
    """Return a program that replaces the browser and records its arguments."""
    browser = folder / "browser.sh"
    browser.write_text('#!/bin/sh\nprintf "%s" "$*" > "$0.part"; mv "$0.part" "$0.saw"\n')
    browser.chmod(0o700)
    return browser


def wait_for(file: Path) -> str:
    """Return the text of a file once another process has written it."""
    end = time.monotonic() + WAIT
    while not file.exists():
        assert time.monotonic() < end, f"{file} was never written"
        time.sleep(0.05)
    return file.read_text()


@pytest.mark.long
@pytest.mark.processes
def test_the_command_serves_the_page_until_it_is_told_to_end(tmp_path: Path) -> None:
    """The token is not in the arguments of the browser, which other accounts can read."""
    site = make_site(tmp_path)
    browser = make_browser(tmp_path)
    line = [
        sys.executable,
        "-c",
        "from fallow.cli import main; main()",
        "label",
        str(site.path),
    ]
    process = subprocess.Popen(
        [*line, "--annotator", "Ann", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"PYTHONUNBUFFERED": "1", "DISPLAY": ":99", "BROWSER": f"{browser} %s"},
    )
    try:
        assert process.stdout is not None
        output = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", output)
        assert match, output
        with httpx.Client(timeout=WAIT, trust_env=False) as client:
            client.get(match[0])
            assert "Example p3" in client.get(match[0].split("/enter")[0]).text

        started_with = wait_for(tmp_path / "browser.sh.saw")
        assert started_with.startswith("file://")
        assert "token" not in started_with
        way = Path(unquote(urlsplit(started_with).path))
        assert stat.S_IMODE(way.stat().st_mode) == 0o600
        assert stat.S_IMODE(way.parent.stat().st_mode) == 0o700
        assert f'content="0; url={match[0]}"' in way.read_text()

        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=WAIT)
        assert process.returncode == 0 and "All labels are stored" in rest
        assert not way.exists()
    finally:
        process.kill()
        process.wait()


def test_a_name_that_cannot_be_kept_is_refused_at_once(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    done = CliRunner().invoke(
        build_app(),
        ["label", str(site.path), "--annotator", "=cmd", "--no-open", "--port", "0"],
    )
    assert isinstance(done.exception, ValueError) and "is not a valid name" in str(
        done.exception
    )


def test_the_page_has_the_same_port_every_time(tmp_path: Path) -> None:
    """No other test uses this port, so it should be free."""
    site = make_site(tmp_path)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another process uses the port, which is acceptable
            other.bind(("127.0.0.1", PORT))
            other.listen()
        done = CliRunner().invoke(
            build_app(), ["label", str(site.path), "--annotator", "Ann", "--no-open"]
        )
    assert isinstance(done.exception, StorageError)
    assert f"port {PORT} cannot be used" in str(done.exception)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(
            StorageError, match=r"another process uses it, .* --port 0 for any"
        ):
            listen(other.getsockname()[1])
