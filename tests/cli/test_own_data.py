"""User data on the command line, from the file to the report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fallow.data.catalog.files import HEART_COLUMNS
from tests.cli.conftest import Command, table

DATA = os.environ.get("FALLOW_DATA")
FEW = ("-s", "encoder=fourier:features=32")  # 512 by default


@pytest.mark.long
@pytest.mark.skipif(DATA is None, reason="needs the folder of real data, FALLOW_DATA")
def test_four_hospitals_with_holes_run_from_one_command(
    fallow: Command, folder: Path
) -> None:
    """Run all 920 examples with patient numbers, text and 1,759 empty cells."""
    import pandas as pd

    parts = []
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        file = Path(str(DATA)) / f"processed.{hospital}.data"
        if not file.is_file():
            pytest.skip(f"{file} is missing: 'fallow datasets heart'")
        part = pd.read_csv(file, names=[*HEART_COLUMNS, "outcome"], na_values="?")
        parts.append(part.assign(hospital=hospital))
    df = pd.concat(parts, ignore_index=True)
    df["sex"] = df["sex"].map({0.0: "female", 1.0: "male"})
    df.insert(0, "patient_no", np.arange(10_000, 10_920))
    df["outcome"] = np.where(df["outcome"] > 0, "sick", "healthy")
    df.to_csv("hospitals.csv", index=False)
    words = ["compare", "hospitals.csv", "--label", "outcome", "--site", "hospital"]
    small = ["-s", "cycles=1", *FEW, "--seeds", "1"]
    small += [
        "--jobs",
        "1",
        "-q",
        "random,entropy",
        "--out",
        "runs/heart",
    ]
    dry = fallow(*words, *small, "--dry-run")
    assert dry.code == 0, dry
    output = dry.out
    assert "rows: 920 read, all kept" in output and "sites: 4" in output
    assert (
        "left out: patient_no, it is an identifier (920 different numbers in 920 rows)"
        in output
    )
    assert output.count("missing cells: 1,759") == 1
    assert output.count("patient_no") == 1, output  # each fact occurs once
    assert "the sites impute empty cells together" in output
    done = fallow(*words, *small)
    assert done.code == 0, done
    output = done.out
    assert "column 'patient_no' was left out" in output
    assert "the sites impute empty cells together" in output
    facts = json.loads(Path("runs/heart/data.json").read_text())
    assert (facts["read"], facts["kept"], len(facts["sites"])) == (920, 920, 4)
    page = Path("runs/heart/report.html").read_text()
    assert "Your data" in page and "hospitals.csv holds 920 rows" in page
    assert "of its non-empty cells" in page  # data sent by each site
    # the model predicts examples with empty cells
    assert fallow("predict", "runs/heart", "hospitals.csv").code == 0
    lines = Path("hospitals-predictions.csv").read_text().splitlines()
    assert len(lines) == 921 and all(line.count(",") == 4 for line in lines)


def numbers(path: Path, gap: int = 0) -> Path:
    """Return 60 regression examples; every ``gap``-th row has an empty cell."""
    lines = ["ward,age,mass,score"]
    for i in range(60):
        age = "" if gap and i % gap == 0 else str(20 + 7 * i % 60)
        lines.append(f"{'ab'[i % 2]},{age},{i * 13 % 31},{(i * 29 % 47) / 4:.2f}")
    path.write_text("\n".join(lines) + "\n")
    return path


SHORT = ["-s", "cycles=1", *FEW, "--seeds", "1", "--jobs", "1"]


@pytest.mark.long
def test_numbers_to_predict_have_strategies_of_their_own(
    fallow: Command, folder: Path
) -> None:
    numbers(folder / "scores.csv")
    words = ["compare", "scores.csv", "--label", "score", "--site", "ward", *SHORT]
    dry = fallow(*words, "--dry-run")
    assert dry.code == 0, dry
    changed = "scores is a regression task: random and badge instead of random and entropy"
    assert changed in dry.out and "--strategy names others" in dry.out
    done = fallow(*words, "--out", "runs/a")
    assert done.code == 0, done
    output = json.loads(Path("runs/a/study.json").read_text())
    assert output["strategies"] == ["random", "badge"]
    assert output["reference"] == "random"
    assert Path("runs/a/data.html").is_file()
    assert "The data sheet is data.html" in Path("runs/a/report.html").read_text()
    one = fallow(
        "run", "scores.csv", "--label", "score", "--site", "ward", *SHORT[:4], "--dry-run"
    )
    assert one.code == 0 and "random" in one.out
    named = fallow(*words, "-q", "random,margin", "--dry-run")
    assert "margin requires classes and scores.csv is a regression task" in named.says()


@pytest.mark.long
@pytest.mark.parametrize("label", ["sick", "score"])
def test_a_table_with_empty_cells_runs_with_no_strategy_named(
    fallow: Command, folder: Path, label: str
) -> None:
    numbers(folder / "scores.csv", gap=7)
    table(folder / "holes.csv", lambda i: "" if i % 7 == 0 else str(20 + 7 * i % 60))
    file = "holes.csv" if label == "sick" else "scores.csv"
    words = ["compare", file, "--label", label, "--site", "ward", *SHORT]
    done = fallow(*words, "--out", "runs/b")
    assert done.code == 0, done
    output = json.loads(Path("runs/b/study.json").read_text())
    assert output["config"]["training"]["name"] == "closed-form"
