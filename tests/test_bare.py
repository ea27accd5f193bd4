"""What is meant for a borrowed machine runs from a copy of the source, with PyTorch, NumPy, SciPy
and scikit-learn alone (`tests.bare` hides all other packages, and that Fallow is installed)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.experiment.versions import version_of_source

ROOT = Path(__file__).resolve().parents[1]


def run_bare(module: str, *words: str) -> str:
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests" / "bare.py"), module, *words],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder of records, and what was said when they were made and when they were there."""
    out = tmp_path_factory.mktemp("bare")
    words = ("--tiny", "--device", "cpu", "--out", str(out), "fairfal", "dpfl")
    first = run_bare("bench.full_protocol", *words)
    again = run_bare("bench.full_protocol", *words)
    return out, first, again


def test_the_full_protocol_is_rehearsed_on_a_bare_machine(
    rehearsed: tuple[Path, str, str],
) -> None:
    out, first, _ = rehearsed
    assert first.count(": done") == 4
    lines = [*out.glob("*/cells/*/seed-0/records.jsonl")]
    assert len(lines) == 4
    record = json.loads(lines[0].read_text().splitlines()[0])
    assert record["versions"]["device"] == "cpu"
    assert record["versions"]["fallow"] == version_of_source(ROOT)


def test_called_again_it_goes_on_from_the_records_that_are_there(
    rehearsed: tuple[Path, str, str],
) -> None:
    _, _, again = rehearsed
    assert again.count(": done") == 4
    assert "accuracy" not in again  # nothing was trained


def test_its_page_has_measured_and_printed_numbers_side_by_side(
    rehearsed: tuple[Path, str, str],
) -> None:
    out, _, _ = rehearsed
    page = (out / "full-size.md").read_text()
    assert "A rehearsal on few rows: these numbers mean nothing." in page
    assert "| Local | " in page
    (row,) = (line for line in page.splitlines() if line.startswith("| FedAvg |"))
    assert row.endswith("| 1 | 50.93 ± 1.97 |")
    assert "## AHFAL" not in page  # it was not run


@pytest.mark.soak
def test_the_races_of_devices_run_there_and_come_to_equal_weights(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ("--quick", "--device", "cpu", "--precision", "float32", "--out", str(file))
    said = run_bare("bench.device", *words)
    rows = json.loads(file.read_text())
    assert [row["way"] for row in rows] == [
        "plain PyTorch loop",
        "torch.func.vmap",
        "Fallow, steps called",
    ]
    assert all(row["is_same"] and row["images_per_second"] > 0 for row in rows)
    assert "| Fallow, steps called | CPU, 1 threads | float32 |" in said
