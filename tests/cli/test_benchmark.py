"""``fallow benchmark`` with a user-defined strategy next to built-in ones."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fallow.cli import main
from fallow.cli.benchmark import _read_scores
from tests.cli.conftest import Command

MINE = '''
import fallow as fl
import torch


class First(fl.Strategy):
    """Takes the first rows of each site."""

    contract = fl.Contract(title="First", keep={"select": "number of selected examples"})

    def select(self, view, n):
        return fl.Picks(torch.arange(n))
'''
TASK = ("--task", "heart", "--rivals", "random", "--seeds", "2", "--jobs", "1", "--json")


def at(data_dir: Path) -> tuple[str, str]:
    return "--data-dir", str(data_dir)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """Run the benchmark of margin and random sampling once; return its folder."""
    folder = tmp_path_factory.mktemp("measured")
    words = (*TASK, "--method", "margin", "--out", "one", *at(data_dir))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["fallow", "benchmark", *words])
        string_io = io.StringIO()
        with redirect_stdout(string_io), pytest.raises(SystemExit) as left:
            main()
    assert left.value.code == 0
    (folder / "one.json").write_text(string_io.getvalue())
    return folder


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


def test_a_newcomer_is_added_to_what_was_measured_before(
    fallow: Command, data_dir: Path, measured: Path
) -> None:
    Path("mine.py").write_text(MINE)
    scores_before = measured / "one" / "scores.parquet"
    known = ("--against", str(scores_before), "--method", "mine:First")
    ended = fallow("benchmark", *TASK, *known, "--out", "two", *at(data_dir))
    assert ended.code == 0, ended.err
    assert [path.name for path in Path("two/heart/cells").iterdir()] == ["mine:First"]
    scores = pd.read_parquet("two/scores.parquet")
    assert set(scores["strategy"]) == {"random", "margin", "mine:First"}
    before = pd.read_parquet(scores_before)
    kept = scores[scores["strategy"] != "mine:First"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before)
    assert "mine:First" in Path("two/benchmark.md").read_text()


def test_what_was_measured_under_other_settings_is_run_again(
    fallow: Command, data_dir: Path, measured: Path
) -> None:
    scores = pd.read_parquet(measured / "one" / "scores.parquet")
    scores = scores[scores["strategy"] == "random"].assign(digest="another")
    scores.to_parquet("old.parquet", index=False)
    known = ("--against", "old.parquet", "--method", "random", "--out", "two")
    assert fallow("benchmark", *TASK, *known, *at(data_dir)).code == 0
    assert Path("two/heart/cells/random").is_dir()
    assert len(pd.read_parquet("two/scores.parquet")) == len(scores)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--task", "digit"),
            "'digit' is not a task of the benchmark; did you mean 'digits'?",
        ),
        (("--resume",), "--resume requires the folder of the benchmark"),
        (("--against", "nowhere.parquet"), "there is no file nowhere.parquet"),
        (("--against", "bad.parquet"), "bad.parquet is not a readable Parquet file"),
        (("--against", "other.parquet"), "other.parquet lacks task, digest, strategy"),
        (("--task", "digits", "--method", "marginn"), "marginn"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(
    fallow: Command, words: tuple[str, ...], sentence: str
) -> None:
    Path("bad.parquet").write_text("no parquet")
    pd.DataFrame({"x": [1]}).to_parquet("other.parquet")
    ended = fallow("benchmark", *words)
    assert ended.code == 2
    assert sentence in ended.says()


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
        ([SCORE | {"seed": [0]}], "seed must contain whole numbers"),
        ([SCORE | {"seed": "0"}], "seed must contain whole numbers"),
        ([SCORE | {"strategy": ["random"]}], "strategy must contain text"),
        ([SCORE | {"digest": None}], "digest must contain text"),
        ([SCORE | {"accuracy": "\x1b[2J"}], "accuracy must contain numbers"),
        ([SCORE, SCORE], "a cycle of a run twice"),
        ([SCORE | {"accuracy": float("nan")}], "accuracy must contain finite numbers"),
        (
            [SCORE | {"worst_class": float("inf")}],
            "worst_class must contain finite numbers",
        ),
        ([SCORE | {"accuracy": 1e300}], "accuracy must contain finite numbers"),
        ([SCORE | {"labels": 0.0}], "labels must contain positive numbers"),
        (
            [SCORE | {"strategy": "a\x1b[2J"}],
            "strategy must contain text of at most 500 characters",
        ),
        (
            [SCORE | {"strategy": "a" * 501}],
            "strategy must contain text of at most 500 characters",
        ),
    ],
)
def test_scores_of_others_are_looked_at_before_anything_runs(
    fallow: Command, rows: list[dict[str, object]], sentence: str
) -> None:
    pd.DataFrame(rows).to_parquet("theirs.parquet")
    ended = fallow("benchmark", "--task", "heart", "--against", "theirs.parquet")
    assert ended.code == 2
    assert sentence in ended.says()


def write_equal_rows(file: Path, n: int) -> None:
    """Write a file of equal scores."""
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, pa.Array] = {}
    for name, cell in SCORE.items():
        code = pa.array(np.zeros(n, dtype=np.int32))
        columns[name] = pa.DictionaryArray.from_arrays(code, pa.array([cell]))
    parquet.write_table(pa.table(columns), file, compression="zstd")


def write_number(value: int, n_bytes: int) -> bytes:
    """Encode a number as in a Parquet footer, with a given number of bytes."""
    twice = 2 * value
    digits = [(twice >> 7 * at) & 127 for at in range(n_bytes)]
    return bytes([128 + digit for digit in digits[:-1]] + digits[-1:])


def test_a_file_of_few_bytes_and_many_rows_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "theirs.parquet"
    write_equal_rows(file, 1_000_001)
    assert file.stat().st_size < 1 << 16
    with pytest.raises(ValueError, match="has 1000001 rows of"):
        _read_scores(file)


def test_a_file_that_says_it_has_one_row_is_not_believed(tmp_path: Path) -> None:
    from pyarrow import parquet

    n = 1_000_001
    file = tmp_path / "theirs.parquet"
    write_equal_rows(file, n)
    whole = file.read_bytes()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # the first is the number of rows of the file; those of columns and groups follow
    output = whole[end:].replace(write_number(n, 3), write_number(1, 3), 1)
    file.write_bytes(whole[:end] + output)
    assert parquet.read_metadata(file).num_rows == 1
    with pytest.raises(ValueError, match="has 1000001 rows of"):
        _read_scores(file)


def test_texts_that_grow_from_one_to_the_next_are_not_read(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    file = tmp_path / "theirs.parquet"
    plain = [name for name in SCORE if name != "strategy"]
    rows = [SCORE | {"cycle": cycle} for cycle in range(3)]
    parquet.write_table(
        pa.Table.from_pylist(rows),
        file,
        use_dictionary=plain,
        column_encoding={"strategy": "DELTA_BYTE_ARRAY"},
    )
    with pytest.raises(ValueError, match="encoding that Fallow does not write"):
        _read_scores(file)


def test_a_file_with_a_gap_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "theirs.parquet"
    with file.open("wb") as opened:
        opened.truncate(2**40)
    with pytest.raises(ValueError, match="has more than 67108864 bytes"):
        _read_scores(file)


def test_the_results_page_states_the_digest_of_the_constants_there_are(
    fallow: Command,
) -> None:
    ended = fallow("benchmark", "--constants")
    assert ended.code == 0, ended.err
    assert "coverage: " in ended.out
    details = json.loads(fallow("benchmark", "--constants", "--json").out)
    assert details["constants"]["coverage"]["width"] == 0.7
    assert details["constants"]["coverage"]["SURE"] == 0.95  # the file of its module
    assert details["digest"] in " ".join(ended.out.split())
    page = Path(__file__).parents[2] / "studies/benchmark.md"
    assert f"`{details['digest']}`" in page.read_text()
    other = json.loads(
        fallow("benchmark", "--constants", "-m", "coverage:width=0.6", "--json").out
    )
    same = json.loads(fallow("benchmark", "--constants", "-m", "coverage", "--json").out)
    assert other["digest"] != same["digest"]
