"""``fallow`` without arguments and ``fallow new``: next steps and a runnable folder."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import pytest

from fallow.cli import first_steps
from fallow.cli.new_study import COLUMNS, ROWS, SITES, build_table, find_free_name
from tests.cli.conftest import Command


def commands(folder: Path) -> list[str]:
    return [step.command for step in first_steps.suggest_steps(folder)]


def test_fallow_alone_says_how_to_begin_and_ends_well(
    fallow: Command, folder: Path
) -> None:
    output = fallow()
    assert output.code == 0
    assert output.err == ""
    assert "fallow demo" in output.out
    assert "All commands: fallow --help" in output.out


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (["heart.csv"], "fallow init study.toml --data heart.csv --label COLUMN"),
        (["heart.pq"], "fallow init study.toml --data heart.pq --label COLUMN"),
        (["heart.csv", "study.toml"], "fallow compare study.toml --dry-run"),
        (["my rows.xlsx"], "fallow init study.toml --data 'my rows.xlsx' --label COLUMN"),
        (["coordinator.json", "study.toml"], "fallow coordinate status ."),
        (["site.toml", "study.toml"], "fallow site status ."),
        (["ward/site.toml"], "fallow site status ward"),
        (["all/coordinator.json"], "fallow coordinate status all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_first_step_follows_from_what_lies_there(
    files: list[str], first: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert commands(tmp_path)[0] == first


def test_names_that_mean_nothing_and_names_that_do_harm_are_passed_over(
    tmp_path: Path,
) -> None:
    for name in ("pyproject.toml", "notes.txt", "a\x1b[31m.csv"):
        (tmp_path / name).touch()
    assert commands(tmp_path) == []


def test_a_folder_of_a_thousand_files_gives_a_few_hints(tmp_path: Path) -> None:
    for i in range(first_steps.LOOKED_AT + 50):
        (tmp_path / f"{i}.csv").touch()
    assert len(commands(tmp_path)) == first_steps.FEW


@pytest.mark.long
def test_a_new_folder_runs_as_it_is(fallow: Command, folder: Path) -> None:
    output = fallow("new", "begin")
    assert output.code == 0, output.err
    assert "cd begin" in output.out
    assert sorted(path.name for path in (folder / "begin").iterdir()) == [
        "README.md",
        "rows.csv",
        "study-data.html",
        "study.toml",
    ]
    settings = tomllib.loads((folder / "begin" / "study.toml").read_text())
    assert (settings["data"], settings["label"]) == ("rows.csv", "outcome")
    assert settings["reference"] in settings["strategies"]
    quick = ("--seeds", "1", "--jobs", "1", "--set", "rounds=1", "--set", "cycles=1")
    output = fallow("compare", "begin/study.toml", *quick, "--set", "bounds=false")
    assert output.code == 0, output.err


def test_the_example_rows_are_the_same_each_time_and_have_holes() -> None:
    assert build_table() == build_table()
    rows = list(csv.DictReader(build_table().decode().splitlines()))
    assert len(rows) == ROWS
    assert tuple(rows[0]) == COLUMNS
    assert {row["site"] for row in rows} == set(SITES)
    empty = sum(row["pressure"] == "" for row in rows)
    assert 0 < empty < ROWS / 10
    ill = sum(row["outcome"] == "ill" for row in rows)
    assert 0.3 < ill / ROWS < 0.7


def test_what_is_there_already_stays(fallow: Command, folder: Path) -> None:
    before = (folder / "tiny.toml").read_text()
    assert "tiny.toml is a file" in fallow("new", "tiny.toml").says()
    assert "is not empty" in fallow("new", ".").says()
    assert (folder / "tiny.toml").read_text() == before
    output = fallow("new", "quiet", "--json")
    files = ["README.md", "rows.csv", "study-data.html", "study.toml"]
    assert json.loads(output.out)["files"] == files


def test_a_data_sheet_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    page = tmp_path / "heart-data.html"
    assert find_free_name(page) == page
    page.touch()
    (tmp_path / "heart-data-2.html").touch()
    assert find_free_name(page) == tmp_path / "heart-data-3.html"
