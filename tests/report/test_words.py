"""The summary of a study in plain sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.report.final_table import final_table
from fallow.report.page import report_html
from fallow.report.sentences import best_of_each_training, describe_labels_to
from fallow.study.reading import read_study
from tests.report.conftest import write_study

CLOSED = "entropy@training=closed-form"


def write_summary(folder: Path) -> str:
    study = read_study(folder)
    return best_of_each_training(study, final_table(study))


def test_the_best_of_each_training_method_is_said_as_it_was_measured(
    make_study: Callable[..., Path],
) -> None:
    folder = make_study(strategies=("random", "ahfal", CLOSED, "bound:all-labels"))
    scores = {row.strategy: row.score for row in final_table(read_study(folder)).rows}
    ahfal = scores["ahfal"]
    closed = scores[CLOSED]
    bound = scores["bound:all-labels"]
    assert ahfal and closed and bound and ahfal.mean > closed.mean
    assert write_summary(folder) == (
        "With 30 % of the examples labeled, the test accuracy of the best strategy of each training "
        f"algorithm is ahfal + FedAvg {ahfal.mean:.1f} %, entropy + closed-form {closed.mean:.1f} %; "
        f"that of FedAvg with all labels is {bound.mean:.1f} %."
    )


def test_nothing_is_said_of_a_study_without_scores(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    write_study(folder, strategies=("random", CLOSED))
    for records in folder.glob("cells/*/*/records.jsonl"):
        records.write_text("")
    assert write_summary(folder) == ""


def test_labels_to_an_accuracy_are_interpolated_and_the_fewest_come_first(
    make_study: Callable[..., Path],
) -> None:
    folder = make_study(strategies=("random", "ahfal", CLOSED, "bound:all-labels"))
    curves = {
        "random": {0: 0.5, 1: 0.7, 2: 0.9},  # after 20, 30 and 40 labels
        "ahfal": {0: 0.5, 1: 0.9, 2: 0.95},
        CLOSED: {0: 0.5, 1: 0.6, 2: 0.79},
    }
    for strategy, scores in curves.items():
        for file in folder.glob(f"cells/{strategy}/*/records.jsonl"):
            records = [json.loads(line) for line in file.read_text().splitlines()]
            for record in records:
                record["labeled"] = 10 * (record["cycle"] + 2)
                record["accuracy"] = scores[record["cycle"]]
            file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    study = read_study(folder)
    table = final_table(study)
    assert describe_labels_to(study, table, 0.8) == (
        "Labels to 80 % accuracy: ahfal + FedAvg 28, random + FedAvg 35, "
        "entropy + closed-form more than 40."
    )
    assert "ahfal + FedAvg at most 20, " in describe_labels_to(study, table, 0.3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategies", "is_said"), [(("random", CLOSED), True), (("random", "entropy"), False)]
)
def test_a_page_says_what_trains_a_strategy_that_names_no_training(
    make_study: Callable[..., Path], strategies: tuple[str, ...], is_said: bool
) -> None:
    html = report_html(
        [
            read_study(
                make_study(strategies=(*strategies, "bound:all-labels"), reference="random")
            )
        ]
    )
    assert "Trained by fedavg of " in html
    assert ("closed-form (ridge) classifier on " in html) == is_said
    assert ("dashed lines are upper bounds of FedAvg" in html) == is_said
