"""A received study folder: files that are not part of it are not accessed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.settings.config import ExperimentConfig
from fallow.storage.received import read_regular
from fallow.study.preparation import open_study
from fallow.study.reading import read_study
from fallow.study.study_run import Setup, StudyRun
from tests.report.conftest import write_study

RUN = "cells/random/seed-0"


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """Return a study of one run."""
    return write_study(tmp_path / "sent", ("random",), 1, 1, None)


def _redirect(path: Path, elsewhere: Path) -> None:
    """Replace a file or folder by a link to its copy elsewhere."""
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("name", ["study.json", "cells", RUN, f"{RUN}/records.jsonl"])
def test_a_link_in_a_study_is_not_followed_when_it_is_read(
    name: str, sent: Path, tmp_path: Path
) -> None:
    _redirect(sent / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link"):
        read_study(sent)


@pytest.mark.parametrize("name", ["cells", "cells/random", RUN, "cluster.txt"])
def test_a_study_is_not_resumed_through_a_link(name: str, tmp_path: Path) -> None:
    setup = Setup(ExperimentConfig("tiny"), tmp_path / "study")
    run = StudyRun("random", 0)
    open_study(setup, [run], "fallow compare", resume=False)
    run.folder(setup.out).mkdir(parents=True)
    open_study(setup, [run], "fallow compare", resume=True)
    (setup.out / "cluster.txt").touch()
    _redirect(setup.out / name, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link"):
        open_study(setup, [run], "fallow compare", resume=True)


def test_a_pipe_and_a_file_with_a_gap_are_not_read(sent: Path) -> None:
    records = sent / RUN / "records.jsonl"
    records.unlink()
    os.mkfifo(records)
    with pytest.raises(ValueError, match="is not a file"):
        read_study(sent)
    records.unlink()
    with records.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="more than"):
        read_regular(records, limit=1000)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"strategies": [["random"]]},
            r"strategies.0 is \['random'\]; it must be the name",
        ),
        ({"strategies": [".."]}, r"strategies.0 is '..'; it must be the name of"),
        ({"seeds": ["../../0"]}, "seeds.0 is .*; it must be a whole number, 0 or more"),
        ({"seeds": [True]}, "seeds.0 is True; it must be a whole number"),
        ({"seeds": [10**4000]}, "seeds.0 is beyond all numbers; it must be"),
        (
            {"seeds": list(range(1001)), "strategies": [f"q{n}" for n in range(1000)]},
            "runs",
        ),
        ({"config": ["x"]}, "config"),
        ({"published": "x"}, "published"),
        ({"versions": [1]}, "versions"),
        ({"command": 7}, "command"),
        ({"name": ["x"]}, "name is .*; it must be a text"),
        ({"classes": "ab"}, "classes is 'ab'; it must be a list of texts or none"),
        ({"versions": {"fallow": [1]}}, "versions.fallow is "),
        ({"strategies": "random"}, "strategies is 'random'; it must be a list"),
        ({"strategy": ["random"]}, "strategy is not a field; did you mean 'strategies'"),
        ({"config": {"cycles": "3"}}, "config.cycles is '3'; it must be a whole number"),
        ({"config": {"title": 7}}, "config.title is 7; it must be a text"),
        ({"config": {"training": {"fields": {}}}}, "config.training.name is missing"),
        (
            {"config": {"training": {"name": "x", "fields": 2}}},
            "config.training.fields is 2",
        ),
        (
            {"config": {"partition": {"name": "x", "fields": {"alpha": math.nan}}}},
            "config.partition.fields.alpha is nan; it must be a number",
        ),
        (
            {"config": {"partition": {"name": "x", "fields": {"alpha": 10**400}}}},
            "config.partition.fields.alpha is ",
        ),
        (
            {"config": {"training_config": {"stages": [7]}}},
            "config.training_config.stages.0 is 7",
        ),
        ({"config": {"another": "x" * 10_001}}, "config.another has 10,001 characters"),
        ({"published": {"setting": ""}}, "published.table is missing"),
        (
            {
                "published": {
                    "table": "x",
                    "setting": "",
                    "protocol": "x",
                    "names": {"random": 7},
                }
            },
            "published.names.random is 7; it must be a text",
        ),
    ],
)
def test_a_description_that_no_study_wrote_is_refused(
    change: dict[str, Any], why: str, sent: Path
) -> None:
    study = json.loads((sent / "study.json").read_text())
    (sent / "study.json").write_text(json.dumps(study | change))
    with pytest.raises(ValueError, match=why):
        read_study(sent)


@pytest.mark.parametrize("text", ["[" * 10**6, f'{{"name": {"9" * 5000}}}', "\ud800"])
def test_a_description_that_is_no_json_is_refused_in_a_sentence(
    text: str, sent: Path
) -> None:
    (sent / "study.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(ValueError, match=r"study\.json is damaged"):
        read_study(sent)


def _nest(n: int) -> list[Any]:
    """Return deeply nested lists."""
    nested: list[Any] = []
    for _ in range(n):
        nested = [nested]
    return nested


@pytest.mark.parametrize("n", [60, 900])
def test_lists_in_lists_in_lists_are_read_nowhere(n: int, sent: Path) -> None:
    """Check nesting that JSON's parser accepts and recursive code cannot write."""
    records = sent / RUN / "records.jsonl"
    first, *others = records.read_text().splitlines()
    changed = json.dumps(json.loads(first) | {"notes": {"a": _nest(n)}})
    records.write_text("\n".join([changed, *others]))
    with pytest.raises(
        ValueError, match=r"records\.jsonl, line 1: notes is .* deeply nested lists"
    ):
        read_study(sent)
    study = json.loads((sent / "study.json").read_text())
    (sent / "study.json").write_text(json.dumps(study | {"config": {"extra": _nest(n)}}))
    with pytest.raises(
        ValueError, match=r"study\.json is damaged \(it has too many nested lists"
    ):
        read_study(sent)


