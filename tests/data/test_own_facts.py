"""What people are told of their own data before a study starts, and in its report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fallow.cli import main
from fallow.data import open_dataset
from fallow.data.facts import data_lines, describe_data
from fallow.experiment.rows import open_data
from fallow.settings.recipe import Recipe

DATA = os.environ.get("FALLOW_DATA")


def wards(path: Path) -> Path:
    """Rows of three wards: "c" has one row, "d" lacks a feature in its only one; of class "rare"
    there is one."""
    rows = [f"{i * 0.7:.2f},{'ab'[i % 2]},{('no', 'yes')[i // 2 % 2]}" for i in range(40)]
    rows += ["3.3,c,yes", ",d,no", "5.5,a,rare", "6.5,b,", rows[0]]
    path.write_text("\n".join(["dose,ward,y", *rows]) + "\n", encoding="utf-8")
    return path


def test_rows_are_counted_by_site_and_reason_and_what_is_odd_is_said(
    tmp_path: Path,
) -> None:
    path = wards(tmp_path / "wards.csv")
    recipe = Recipe("w", data=str(path), label="y", site="ward", drop_rows=True)
    facts = describe_data(open_data(recipe, 0))
    assert facts is not None
    assert (facts["read"], facts["kept"]) == (45, 43)
    assert facts["lost"] == ["d"]
    assert [(g["why"][:9], g["rows"]) for g in facts["left_out"]] == [
        ("a feature", {"d": 1}),
        ("no label,", {"b": 1}),
    ]
    assert facts["classes"] == {"no": 21, "rare": 1, "yes": 21}
    assert facts["duplicates"] == 1 and facts["crossing"] == 0
    said = " | ".join(facts["warnings"])
    assert "only one row at c: nothing can be chosen there" in said
    assert "d: no row is left" in said
    assert "one label in all of rare: it can be learnt or tested, not both" in said
    shown = "\n".join(data_lines(facts))
    assert "rows: 45 read, 43 kept" in shown and "look at this: only one" in shown
    assert sum(site["kept"] for site in facts["sites"]) == 43


def test_data_that_names_no_sites_is_counted_as_one(tmp_path: Path) -> None:
    facts = describe_data(open_dataset(wards(tmp_path / "w.csv"), label="y"))
    assert facts is not None and [s["site"] for s in facts["sites"]] == [""]
    assert facts["sites"][0]["read"] == 45
    assert [c["name"] for c in facts["columns"] if c["missing"]] == ["dose"]
    assert describe_data(open_dataset("iris")) is None


@pytest.mark.skipif(DATA is None, reason="needs the folder of real data, FALLOW_DATA")
def test_four_hospitals_with_holes_run_from_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All 920 rows of the heart data take part, as they came: with a number for each patient, with
    texts, and with 1,759 empty cells."""
    import pandas as pd

    monkeypatch.chdir(tmp_path)
    found = np.load(Path(str(DATA)) / "heart_disease.npz")
    df = pd.DataFrame(found["X"], columns=found["feature_names"])
    df["sex"] = df["sex"].map({0.0: "female", 1.0: "male"})
    df.insert(0, "patient_no", np.arange(10_000, 10_920))
    df["hospital"] = found["client_names"][found["client"]]
    df["outcome"] = np.where(found["y"] > 0, "sick", "healthy")
    df.to_csv("hospitals.csv", index=False)
    words = ["compare", "hospitals.csv", "--label", "outcome", "--site", "hospital"]
    small = ["-s", "rounds=2", "-s", "cycles=1", "-s", "score_rounds=1", "--seeds", "1"]
    small += [
        "--jobs",
        "1",
        "-q",
        "random,entropy",
        "-s",
        "bounds=false",
        "--out",
        "runs/heart",
    ]
    assert main([*words, *small, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "rows: 920 read, all kept" in told and "sites: 4" in told
    assert "left out: patient_no, it names rows (920 different numbers in 920 rows)" in told
    assert "missing cells: 1,759" in told
    assert main([*words, *small]) == 0
    told = capsys.readouterr().out
    assert "column 'patient_no' was left out" in told
    assert "the sites fill missing cells in together" in told
    facts = json.loads(Path("runs/heart/data.json").read_text())
    assert (facts["read"], facts["kept"], len(facts["sites"])) == (920, 920, 4)
    page = Path("runs/heart/report.html").read_text()
    assert "Your data" in page and "hospitals.csv holds 920 rows" in page
    assert "of its cells that are not empty" in page  # what left each site
    # and the model predicts rows with empty cells
    assert main(["predict", "runs/heart", "hospitals.csv", "-q", "random"]) == 0
    lines = Path("hospitals-predictions.csv").read_text().splitlines()
    assert len(lines) == 921 and all(line.count(",") == 2 for line in lines)
