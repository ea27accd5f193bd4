"""Closed-form classifiers in a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fallow as fl
from fallow.report.closed_form import (
    PenaltiesAtEnd,
    closed_form,
    find_at_end,
    find_unlabeled,
)
from tests.report.conftest import rewrite, write_study
from tests.report.reading import piece, read_study, write_report
from tests.report.test_page import parse_page
from tests.simulations import PLAIN

STRATEGIES = ("random", "entropy")


def write_solved(root: Path, penalty: dict[str, float], **study: Any) -> Path:
    """Write a closed-form study of two seeds with a λ per query in the last cycle."""
    write_study(root, STRATEGIES, seeds=2, reference="random", **study)

    def choose(record: dict[str, Any], folder: Path) -> dict[str, Any]:
        chosen = 0.01
        if record["cycle"] == 2:  # the last
            chosen = penalty[record["strategy"]]
        left_out = 0.5 + 0.1 * record["cycle"] + 0.01 * record["seed"]
        result = {"features": 1024, "penalty": chosen, "temperature": 8.0}
        return {**result, "left_out": left_out}

    rewrite(root, choose)
    return root


def test_the_accuracy_on_rows_left_out_is_shown_for_each_cycle(tmp_path: Path) -> None:
    root = write_solved(tmp_path / "a", {"random": 0.01, "entropy": 0.001})
    shown = piece(closed_form(read_study(root), "a"))
    assert "Leave-one-out accuracy on labeled examples, %" in shown
    rows = [re.sub("<.*?>", " ", row).split() for row in re.findall("<tr.*?</tr>", shown)]
    of_random = next(row for row in rows if row[0] == "random")
    assert of_random == [
        "random",
        "1024",
        "0.01",
        "8",
        *["60.50", "±", "0.71", "70.50", "±", "0.71"],
    ]
    assert "at an end" not in shown
    assert "without a label" not in shown


def test_a_penalty_at_an_end_of_the_grid_is_a_warning(tmp_path: Path) -> None:
    study = read_study(write_solved(tmp_path / "a", {"random": 1e-6, "entropy": 1.0}))
    assert find_at_end(study) == {
        "random": PenaltiesAtEnd(2, 0, 6),
        "entropy": PenaltiesAtEnd(0, 2, 6),
    }
    shown = piece(closed_form(study, "a"))
    assert "λ is at an end of its grid of 1e-06 to 1" in shown
    assert "random (the low end in 2 of 6 classifiers)" in shown
    assert "entropy (the high end in 2 of 6 classifiers)" in shown


def test_a_penalty_that_was_given_is_no_warning(tmp_path: Path) -> None:
    config = {"training": {"name": "closed-form", "fields": {"penalty": 1.0}}}
    root = write_solved(tmp_path / "a", {"random": 1.0, "entropy": 1.0}, config=config)
    assert find_at_end(read_study(root)) == {}


def test_a_limit_of_the_penalty_is_described(tmp_path: Path) -> None:
    root = write_solved(tmp_path / "a", {"random": 0.01, "entropy": 0.01})
    assert "at most 0.3" not in piece(closed_form(read_study(root), "a"))

    def limit(record: dict[str, Any], folder: Path) -> dict[str, Any]:
        return {"penalty_limit": 0.015} if record["strategy"] == "entropy" else {}

    rewrite(root, limit)
    shown = piece(closed_form(read_study(root), "a"))
    assert "λ is at most 0.3 / number of labels" in shown
    assert "fewer than 10 labels per class at the end: entropy." in shown


def test_a_class_that_nobody_has_labeled_is_named(tmp_path: Path) -> None:
    root = write_solved(tmp_path / "a", {"random": 0.01, "entropy": 0.01})

    def forget(record: dict[str, Any], folder: Path) -> dict[str, Any]:
        if (record["strategy"], record["seed"]) == ("random", 1):
            return {"labeled_per_class": [9, 0, 9, 0]}
        return {}

    rewrite(root, forget)
    study = read_study(root)
    assert find_unlabeled(study) == {"random": {1: [1, 3]}}
    shown = piece(closed_form(study, "a"))
    assert "never predicts: random (one and three under seed 1)." in shown


@pytest.mark.long
def test_a_study_of_real_runs_has_the_section(tmp_path: Path) -> None:
    simulation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=4)
    fl.compare(
        simulation,
        ["random"],
        training=PLAIN,
        seeds=1,
        cycles=1,
        out=tmp_path / "a",
        progress=False,
    )
    text = write_report([tmp_path / "a"]).read_text()
    parse_page(text)
    assert "<h3>Closed-form classifiers</h3>" in text
    assert "Leave-one-out accuracy on labeled examples" in text


@pytest.mark.long
def test_a_study_of_trained_models_has_no_such_section(tmp_path: Path) -> None:
    text = write_report([write_study(tmp_path / "a", STRATEGIES, seeds=2)]).read_text()
    assert "Closed-form classifiers" not in text


def test_the_weight_of_unlabeled_examples_and_its_reason_are_stated(
    tmp_path: Path,
) -> None:
    root = write_solved(tmp_path / "a", {"random": 0.01, "entropy": 0.01})

    def choose(record: dict[str, Any], folder: Path) -> dict[str, Any]:
        gain = 0.02 + 0.01 * record["seed"]
        if record["strategy"] == "random":
            return {"unlabeled": 1.0, "unlabeled_gain": gain, "site_prior_gain": gain}
        if record["seed"] == 0:
            return {"unlabeled": 0.0, "unlabeled_gain": 0.0}
        return {"unlabeled": 0.714}

    rewrite(root, choose)
    shown = piece(closed_form(read_study(root), "a"))
    assert (
        "random: 1 in 2 seeds (by cross-validation, +2.5 points in held-out accuracy)"
        in shown
    )
    assert "0.71 in 1 seed (by the number of labels)" in shown
    assert "0 in 1 seed (by cross-validation)" in shown
    assert "class shares of each site, in points" in shown and "random: +2.5." in shown

    root = write_solved(tmp_path / "b", {"random": 0.01, "entropy": 0.01})
    rewrite(root, lambda record, folder: {"unlabeled": 0.0})
    shown = piece(closed_form(read_study(root), "b"))
    assert "0 in 2 seeds (no unlabeled example)" in shown


def test_without_self_training_nothing_is_said_of_it(tmp_path: Path) -> None:
    root = write_solved(tmp_path / "a", {"random": 0.01, "entropy": 0.01})
    assert "self-trained" not in piece(closed_form(read_study(root), "a"))