SITES = {"a": [1, 2], "b": [0, 4]}
SENT = {
    **{"kind": "relay", "function": "pass", "description": "a model", "bytes": 8},
    **{"bytes_down": 8, "sites": 2, "exchanges": 1},
}
SCORED = {
    "per_site": {"a": 0.5, "b": None},
    "variance": 0.0,
    "accuracy_weighted": 0.5,
    "worst_tenth": 0.5,
    "labeled_per_site": SITES,
    "bytes_down": 8,
}
EVALUATION = {"score": 0.5, "low": 0.4, "high": 0.6, "drawn": 2, "chosen": 2, "rows": 4}


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"evaluation_set": {"score": 0.5}}, "evaluation_set.low is missing"),
        (
            {"evaluation_set": EVALUATION | {"score": "0.5"}},
            "evaluation_set.score is '0.5'; it must be a number or none",
        ),
        (
            {"evaluation_set": EVALUATION | {"per_site": {"a": 3}}},
            "evaluation_set.per_site.a is 3; it must be a table of names and values",
        ),
        ({"revealed": [1]}, "revealed.0 is 1; it must be a table of names and values"),
        ({"revealed": [{"kind": "sum"}]}, "revealed.0.function is missing"),
        (
            {"revealed": [SENT | {"bytes": "8"}]},
            "revealed.0.bytes is '8'; it must be a whole number",
        ),
        (
            {"revealed": [SENT | {"received": {"z": 1}}]},
            "revealed.0.received contains 'z', which",
        ),
        (
            {"per_class": [0.5, "high"]},
            "per_class.1 is 'high'; it must be a number or none",
        ),
        (
            {"labeled_per_class": {"a": 1}},
            "labeled_per_class is {'a': 1}; it must be a list of whole numbers or none",
        ),
        ({"labeled_per_site": {"a": 3}}, "labeled_per_site.a is 3; it must be a list"),
        ({"labeled_per_site": {"a": [1], "b": []}}, "has lists of 0 and 1 numbers"),
        ({"graph": {"a": "b"}}, "graph.a is 'b'; it must be a list"),
        ({"graph": {"a": ["z"]}}, "graph contains 'z', which is not in labeled_per_site"),
        ({"omega": {"a\x1b[2J": 1}}, "omega.a[2J is 1; it must be a list"),
        ({"variance": 3.0, "per_site": None}, "per_site is missing beside variance"),
        ({"versions": {"torch": 2}}, "versions.torch is 2; it must be a text"),
    ],
)
def test_a_wrong_part_of_a_record_is_named_with_its_file_line_and_field(
    part: dict[str, Any], sentence: str, sent: Path
) -> None:
    file = sent / RUN / "records.jsonl"
    lines = file.read_text().splitlines()
    record = json.loads(lines[1]) | {"labeled_per_site": SITES}
    lines[1] = json.dumps(record | part)
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError) as refused:
        read_study(sent)
    message = str(refused.value)
    assert message.startswith(f"{file}, line 2: ")
    assert sentence in message


