"""``fallow forecast``: extrapolate the learning curve."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from fallow.cli import main
from tests.cli.conftest import Command, write_inputs

LONG = ("--set", "cycles=4", "--set", "rounds=1", "--set", "budget=0.05")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a study with evaluation sets once."""
    folder = write_inputs(tmp_path_factory.mktemp("evaluated"))
    words = (
        "tiny.toml",
        "--out",
        "study",
        *LONG,
        "--set",
        "evaluation_fraction=0.1",
        "--quiet",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["fallow", "compare", *words])
        with pytest.raises(SystemExit) as left:
            main()
    assert left.value.code == 0
    return folder / "study"


@pytest.fixture
def study(folder: Path, evaluated: Path) -> Path:
    """Copy the study to the current directory."""
    return shutil.copytree(evaluated, folder / "study")


@pytest.mark.long
def test_a_forecast_in_words_as_an_object_and_as_a_picture(
    fallow: Command, study: Path
) -> None:
    output = fallow("forecast", "study", "--more", "20", "--to", "95")
    lines = output.out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("random: Another 20 labels: ")
    assert "95 %" in lines[1]
    details = json.loads(
        fallow("forecast", "study", "--more", "20", "--to", "95", "--json").out
    )
    first = details["forecasts"][0]
    assert (first["strategy"], first["by"]) == ("random", "test")
    assert len(first["labels"]) == 5
    assert first["gain"]["low"] <= first["gain"]["gain"] <= first["gain"]["high"]
    assert first["reach"]["target"] == 0.95
    by_evaluation = fallow(
        "forecast", "study", "--by", "evaluation", "--strategy", "random"
    )
    assert "the evaluation set" in by_evaluation.out
    drawn = fallow("forecast", "study", "--strategy", "random", "--picture", "a.svg")
    assert drawn.out.endswith("Wrote a.svg\n")
    assert (study.parent / "a.svg").read_text().startswith("<?xml")
    page = (study / "report.html").read_text()
    assert "Forecast for more labels" in page
    assert "Evaluation sets: accuracy on unlabeled examples, %" in page


def test_what_cannot_be_forecast_is_said_in_a_sentence(
    fallow: Command, study: Path
) -> None:
    for words, why in (
        (("nowhere",), "nowhere is not a study"),
        (
            ("study", "--strategy", "badge"),
            "has no scores of badge yet; it has random, ahfal",
        ),
        (("study", "--more", "0"), "'--more': 0 is not in the range x>=1"),
        (("study", "--to", "101"), "an accuracy is above 0 and at most 1"),
        (("study", "--picture", "a.png"), "--picture draws one strategy; name it"),
        (
            ("study", "--picture", "a.word", "--strategy", "random"),
            "a.word cannot be drawn",
        ),
    ):
        assert why in fallow("forecast", *words).says(), words


@pytest.mark.long
def test_a_run_that_stopped_says_so_on_its_page(fallow: Command, folder: Path) -> None:
    rule = "when another 1 label brings less than 90 points with 50 % confidence"
    fallow("run", "tiny.toml", "--out", "early", *LONG, "--set", f"stop={rule}", "--quiet")
    page = (folder / "early" / "report.html").read_text()
    assert "random with seed 0 stopped after cycle 3: another 1 labels bring less" in page


def test_advice_in_words_and_as_an_object(fallow: Command, study: Path) -> None:
    ended = fallow("advise", "study")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("From ") and "labels per class" in lines[0]
    assert "trained by closed-form" in " ".join(ended.out.split())
    advice = json.loads(fallow("advise", "study", "--json").out)
    assert advice["strategy"] in lines[0]
    assert advice["trainer"] == "closed-form"
    assert advice["facts"]["sites"] >= 2
    assert " ".join(advice["sentences"]) == " ".join(ended.out.split())


def test_a_folder_that_holds_no_study_is_said(fallow: Command) -> None:
    Path("empty").mkdir()
    ended = fallow("advise", "empty")
    assert ended.code != 0
    assert "study.json" in ended.err or "no study" in ended.err
