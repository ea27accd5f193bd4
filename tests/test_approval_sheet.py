"""docs/approval-sheet.md agrees with the code and fits on one page."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from fallow.cli.label import PORT as PAGE
from fallow.cli.monitor import monitor
from fallow.deployment.site.attack import FILE as ATTACK
from fallow.deployment.site.host import FEATURES
from fallow.deployment.site.refusals import LOG
from fallow.measurements.meter import Exposure, describe_exposure
from fallow.report.own_data import SHEET as DATA
from fallow.transport.address import EVERYWHERE
from fallow.transport.kinds import Https
from fallow_nvflare import NVFlare
from tests.deployment.test_page_command import make_site

pytest.importorskip("cryptography")
SHEET = Path(__file__).resolve().parents[1] / "docs" / "approval-sheet.md"
WORDS = 700


def sheet() -> str:
    return SHEET.read_text(encoding="utf-8")


def section(title: str) -> str:
    (body,) = re.findall(
        rf"^## {title}\n(.*?)(?=^## |\Z)", sheet(), re.MULTILINE | re.DOTALL
    )
    return str(body)


def test_the_sheet_is_one_page() -> None:
    assert len(re.findall(r"\S*\w\S*", sheet())) <= WORDS


def test_the_ports_are_those_of_the_code() -> None:
    ports = set(
        re.findall(r"^\| \S+ \| \S+(?: TCP)? \| (\d+)", section("Ports"), re.MULTILINE)
    )
    listening = {EVERYWHERE, Https.listen, str(NVFlare.nearby)}
    metrics = signature(monitor).parameters["port"].default
    known = {address.rpartition(":")[2] for address in listening} | {
        str(PAGE),
        str(metrics),
    }
    assert ports - {"53"} == known


def test_all_that_a_site_writes_is_listed(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    listed = set(re.findall(r"`([\w.-]+)/?`", section("Storage")))
    assert {LOG, "releases.log", FEATURES, ATTACK, "live.json", DATA, "audit"} <= listed
    written = {file.name for file in site.path.iterdir()}
    assert {
        name for name in written if not name.endswith((".lock", "-wal", "-shm"))
    } <= listed


def test_revocation_is_one_command() -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", section("Revocation"), re.DOTALL)
    assert len(block.splitlines()) == 1


def test_the_sheet_shows_a_sentence_of_the_meter() -> None:
    sent: Exposure = {"numbers": 132608, "largest": 132608, "rows": 24, "values": 13}
    assert f'"{describe_exposure(sent)}"' in SHEET.read_text(encoding="utf-8")
