"""A person's own data on the command line, from the file to the page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command

DATA = os.environ.get("FALLOW_DATA")


@pytest.mark.skipif(DATA is None, reason="needs the folder of real data, FALLOW_DATA")
def test_four_hospitals_with_holes_run_from_one_command(
    fallow: Command, folder: Path
) -> None:
    """All 920 rows of the heart data take part, as they came: with a number for each patient, with
    texts, and with 1,759 empty cells."""
    import pandas as pd

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
    dry = fallow(*words, *small, "--dry-run")
    assert dry.code == 0, dry
    told = dry.out
    assert "rows: 920 read, all kept" in told and "sites: 4" in told
    assert "left out: patient_no, it names rows (920 different numbers in 920 rows)" in told
    assert "missing cells: 1,759" in told
    done = fallow(*words, *small)
    assert done.code == 0, done
    told = done.out
    assert "column 'patient_no' was left out" in told
    assert "the sites fill missing cells in together" in told
    facts = json.loads(Path("runs/heart/data.json").read_text())
    assert (facts["read"], facts["kept"], len(facts["sites"])) == (920, 920, 4)
    page = Path("runs/heart/report.html").read_text()
    assert "Your data" in page and "hospitals.csv holds 920 rows" in page
    assert "of its cells that are not empty" in page  # what left each site
    # and the model predicts rows with empty cells
    assert fallow("predict", "runs/heart", "hospitals.csv").code == 0
    lines = Path("hospitals-predictions.csv").read_text().splitlines()
    assert len(lines) == 921 and all(line.count(",") == 2 for line in lines)
