from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fallow.report.findings.diverged import ends_diverged, find_diverged, has_diverged_at
from tests.report.conftest import rewrite
from tests.report.reading import read_study
from tests.report.regression import write_regression


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
