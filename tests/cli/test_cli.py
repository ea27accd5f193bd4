"""The command line, used interactively and by programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fallow.core.build import find
from fallow.core.names import OWN
from fallow.settings.classes import packages_of
from tests.cli.conftest import Command

COMPARE = ("compare", "tiny.toml", "--jobs", "1")


@pytest.mark.parametrize("command", ["algorithms", "datasets", "configs"])
def test_lists_are_objects_with_names_for_programs(fallow: Command, command: str) -> None:
    output = fallow(command, "--json")
    rows = json.loads(output.out)
    assert output.code == 0
    assert all(row["name"] for row in rows)
    assert {"algorithms": "ahfal", "datasets": "digits", "configs": "demo"}[command] in {
        row["name"] for row in rows
    }


def test_methods_are_spelled_as_in_the_documents_and_found_by_that_name(
    fallow: Command,
) -> None:
    file = Path(__file__).parents[2] / "docs" / "algorithms.toml"
    documented = tomllib.loads(file.read_text(encoding="utf-8"))
    rows = json.loads(fallow("algorithms", "--json").out)
    assert documented.keys() <= {row["name"] for row in rows}
    codes = json.loads(fallow("algorithms", "--codes", "--json").out)
    assert {row["kind"] for row in codes} == {"code"}
    for row in [*rows, *codes]:
        part = "training" if row["kind"] in ("training", "personal") else "strategy"
        find(packages_of(part), row["name"], OWN)


def test_every_algorithm_is_listed_once(fallow: Command) -> None:
    names = [row["name"] for row in json.loads(fallow("algorithms", "--json").out)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("command", ["algorithms", "datasets", "configs"])
@pytest.mark.parametrize("columns", ["60", "200"])
def test_names_in_lists_are_whole_at_any_width(
    fallow: Command, monkeypatch: pytest.MonkeyPatch, command: str, columns: str
) -> None:
    names = [row["name"] for row in json.loads(fallow(command, "--json").out)]
    monkeypatch.setenv("COLUMNS", columns)
    shown = fallow(command).out.splitlines()
    assert all(
        any(re.match(rf"{re.escape(name)}(\s|$)", line) for line in shown) for name in names
    )


def test_help_and_version_are_there_and_no_option_changes_files_of_a_shell(
    fallow: Command,
) -> None:
    output = fallow("--help")
    assert output.code == 0
    assert "compare" in output.out
    assert "--install-completion" not in output.out
    assert re.fullmatch(r"fallow \S+\n", fallow("--version").out)
    assert "--label" in fallow("compare", "-h").out


def test_the_bare_command_shows_what_there_is(fallow: Command) -> None:
    output = fallow()
    assert (output.code, output.err) == (0, "")
    assert "fallow compare" in output.out


@pytest.mark.long
def test_a_comparison_ends_with_a_table_and_a_page(fallow: Command, folder: Path) -> None:
    output = fallow(*COMPARE, "--out", "study")
    assert (output.code, output.err) == (0, "")
    assert "100%" in output.out
    assert "ahfal" in output.out
    assert output.out.splitlines()[-1] == "Report page: study/report.html"
    assert "best final score" in output.out.splitlines()[-2]
    assert "Hodges-Lehmann" not in output.out  # a column that the terminal omits
    assert "<svg" in (folder / "study" / "report.html").read_text()


@pytest.mark.long
def test_a_resumed_study_does_nothing_twice_and_takes_more(
    fallow: Command, folder: Path
) -> None:
    assert fallow(*COMPARE, "--out", "study").code == 0
    model = folder / "study" / "cells" / "random" / "seed-0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    output = fallow(
        *COMPARE, "--out", "study", "--resume", "--strategy", "entropy", "--seeds", "2"
    )
    assert output.code == 0
    assert model.stat().st_mtime_ns == before
    study = json.loads((folder / "study" / "study.json").read_text())
    assert (study["strategies"], study["seeds"]) == (["random", "ahfal", "entropy"], [0, 1])


def test_a_dry_run_writes_nothing(fallow: Command, folder: Path) -> None:
    before = sorted(folder.iterdir())
    output = fallow(*COMPARE, "--dry-run")
    assert output.code == 0
    assert output.out.startswith(
        "2 strategies (random and ahfal), 1 seed (0), 60 examples at 3 sites by partition "
        "dirichlet (alpha=1.0); trained by fedavg of linear "
    )
    assert "\nYour data: blobs" in output.out
    assert "\n2 runs: " in output.out
    assert output.out.endswith("Nothing was started.\n")
    assert sorted(folder.iterdir()) == before


@pytest.mark.long
def test_a_users_table_is_one_option_away(fallow: Command, folder: Path) -> None:
    words = (
        "--data",
        "patients.csv",
        "--label",
        "sick",
        "--site",
        "ward",
        "--out",
        "study",
    )
    output = fallow(*COMPARE, *words)
    assert output.code == 0, output.err
    assert "column 'kind' contains texts and became 2 one-hot columns" in output.out
    part = json.loads((folder / "study/cells/random/seed-0/partition.json").read_text())
    assert part["sites"] == ["east", "north", "south"]
    page = (folder / "study" / "report.html").read_text()
    assert all(ward in page for ward in part["sites"])
    output = fallow("predict", "study", "patients.csv", "--out", "said.csv")
    assert output.out == "Wrote 60 predictions to said.csv\n"
    head, first, *_ = (folder / "said.csv").read_text().splitlines()
    assert head == "row,prediction,probability,probability:n,probability:y"
    assert first.split(",")[1] in {"n", "y"}


@pytest.mark.long
def test_the_same_table_may_be_named_by_settings(fallow: Command) -> None:
    pairs = ("data=patients.csv", "label=sick", "site=ward")
    output = fallow(
        "run", "tiny.toml", "--out", "s", *(w for p in pairs for w in ("--set", p))
    )
    assert output.code == 0, output.err


@pytest.mark.long
def test_a_recipe_says_which_strategy_runs_by_itself(fallow: Command, folder: Path) -> None:
    (folder / "own.toml").write_text('base = "tiny.toml"\nstrategy = "entropy"\n')
    assert fallow("run", "own.toml", "--out", "a").code == 0
    assert fallow("run", "own.toml", "--out", "b", "--strategy", "margin").code == 0
    assert fallow("run", "own.toml", "--out", "c", "--set", "strategy=random").code == 0
    made = [
        json.loads((folder / k / "study.json").read_text())["strategies"] for k in "abc"
    ]
    assert made == [["entropy"], ["margin"], ["random"]]


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [("--set", "batch_size=8"), ("--strategy", "ifal")],
    ids=["a short name", "a query of networks"],
)
def test_a_file_without_a_training_algorithm_refuses_what_needs_a_network(
    fallow: Command, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "own.toml").write_text('data = "blobs.npz"\nsites = 3\ncycles = 0\n')
    output = fallow("run", "own.toml", *words, "--out", "study")
    assert 'add training="fedavg"' in output.says()
    words = (*words, "--set", "training=fedavg")
    output = fallow("run", "own.toml", *words, "--out", "study")
    assert output.code == 0, output.err
    kept = json.loads((folder / "study" / "study.json").read_text())
    assert kept["config"]["training"]["name"] == "fedavg"


@pytest.mark.long
def test_a_model_in_the_current_directory_is_found(fallow: Command, folder: Path) -> None:
    (folder / "mymodel.py").write_text((Path(__file__).parent / "models.py").read_text())
    output = fallow("run", "tiny.toml", "--set", "model=mymodel:Own", "--out", "study")
    assert output.code == 0, output.err


def test_regression_runs_to_its_page(fallow: Command, folder: Path) -> None:
    words = ("--data", "diabetes", "--set", "partition=iid", "--set", "executor=stacked")
    lr = (
        "--set",
        "training_config.optimizer.lr=0.001",
        "--strategy",
        "random",
        "--seeds",
        "2",
    )
    output = fallow(*COMPARE, *words, *lr, "--out", "study")
    assert output.code == 0, output.err
    assert "squared error" in output.out
    assert "squared error" in (folder / "study" / "report.html").read_text()
    np.savez("new.npz", x=np.zeros((3, 10)))
    assert fallow("predict", "study", "new.npz").out.startswith("Wrote 3 predictions")


@pytest.mark.long
def test_reports_and_exports_are_made_from_folders(fallow: Command, folder: Path) -> None:
    for out, seed in (("a", "0"), ("b", "5")):
        assert fallow("run", "tiny.toml", "--seed", seed, "--out", out).code == 0
    output = fallow("report", "a", "b")
    # on a slow machine, progress lines come before the last line
    assert (
        output.out.splitlines()[-1] == "Report page: report.html"
    )  # files of a and b are kept
    output = fallow("report", "a", "b", "--out", "both.html")
    assert output.out.splitlines()[-1] == "Report page: both.html"
    assert fallow("export", "a").out == "Wrote a/records.csv\n"
    assert fallow("export", "a", "--to", "latex", "--out", "t.tex").out == "Wrote t.tex\n"
    assert "tabular" in (folder / "t.tex").read_text()


def test_the_installed_command_answers(folder: Path) -> None:
    code = "from fallow.cli import main; main()"
    words = [sys.executable, "-c", code, "run", "dmo"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error: 'dmo' is not an experiment configuration; did you mean 'demo'?\n"
    )
