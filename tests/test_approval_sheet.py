"""docs/approval-sheet.md agrees with the code and fits on one page."""

from __future__ import annotations

import re
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest

from fallow.cli.label import PORT as PAGE
from fallow.cli.monitor import monitor
from fallow.deployment.site.attack import FILE as ATTACK
from fallow.deployment.site.host import FEATURES
from fallow.deployment.site.refusals import EARLIER_LOG, ENTRY, LARGEST_LOG, LOG
from fallow.deployment.site.status import collect_status
from fallow.measurements.meter import Exposure, describe_exposure
from fallow.privacy.settings import Privacy
from fallow.report.own_data import SHEET as DATA
from fallow.settings.spec import Spec
from fallow.transport.address import EVERYWHERE
from fallow.transport.kinds import Https
from fallow_nvflare import NVFlare
from tests.deployment.simulations import TINY, federation
from tests.deployment.test_page_command import make_site

pytest.importorskip("cryptography")
SHEET = Path(__file__).resolve().parents[1] / "docs" / "approval-sheet.md"
WORDS = 700
LINE = 1000
"""Bytes above the first line of an entry in a log."""
BESIDE = (".lock", "-wal", "-shm")
"""Ends of files of a database, and of empty files that lock others."""


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
    own = {LOG, EARLIER_LOG, "releases.log", FEATURES, ATTACK, "live.json", DATA, "audit"}
    assert own <= listed
    written = {file.name for file in site.path.iterdir()}
    assert {name for name in written if not name.endswith(BESIDE)} <= listed


def test_error_texts_have_the_size_of_the_sheet() -> None:
    (megabytes,) = re.findall(r"(\d+) MB at most", section("Storage"))
    of_file = LARGEST_LOG + ENTRY + LINE  # the last entry comes before rotation
    assert 2 * of_file <= int(megabytes) * 10**6


@pytest.mark.long
def test_a_study_changes_no_data_file_and_writes_to_the_folders_of_sites_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.chdir(elsewhere)
    config = replace(
        TINY,
        training=Spec("closed-form"),
        encoder=Spec("fourier"),
        privacy=Privacy(secure_sum=True),
    )
    simulation = federation(tmp_path / "study", config)
    data = [path for path in (tmp_path / "study").iterdir() if path.suffix == ".csv"]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in data]
    assert len(data) == 2 * len(simulation.sites)
    assert simulation.program().go()
    simulation.close()
    for site in simulation.sites.values():
        collect_status(site)
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in data] == before
    drawn = {"matplotlib"}  # cache of the figures in the report of the coordinator
    assert {path.name for path in elsewhere.iterdir()} <= drawn
    folders = {*simulation.sites, "coordinator", "study.toml"}
    top = {path.name for path in (tmp_path / "study").iterdir()}
    assert top == folders | {path.name for path in data}


def test_revocation_is_one_command() -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", section("Revocation"), re.DOTALL)
    assert len(block.splitlines()) == 1


def test_the_sheet_shows_a_sentence_of_the_meter() -> None:
    sent: Exposure = {"numbers": 132608, "largest": 132608, "rows": 24, "values": 13}
    assert f'"{describe_exposure(sent)}"' in SHEET.read_text(encoding="utf-8")
