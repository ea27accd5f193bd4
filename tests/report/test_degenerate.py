"""Degenerate runs are flagged at the top of the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.report import tables
from fallow.report.degenerate import (
    describe_baseline,
    describe_convergence,
    ends_diverged,
    find_diverged,
    find_equals,
    find_one_class,
    has_diverged_at,
)
from fallow.report.final_table import final_table
from fallow.report.sentences import summary
from tests.report.conftest import rewrite
from tests.report.reading import read_study
from tests.report.regression import write_regression


def test_a_model_that_predicts_one_class_is_flagged_in_table_and_sentence(
    study_dir: Path,
) -> None:
    def give_one_class(row: dict[str, Any], folder: Path) -> dict[str, Any]:
        if (row["strategy"], row["seed"]) == ("random", 2):
            return {"per_class": [0.0, 1.0, 0.0, None]}
        return {}

    rewrite(study_dir, give_one_class)
    study = read_study(study_dir)
    assert find_one_class(study) == {"random": [2]}
    table = final_table(study)
    assert "random (one class)" in tables.displayed(table).frame()["Strategy"].tolist()
    note = "One class: for at least one seed, the final model predicts the same class"
    assert note in " ".join(tables.footnotes(table))
    assert summary(study, table).startswith(
        "1 run of random ended with a model that predicts only one class"
    )


@pytest.mark.parametrize(
    "per_class",
    [
        [0.0, 0.99, 0.0, 0.0],
        [0.01, 1.0, 0.0, 0.0],
        [1.0, 1.0, 0.0, 0.0],
        [None, 1.0, None, None],
        [0.0, 0.0, 0.0, 0.0],
        None,
    ],
)
def test_other_models_are_not(
    study_dir: Path, per_class: list[float | None] | None
) -> None:
    rewrite(study_dir, lambda *_: {"per_class": per_class})
    assert find_one_class(read_study(study_dir)) == {}


def test_a_study_below_the_majority_class_is_flagged_in_table_and_sentence(
    study_dir: Path,
) -> None:
    rewrite(study_dir, lambda *_: {"majority": 0.999})
    study = read_study(study_dir)
    sentence = (
        "No strategy beats predicting the majority class (99.9 %): the training is the "
        "problem, not the selection."
    )
    assert describe_baseline(study) == sentence
    table = final_table(study)
    assert sentence in tables.footnotes(table)
    assert sentence in summary(study, table)
    rewrite(study_dir, lambda *_: {"majority": 0.01})
    assert describe_baseline(read_study(study_dir)) == ""


@pytest.mark.parametrize(
    ("step", "is_flagged"), [(0.02, True), (0.005, False), (-0.1, False)]
)
def test_a_training_loss_that_still_falls_is_flagged(
    study_dir: Path, step: float, is_flagged: bool
) -> None:
    rewrite(study_dir, lambda row, _: {"training_loss": 0.9 - step * row["round"]})
    study = read_study(study_dir)
    notes = " ".join(tables.footnotes(final_table(study)))
    has_note = (
        "Training has not converged: the training loss of all strategies still decreases by 2 % "
        "of its initial value per round; raise rounds, epochs or lr."
    ) in notes
    assert has_note == is_flagged == bool(describe_convergence(study))


def test_strategies_that_agree_in_every_score_are_flagged(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("random", "entropy", "ahfal"), reference="random")

    def level(row: dict[str, Any], cell: Path) -> dict[str, Any]:
        if row["strategy"] == "ahfal":
            return {}
        return {"accuracy": 0.5 + 0.01 * row["cycle"] + 0.001 * row["seed"]}

    rewrite(root, level)
    study = read_study(root)
    assert find_equals(study) == {"entropy": "random"}
    table = final_table(study)
    assert (
        "entropy (same as random)" in tables.displayed(table).frame()["Strategy"].tolist()
    )
    assert "The scores of random and entropy are identical." in summary(study, table)
    assert "Same as: both strategies have identical scores" in " ".join(
        tables.footnotes(table)
    )


def test_strategies_that_agree_before_anything_is_chosen_alone_are_not(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("random", "entropy"), reference="random", cycles=1)
    rewrite(root, lambda *_: {"accuracy": 0.5})
    assert find_equals(read_study(root)) == {}


def test_one_digit_apart_is_not_the_same(study_dir: Path) -> None:
    assert find_equals(read_study(study_dir)) == {}
    rewrite(study_dir, lambda r, _: {"accuracy": 0.5 + 1e-12 * (r["strategy"] == "ahfal")})
    assert "ahfal" not in find_equals(read_study(study_dir))


def write_diverged(tmp_path: Path, **change: Any) -> Path:
    root = write_regression(tmp_path / "a", ("random", "lcmd"), cycles=3)
    at = ("lcmd", 2, 2)

    def diverge(row: dict[str, Any], folder: Path) -> dict[str, Any]:
        if (row["strategy"], row["seed"], row["cycle"]) == at:
            return change
        return {}

    rewrite(root, diverge)
    return root


@pytest.mark.parametrize(
    "change",
    [{"mse": 10.5}, {"mse": 1e30}, {"diverged": True}, {"mse": None, "diverged": True}],
)
def test_a_run_far_above_the_variance_of_the_targets_has_diverged(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    study = read_study(write_diverged(tmp_path, **change))
    assert find_diverged(study) == {"lcmd": {2: 2}}
    assert has_diverged_at(study, "lcmd", 2)
    assert not has_diverged_at(study, "lcmd", 3)
    assert not ends_diverged(study, "lcmd")


def test_an_error_up_to_ten_times_the_variance_is_only_bad(tmp_path: Path) -> None:
    assert find_diverged(read_study(write_diverged(tmp_path, mse=10.0))) == {}


def test_an_error_in_an_unknown_unit_tells_nothing(tmp_path: Path) -> None:
    assert (
        find_diverged(
            read_study(write_diverged(tmp_path, mse=7855.0, target_variance=None))
        )
        == {}
    )


def test_an_infinite_error_is_diverged_and_no_score(tmp_path: Path) -> None:
    study = read_study(write_diverged(tmp_path, mse=float("inf")))
    assert find_diverged(study) == {"lcmd": {2: 2}}
    assert set(study.curve("lcmd")[2]) == {0, 1, 3}


def test_a_run_that_stopped_because_it_diverged_is_not_missing(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a", ("random", "lcmd"), cycles=3)
    path = root / "cells/lcmd/seed-1/records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()][:2]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert read_study(root).missing == (("lcmd", 1),)
    path.write_text("".join(json.dumps(r | {"diverged": True}) + "\n" for r in rows))
    study = read_study(root)
    assert study.missing == ()
    assert ends_diverged(study, "lcmd")
