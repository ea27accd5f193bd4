"""Records and tables in formats for other programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fallow.report.export import export_study
from fallow.study.preparation import open_study
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup
from tests.experiment.crash import tiny


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    setup = Setup(tiny(folder), folder / "study")
    cells = list_runs(setup.config, ("random", "ahfal"), [0])
    open_study(setup, cells, "fallow compare tiny", resume=False)
    assert run_study(setup, cells) == []
    return setup.out


def records(study: Path) -> list[dict[str, object]]:
    paths = [
        study / "cells" / strategy / "seed-0" / "records.jsonl"
        for strategy in ("random", "ahfal")
    ]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_csv_file_holds_every_record(study: Path, tmp_path: Path) -> None:
    path = export_study(study, "csv", tmp_path / "all.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    known = records(study)
    assert len(rows) == len(known) == 12
    assert [float(r["accuracy"]) for r in rows] == [r["accuracy"] for r in known]
    assert [json.loads(r["per_class"]) for r in rows] == [r["per_class"] for r in known]


def test_a_parquet_file_holds_every_record(study: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = export_study(study, "parquet", tmp_path / "all.parquet")
    rows = parquet.read_table(path).to_pylist()
    assert [r["accuracy"] for r in rows] == [r["accuracy"] for r in records(study)]
    assert json.loads(rows[0]["versions"])["torch"]


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_what_the_first_record_lacks_has_a_column_too(tmp_path: Path, to: str) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    cells = list_runs(setup.config, ("random",), [0])
    open_study(setup, cells, "", resume=False)
    folder = cells[0].folder(setup.out)
    folder.mkdir(parents=True)
    first = {"cycle": 0, "accuracy": 0.5}
    second = {"cycle": 1, "accuracy": 0.6, "evaluations": 3, "omega": {"a": ["b"]}}
    lines = [json.dumps(record) for record in (first, second)]
    (folder / "records.jsonl").write_text("\n".join(lines))
    read = {"csv": pandas.read_csv, "parquet": pandas.read_parquet}[to]
    table = read(export_study(setup.out, to))
    assert list(table.columns) == ["cycle", "accuracy", "evaluations", "omega"]
    assert table["evaluations"].iloc[1] == 3
    assert json.loads(table["omega"].iloc[1]) == {"a": ["b"]}


@pytest.mark.parametrize(("to", "name"), [("markdown", "table.md"), ("latex", "table.tex")])
def test_the_final_table_is_written_into_the_study(study: Path, to: str, name: str) -> None:
    path = export_study(study, to)
    assert path == study / name
    assert "ahfal" in path.read_text()


def test_a_study_without_records_is_refused(tmp_path: Path) -> None:
    setup = Setup(tiny(tmp_path), tmp_path / "study")
    open_study(setup, list_runs(setup.config, ("random",), [0]), "", resume=False)
    with pytest.raises(ValueError, match="has no records yet; run the study first"):
        export_study(setup.out, "csv")
