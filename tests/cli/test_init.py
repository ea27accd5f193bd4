"""``fallow init``: write a configuration for user data that runs unchanged from any folder."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Command

OWN = ("--data", "patients.csv", "--label", "sick")


@pytest.mark.long
def test_the_file_names_the_data_as_it_sees_them_and_runs_from_anywhere(
    fallow: Command, folder: Path
) -> None:
    output = fallow("init", "sub/heart.toml", *OWN, "--site", "ward")
    assert output.code == 0, output.err
    text = (folder / "sub" / "heart.toml").read_text()
    settings = tomllib.loads(text)
    assert settings["data"] == "../patients.csv"
    assert (settings["partition"], settings["sites"]) == ("natural", 0)
    # default of all strategies that declare none
    assert settings["training"] == "closed-form"
    assert settings["strategies"][-1] == settings["reference"] == "margin"
    assert "48 training examples, 12 test examples, 2 classes (n and y), 3 sites" in text
    assert all(" # " in line for line in text.splitlines() if line and line[0] != "#")
    quick = ("--set", "rounds=1", "--set", "cycles=1", "--out", "study")
    output = fallow("run", "sub/heart.toml", *quick)
    assert output.code == 0, output.err
    part = json.loads((folder / "study/cells/random/seed-0/partition.json").read_text())
    assert part["sites"] == ["east", "north", "south"]


def test_without_a_column_of_sites_rows_are_dealt_to_ten(
    fallow: Command, folder: Path
) -> None:
    assert fallow("init", "heart.toml", *OWN, "--quiet").out == ""
    settings = tomllib.loads((folder / "heart.toml").read_text())
    assert (settings["data"], settings["sites"]) == ("patients.csv", 10)
    assert "site" not in settings


@pytest.mark.long
def test_numbers_to_predict_are_asked_for_by_strategies_that_can(
    fallow: Command, folder: Path
) -> None:
    output = fallow("init", "years.toml", "--data", "diabetes", "--json")
    assert json.loads(output.out)["classes"] == []
    assert tomllib.loads((folder / "years.toml").read_text())["data"] == "diabetes"
    quick = ("--seeds", "1", "--jobs", "1", "--set", "rounds=1", "--set", "cycles=1")
    bounds = ("--set", "bounds=false")
    assert fallow("compare", "years.toml", *quick, *bounds, "--out", "s").code == 0


def test_nothing_is_written_over_and_the_name_tells_what_it_is(
    fallow: Command, folder: Path
) -> None:
    before = (folder / "tiny.toml").read_text()
    assert "tiny.toml already exists" in fallow("init", "tiny.toml").says()
    assert (folder / "tiny.toml").read_text() == before
    assert fallow("init", "heart.csv").says() == (
        "heart.csv does not end in .toml; give the study file to write, and your data "
        "with --data"
    )


@pytest.mark.long
def test_a_file_sees_its_data_and_its_base_from_where_it_stands(
    fallow: Command, folder: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "tiny.toml").rename(folder / "sub" / "tiny.toml")
    (folder / "blobs.npz").rename(folder / "sub" / "blobs.npz")
    (folder / "own.toml").write_text('base = "sub/tiny.toml"\n')
    for file in ("sub/tiny.toml", "own.toml"):
        output = fallow("run", file, "--out", f"out-{Path(file).stem}")
        assert output.code == 0, output.err
