"""What a dry run counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fallow.lab.cell import Cell, Setup
from fallow.lab.estimate import Estimate, estimate, labelled
from fallow.lab.recipe import Recipe
from fallow.lab.study import study_cells
from tests.lab.crash import left, tiny, work


def test_rows_in_training_are_counted_once_for_a_shared_phase(tmp_path: Path) -> None:
    recipe = tiny(tmp_path)  # 60 rows: 6, 12 and 18 labels in three phases of three rounds
    assert labelled(recipe, 60) == [6, 12, 18]
    setup = Setup(recipe, tmp_path / "study")
    one = estimate(setup, study_cells(recipe, ["random"], [0]), 1)
    two = estimate(setup, study_cells(recipe, ["random", "entropy"], [0]), 2)
    assert (one.runs, one.rows, one.jobs) == (1, 3 * 36, 1)
    assert (two.runs, two.rows, two.jobs) == (2, 3 * 36 + 3 * 30, 2)
    assert one.seconds > 0
    assert not setup.out.exists()


def test_the_upper_bounds_are_counted_as_they_run(tmp_path: Path) -> None:
    recipe = replace(tiny(tmp_path), bounds=("all-labels", "pooled"))
    both = estimate(Setup(recipe, tmp_path), study_cells(recipe, ["random"], [0]), 1)
    assert both.rows == 3 * 36 + 3 * 60 + 3 * 36


@pytest.mark.parametrize("initial", [2, 0.1])
def test_bytes_are_those_of_the_run(tmp_path: Path, initial: float) -> None:
    recipe = replace(tiny(tmp_path), initial=initial)
    setup = Setup(recipe, tmp_path / "study")
    told = estimate(setup, [Cell("random", 0)], 1).bytes
    assert work(setup, Cell("random", 0)) == 0
    last = left(setup, Cell("random", 0)).records[-1]
    assert told == pytest.approx(last["bytes_up"] + last["bytes_down"], rel=0.3)


def test_an_estimate_is_one_sentence() -> None:
    said = Estimate(2, 12345, 75.0, 3_120_000, 1).sentence()
    assert said == (
        "2 runs: 12,345 training rows in all, about 1 min 15 s in 1 process on this machine, "
        "3.1 MB between server and sites. Nothing was started."
    )


def test_labels_per_site_are_counted_at_every_site() -> None:
    assert labelled(Recipe("a", sites=4, initial=5, per_cycle=2, cycles=2), 400) == [20, 28, 36]
