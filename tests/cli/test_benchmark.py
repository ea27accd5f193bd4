"""``fallow benchmark`` with a user-defined strategy next to built-in ones."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from fallow.cli import main
from fallow.cli.benchmark import find_rivals
from fallow.study.benchmark import LARGEST_FILE, read_score_file
from tests.cli.conftest import Command

MINE = '''
import fallow as fl
import torch


class First(fl.Strategy):
    """Takes the first rows of each site."""

    contract = fl.Contract(title="First")

    def select(self, view, n):
        return fl.SelectedExamples(torch.arange(n))
'''
TASK = ("--task", "heart", "--rivals", "random", "--seeds", "2", "--jobs", "1", "--json")


def at(data_dir: Path) -> tuple[str, str]:
    return "--data-dir", str(data_dir)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """Run the benchmark of margin and random sampling once; return its folder."""
    folder = tmp_path_factory.mktemp("measured")
    words = (*TASK, "--strategy", "margin", "--out", "one", *at(data_dir))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["fallow", "benchmark", *words])
        string_io = io.StringIO()
        with redirect_stdout(string_io), pytest.raises(SystemExit) as left:
            main()
    assert left.value.code == 0
    (folder / "one.json").write_text(string_io.getvalue())
    return folder


@pytest.mark.long
def test_a_method_is_told_beside_its_rivals(measured: Path) -> None:
    details = json.loads((measured / "one.json").read_text())
    (lines,) = details["tables"].values()
    assert {line["strategy"] for line in lines} == {"random", "margin"}
    (verdict,) = details["verdicts"]
    assert (verdict["strategy"], verdict["rival"], verdict["seeds"]) == (
        "margin",
        "random",
        2,
    )


@pytest.mark.long
def test_failed_runs_are_counted_among_all_runs(fallow: Command) -> None:
    Path("broken.py").write_text(MINE.replace("return", "raise RuntimeError(n)  #"))
    words = ("--task", "digits", "--rivals", "random", "--seeds", "1", "--jobs", "1")
    ended = fallow("benchmark", *words, "--strategy", "broken:First", "--out", "out")
    assert ended.code == 1
    expected = "1 of 2 runs failed; the first was broken:First with seed 0"
    assert expected in ended.says()
    assert set(pd.read_csv("out/scores.csv")["strategy"]) == {"random"}


@pytest.mark.long
def test_a_newcomer_is_added_to_what_was_measured_before(
    fallow: Command, data_dir: Path, measured: Path
) -> None:
    Path("mine.py").write_text(MINE)
    scores_before = measured / "one" / "scores.csv"
    known = ("--against", str(scores_before), "--strategy", "mine:First")
    ended = fallow("benchmark", *TASK, *known, "--out", "two", *at(data_dir))
    assert ended.code == 0, ended.err
    assert [path.name for path in Path("two/heart/cells").iterdir()] == ["mine:First"]
    scores = pd.read_csv("two/scores.csv")
    assert set(scores["strategy"]) == {"random", "margin", "mine:First"}
    before = pd.read_csv(scores_before)
    kept = scores[scores["strategy"] != "mine:First"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before)
    assert "mine:First" in Path("two/benchmark.md").read_text()


@pytest.mark.long
def test_what_was_measured_under_other_settings_is_run_again(
    fallow: Command, data_dir: Path, measured: Path
) -> None:
    scores = pd.read_csv(measured / "one" / "scores.csv")
    scores = scores[scores["strategy"] == "random"].assign(digest="another")
    scores.to_csv("old.csv", index=False)
    known = ("--against", "old.csv", "--strategy", "random", "--out", "two")
    assert fallow("benchmark", *TASK, *known, *at(data_dir)).code == 0
    assert Path("two/heart/cells/random").is_dir()
    assert len(pd.read_csv("two/scores.csv")) == len(scores)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--task", "digit"),
            "'digit' is not a task of the benchmark; did you mean 'digits'?",
        ),
        (("--resume",), "--resume requires the folder of the benchmark"),
        (("--against", "nowhere.csv"), "there is no file nowhere.csv"),
        (
            ("--against", "bad.parquet"),
            "bad.parquet is not a CSV file; give the scores.csv",
        ),
        (("--against", "other.csv"), "other.csv lacks task, digest, strategy"),
        (("--task", "digits", "--strategy", "marginn"), "marginn"),
        (("--task", "digits", "--rivals", ","), "--rivals is empty"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(
    fallow: Command, words: tuple[str, ...], sentence: str
) -> None:
    Path("bad.parquet").write_text("no parquet")
    Path("other.csv").write_text("x\n1\n")
    ended = fallow("benchmark", *words)
    assert ended.code == 2
    assert sentence in ended.says()


def test_a_strategy_of_fallow_is_a_rival_of_a_new_one_alone() -> None:
    strategies = ("random", "typical", "typical_unsure", "mine:First")
    assert find_rivals(strategies, ["mine:First"]) == [*strategies[:3]]
    assert find_rivals(strategies, ["typical_unsure"]) == ["random", "mine:First"]


SCORE = {
    "task": "benchmark/heart",
    "digest": "a" * 16,
    "strategy": "random",
    "seed": 0,
    "cycle": 0,
    "labels": 10.0,
    "accuracy": 0.5,
    "balanced_accuracy": 0.5,
    "worst_class": 0.5,
    "bytes_up": 1.0,
}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([SCORE | {"seed": "[0]"}], "row 1: seed is '[0]'; it must be"),
        ([SCORE | {"seed": 0.5}], "seed is '0.5'; it must be a whole number"),
        ([SCORE, SCORE | {"cycle": "9" * 5000}], "row 2: cycle is '999"),
        ([SCORE | {"digest": None}], "row 1: digest is ''; it must be text of"),
        ([SCORE | {"accuracy": "\x1b[2J"}], "row 1: accuracy is '\\x1b[2J'; it must be"),
        ([SCORE, SCORE], "a cycle of a run twice"),
        ([SCORE | {"accuracy": "nan"}], "accuracy is 'nan'; it must be a finite number"),
        ([SCORE | {"worst_class": float("inf")}], "worst_class is 'inf'; it must be"),
        ([SCORE | {"accuracy": 1e300}], "accuracy is '1e+300'; it must be a finite number"),
        ([SCORE | {"labels": 0.0}], "labels is '0.0'; it must be"),
        ([SCORE | {"strategy": "a\x1b[2J"}], "it must be text of at most 500 characters"),
        ([SCORE | {"strategy": "a" * 501}], "it must be text of at most 500 characters"),
    ],
)
def test_scores_of_others_are_looked_at_before_anything_runs(
    fallow: Command, rows: list[dict[str, object]], sentence: str
) -> None:
    pd.DataFrame(rows).to_csv("theirs.csv", index=False)
    ended = fallow("benchmark", "--task", "heart", "--against", "theirs.csv")
    assert ended.code == 2
    assert sentence in ended.says()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "theirs.csv"
    with file.open("wb") as opened:
        opened.truncate(LARGEST_FILE + 1)  # a gap takes no space
    with pytest.raises(ValueError, match="has more than 16777216 bytes"):
        read_score_file(file)


def test_the_results_page_states_the_digest_of_the_constants_there_are(
    fallow: Command,
) -> None:
    ended = fallow("benchmark", "--constants")
    assert ended.code == 0, ended.err
    assert "typical: " in ended.out
    details = json.loads(fallow("benchmark", "--constants", "--json").out)
    assert details["constants"]["typical"]["neighbors"] == 20
    assert details["constants"]["typical"]["CROWD"] == 1000  # the file of its module
    assert details["digest"] in " ".join(ended.out.split())
    page = Path(__file__).parents[2] / "studies/benchmark.md"
    assert f"`{details['digest']}`" in page.read_text()
    other = json.loads(
        fallow("benchmark", "--constants", "-q", "typical:neighbors=10", "--json").out
    )
    same = json.loads(fallow("benchmark", "--constants", "-q", "typical", "--json").out)
    assert other["digest"] != same["digest"]