@pytest.mark.parametrize(
    "part",
    [
        {"per_class": [None, math.nan, 1, 0]},
        SCORED,
        {"revealed": [SENT | {"received": {"a": 1}}]},
        {"evaluation_set": EVALUATION | {"score": None}},
        {"graph": {"a": ["b"]}, "omega": {}},
        {"notes": {"sigma": "what a query likes"}},
    ],
)
def test_a_record_may_have_what_runs_write(part: dict[str, Any], sent: Path) -> None:
    file = sent / RUN / "records.jsonl"
    first, *rest = file.read_text().splitlines()
    record = json.loads(first) | {"labeled_per_site": SITES}
    file.write_text("\n".join([json.dumps(record | part), *rest]))
    study = read_study(sent)
    assert (study.damaged, len(study.cells[0].records)) == (0, 1 + len(rest))


@pytest.mark.parametrize(
    "line",
    [
        lambda record: "[" * 10**6,
        lambda record: f'{{"cycle": {"9" * 5000}}}',
        lambda record: json.dumps(record)[:-1],
    ],
)
def test_a_line_that_is_no_json_is_left_out_and_counted(
    line: Callable[[dict[str, Any]], str], sent: Path
) -> None:
    file = sent / RUN / "records.jsonl"
    good = file.read_text()
    odd = line(json.loads(good.splitlines()[0]))
    file.write_text(f"{good}{odd}\n")
    study = read_study(sent)
    assert study.damaged == 1
    assert len(study.cells[0].records) == len(good.splitlines())


def _change_records(sent: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = sent / RUN / "records.jsonl"
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (
            {"accuracy_weighted": None},
            "line 1: accuracy_weighted is missing beside variance",
        ),
        ({"worst_tenth": None}, "line 1: worst_tenth is missing beside variance"),
        ({"per_site": {"a": None}}, "line 1: per_site has no score beside variance"),
    ],
)
def test_a_mean_over_sites_of_which_none_has_a_score_is_refused(
    part: dict[str, Any], sentence: str, sent: Path
) -> None:
    _change_records(sent, lambda row: row | SCORED)
    read_study(sent)
    _change_records(sent, lambda row: row | SCORED | part)
    with pytest.raises(ValueError, match=rf"records\.jsonl, {sentence}; restore the file"):
        read_study(sent)


def test_a_last_record_that_says_not_what_sites_were_sent_is_refused(sent: Path) -> None:
    _change_records(sent, lambda row: row | SCORED)
    with (sent / RUN / "records.jsonl").open("a") as file:
        file.write(json.dumps({"cycle": 9, "round": 0}) + "\n")
    with pytest.raises(ValueError, match=r"records\.jsonl: labeled_per_site is missing in"):
        read_study(sent)


def test_accuracies_of_another_number_of_classes_are_refused(sent: Path) -> None:
    part = json.loads((sent / RUN / "partition.json").read_text())
    n = len(part["classes"])
    _change_records(sent, lambda row: row | {"per_class": [0.5] * n})
    read_study(sent)
    _change_records(sent, lambda row: row | {"per_class": [0.5] * (n + 1)})
    message = (
        rf"\(per_class in cycle 0\) has {n + 1} classes, and the previous files .* have {n}"
    )
    with pytest.raises(ValueError, match=message):
        read_study(sent)
    (sent / RUN / "partition.json").unlink()
    read_study(sent)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ([[1, 2]], "matrix has 1 rows, and there are 2 sites"),
        ([[1, 2], [3]], "matrix.1 has 1 counts, and there are 2 classes"),
        ([[1, 2], [3, -4]], "matrix.1.1 is -4; it must be a whole number, 0 or more"),
        ([[0, 0], [0, 0]], "matrix contains no example"),
        ([[1, 2], [3, "4"]], "matrix.1.1 is '4'; it must be a whole number"),
        ([[1, 2], [3, 10**20]], "matrix.1.1 is 100000000000000000000; it must be"),
        ("12", "matrix is '12'; it must be a list"),
    ],
)
def test_counts_of_rows_that_no_run_wrote_are_refused(
    matrix: object, sentence: str, sent: Path
) -> None:
    details = {"sites": ["a", "b"], "classes": ["no", "yes"], "matrix": matrix}
    (sent / RUN / "partition.json").write_text(json.dumps(details))
    with pytest.raises(
        ValueError, match=rf"partition\.json: {sentence}.*; restore the file"
    ):
        read_study(sent)
