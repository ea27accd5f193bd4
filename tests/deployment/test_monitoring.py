"""Test ``fallow monitor``: metrics in Prometheus format and external health checks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.coordinator.live import utc
from fallow.deployment.coordinator.program import LOCK, alone
from fallow.deployment.monitoring import SILENT, Health, create_app, metrics_text, watch
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.serve import only_server
from fallow.deployment.site.status import collect_progress
from fallow.storage.files import write_json
from tests.deployment.test_program_cli import RunCommand, begun, fallow

pytest.importorskip("prometheus_client")

__all__ = ["begun", "fallow"]  # fixtures

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
THEN = "2026-11-22T02:44:46+00:00"


def parse(text: bytes) -> Samples:
    """Parse the output with the official Prometheus client."""
    from prometheus_client.parser import text_string_to_metric_families

    values = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            values[sample.name, frozenset(sample.labels.items())] = sample.value
    return values


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the only sample with this name and these labels."""
    (outcome,) = [
        number
        for (item, has), number in samples.items()
        if item == name and set(labels.items()) <= has
    ]
    return outcome


@pytest.fixture
def site(begun: RunCommand, tmp_path: Path) -> Path:
    return tmp_path / "north"


def test_the_metrics_of_a_site_are_the_numbers_of_its_status(site: Path) -> None:
    standing = collect_progress(SiteFolder.open(site))
    samples = parse(metrics_text(watch(site)))
    assert value(samples, "fallow_healthy", site="north") == 0
    assert value(samples, "fallow_labels_asked_total") == standing["asked"]
    assert value(samples, "fallow_epsilon_spent") == standing["epsilon"]
    for state in ("asked", "answered", "declined", "conflicts", "open"):
        assert value(samples, "fallow_labels", state=state) == standing["labels"][state]


def test_a_site_is_well_while_a_process_serves_it(site: Path, fallow: RunCommand) -> None:
    code, _, err = fallow("monitor", str(site), "--check")
    assert (code, err) == (1, "error: no process runs site north\n")
    folder = SiteFolder.open(site)
    with only_server(folder):
        write_json(site / "live.json", {"pid": 17, "problem": None})
        code, out, _ = fallow("monitor", str(site), "--check")
        assert (code, out) == (0, "site north runs in process 17\n")
        write_json(site / "live.json", {"pid": 17, "problem": "nothing answers at a:1"})
        code, _, err = fallow("monitor", str(site), "--check")
        assert (code, err) == (1, "error: site north: nothing answers at a:1\n")


