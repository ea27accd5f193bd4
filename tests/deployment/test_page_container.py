"""Test the labeling page as deploy/compose.yaml starts it, here as an ordinary process."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from fallow.cli.app import build_app
from fallow.deployment.site.folder import SiteFolder
from tests.deployment.browser import browser_test, chromium
from tests.deployment.test_page_command import WAIT, make_site

pytest.importorskip("cryptography")
COMPOSE = Path(__file__).resolve().parents[2] / "deploy" / "compose.yaml"
OTHER = "127.0.0.2"
"""Another address of this machine, in place of the address of a container."""


def page_command(site: SiteFolder, port: int) -> list[str]:
    """Return the command of the service `north-page` for a local folder and a free port."""
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    details = services["north-page"]
    places = {"/party/study": str(site.path), "8601": str(port)}
    return [places.get(word, word) for word in details["command"]]


def find_free_port() -> int:
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def start(command: list[str]) -> Iterator[str]:
    """Start the command and return the address that it prints."""
    program = [sys.executable, "-c", "from fallow.cli import main; main()"]
    process = subprocess.Popen(
        [*program, *command],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", line)
        assert address, line
        advice = process.stdout.readline()
        port = address[0].partition("/enter")[0].rpartition(":")[2]
        published = f"Publish the port on this machine only: 127.0.0.1:{port}:{port}."
        assert (published in advice) == ("--in-container" in command)
        yield address[0]
    finally:
        process.kill()
        process.communicate()


@browser_test
def test_a_browser_of_the_machine_labels_at_the_published_port(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with start(page_command(site, find_free_port())) as address, chromium() as browser:
        page = browser.new_context().new_page()
        page.set_default_timeout(1000 * WAIT)
        page.goto(address)
        page.locator("input#name").fill("Ann")
        page.locator("input#name").press("Enter")
        page.get_by_role("heading", name="Example p3").wait_for()
        with page.expect_navigation():
            page.locator("button[name=value]").first.click()
    ledger = site.open_ledger()
    try:
        assert ledger.progress().answered == 1
    finally:
        ledger.close()


@pytest.mark.long
@pytest.mark.processes
def test_an_engine_reaches_the_page_and_its_address_alone_opens_nothing(
    tmp_path: Path,
) -> None:
    port = find_free_port()
    site = make_site(tmp_path)
    with start(page_command(site, port)) as address:
        token = address.partition("/enter")[2]
        forwarded = {"Host": f"127.0.0.1:{port}"}
        with httpx.Client(
            base_url=f"http://{OTHER}:{port}", timeout=WAIT, trust_env=False
        ) as client:
            assert client.get("/", headers=forwarded).status_code == 403
            assert client.get(f"/enter{token}").status_code == 421  # under another name
            entered = client.get(f"/enter{token}", headers=forwarded)
            assert entered.status_code < 400


@pytest.mark.long
@pytest.mark.processes
def test_outside_of_a_container_the_page_listens_on_one_address(tmp_path: Path) -> None:
    port = find_free_port()
    site = make_site(tmp_path)
    command = [word for word in page_command(site, port) if word != "--in-container"]
    with start(command), pytest.raises(ConnectionRefusedError):
        socket.create_connection((OTHER, port), timeout=WAIT)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--behind-proxy",), "omit --in-container"),
        (("--port", "0"), "give its number with --port"),
    ],
)
def test_options_that_contradict_a_container_are_refused(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "site.toml").touch()
    done = CliRunner().invoke(
        build_app(), ["label", str(tmp_path), "--in-container", *options]
    )
    assert isinstance(done.exception, ValueError)
    assert sentence in str(done.exception)
