"""`python -m bench.full_protocol`: refusals, and a small version of two studies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.full_protocol import STUDIES, main, run
from fallow.catalog.entries import CIFAR10_BATCHES
from tests.data.published import write_cifar10


def test_it_waits_for_all_parts_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cifar10(tmp_path)
    (tmp_path / CIFAR10_BATCHES[3]).unlink()
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["ahfal", "--data", str(tmp_path), "--device", "cpu", "--out", str(out)])
    assert ended.value.code == 2
    output = capsys.readouterr().err
    missing = "cifar-10-binary.tar.gz"
    assert f"study ahfal needs all of cifar10; not there yet: {missing}; bring" in output
    assert not out.exists()


@pytest.mark.long
def test_a_rehearsal_writes_records_and_a_table_and_goes_on_from_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tiny", "--device", "cpu", "--out", str(tmp_path), "fairfal", "dpfl"]
    assert main(words) == 0
    assert capsys.readouterr().out.count(": done") == 4
    lines = [*tmp_path.glob("*/cells/*/seed-0/records.jsonl")]
    assert len(lines) == 4
    record = json.loads(lines[0].read_text().splitlines()[0])
    assert record["versions"]["device"] == "cpu"

    page = (tmp_path / "full-size.md").read_text()
    assert "A rehearsal on few rows: these numbers mean nothing." in page
    (row,) = (line for line in page.splitlines() if line.startswith("| FedAvg |"))
    assert row.endswith("| 1 | 50.93 ± 1.97 |")
    assert "## AHFAL" not in page  # it was not run

    with pytest.raises(ValueError, match="other settings"):
        run(STUDIES["dpfl"], tmp_path / "dpfl", None, 1)
    capsys.readouterr()
    assert main(words) == 0
    again = capsys.readouterr().out
    assert again.count(": done") == 4
    assert "accuracy" not in again  # nothing was trained