@pytest.fixture
def coordinator(begun: RunCommand, tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is in use by this process."""
    folder = tmp_path / "study"
    with alone(folder):
        assert (folder / LOCK).exists()
        yield folder


def tell(folder: Path, updated: float, **sites: object) -> None:
    counts = {"asked": 120, "answered": 98, "declined": 10, "open": 11, "conflicts": 1}
    north = {"online": True, "awaited": THEN, "seen": THEN, "labels": counts}
    south = {"online": False, "awaited": None}
    state = {"state": "running", "phase": "labeling", "cycle": 2, "refusals": []}
    state |= {"updated": utc(updated), "sites": {"north": north, "south": south}}
    write_json(folder / "live.json", state | sites)


def test_a_coordinator_that_hangs_is_not_well_when_the_clock_is_set_back(
    coordinator: Path,
) -> None:
    tell(coordinator, time.time() + SILENT / 2)
    assert watch(coordinator).check().is_well
    tell(coordinator, time.time() + 2 * SILENT)
    health = watch(coordinator).check()
    assert not health.is_well
    assert "the clock was set back" in health.reason


def test_the_metrics_of_a_coordinator_say_who_is_there_and_who_is_awaited(
    coordinator: Path,
) -> None:
    tell(coordinator, time.time())
    samples = parse(metrics_text(watch(coordinator)))
    assert value(samples, "fallow_healthy") == 1
    assert value(samples, "fallow_phase", phase="labeling") == 1
    assert value(samples, "fallow_cycle") == 2
    assert value(samples, "fallow_waiting_sites") == 1
    assert value(samples, "fallow_site_online", site="north") == 1
    assert value(samples, "fallow_site_online", site="south") == 0
    assert value(samples, "fallow_labels", site="north", state="answered") == 98


def test_a_coordinator_that_hangs_is_not_well_and_a_finished_one_is(
    coordinator: Path,
) -> None:
    tell(coordinator, time.time())
    assert watch(coordinator).check().is_well
    tell(coordinator, time.time() - SILENT - 60)
    health = watch(coordinator).check()
    assert not health.is_well
    assert "has not responded for" in health.reason
    tell(coordinator, time.time() - SILENT - 60, state="finished")
    assert watch(coordinator).check().is_well


def test_a_state_that_no_coordinator_wrote_is_no_health_and_no_number(
    coordinator: Path,
) -> None:
    tell(coordinator, time.time(), cycle="2")
    health = watch(coordinator).check()
    assert not health.is_well
    assert "cycle is '2'; it must be a whole number" in health.reason
    samples = parse(metrics_text(watch(coordinator)))
    assert value(samples, "fallow_healthy") == 0
    assert "fallow_waiting_sites" not in {name for name, _ in samples}


def test_a_coordinator_that_has_ended_is_not_well(
    begun: RunCommand, tmp_path: Path
) -> None:
    health = watch(tmp_path / "study").check()
    assert (health.is_well, "no coordinator runs" in health.reason) == (False, True)


def test_before_a_run_there_is_nothing_to_count_and_that_is_no_error(
    begun: RunCommand, tmp_path: Path
) -> None:
    samples = parse(metrics_text(watch(tmp_path / "study")))
    assert "fallow_waiting_sites" not in {name for name, _ in samples}


def test_it_answers_by_its_own_address_alone(site: Path) -> None:
    pytest.importorskip("httpx")
    testing = pytest.importorskip("starlette.testclient")
    app = create_app(watch(site), 9464)
    client = testing.TestClient(app, base_url="http://127.0.0.1:9464")
    assert client.get("/healthz").status_code == 503
    assert client.get("/metrics").text.startswith("# HELP fallow_healthy")
    other = client.get("/metrics", headers={"host": "evil.example:9464"})
    assert other.status_code == 421
    assert "fallow_healthy" not in other.text


@dataclass
class CountedFolder:
    checks: int = 0

    def check(self) -> Health:
        self.checks += 1
        return Health(True, "it runs")

    def collect(self) -> list[Any]:
        return []


def test_a_website_under_another_name_starts_no_check() -> None:
    pytest.importorskip("httpx")
    testing = pytest.importorskip("starlette.testclient")
    watched = CountedFolder()
    app = create_app(watched, 9464)
    assert testing.TestClient(app, "http://evil.example").get("/healthz").status_code == 421
    assert watched.checks == 0
    assert testing.TestClient(app, "http://127.0.0.1:9464").get("/healthz").is_success
    assert watched.checks == 1


def test_a_folder_of_nobody_is_one_sentence(fallow: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = fallow("monitor", "empty")
    assert code == 2
    assert "neither the folder of a site nor that of a coordinator" in err


@pytest.mark.long
@pytest.mark.processes
def test_the_command_serves_until_ctrl_c(site: Path) -> None:
    command = [sys.executable, "-m", "fallow", "monitor", str(site), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        base = address.removesuffix("/healthz")
        with urllib.request.urlopen(f"{base}/metrics") as answer:  # noqa: S310 - this machine
            samples = parse(answer.read())
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert value(samples, "fallow_healthy", site="north") == 0
    assert process.returncode == 0
    once = subprocess.run(
        [*command[:4], str(site), "--once"], capture_output=True, check=True
    )
    assert parse(once.stdout).keys() == samples.keys()
    assert json.dumps(sorted(name for name, _ in samples)).count("fallow_labels") == 6
