"""Excess errors: worked examples, paired by seed, and in a regression report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fallow.report.blocks import Note, Table
from fallow.report.regression import excess, excess_across, tally
from fallow.study.reading import StudyRecords, read_study
from tests.report.regression import line, write_regression

ALL = "bound:all-labels"


def write_scores(root: Path, scores: dict[str, dict[int, list[float]]]) -> StudyRecords:
    """Write a study with these errors: strategy -> cycle -> error of each seed."""
    write_regression(root, tuple(scores), seeds=len(scores[ALL][0]), cycles=2)
    for strategy, by_cycle in scores.items():
        for seed in range(len(scores[ALL][0])):
            rows = []
            for cycle, errors in by_cycle.items():
                rows.append({**line(strategy, seed, cycle, 2), "mse": errors[seed]})
            file = root / "cells" / strategy / f"seed-{seed}" / "records.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_study(root)


HAND = {
    "random": {0: [0.6, 0.9, 0.5], 1: [0.55, 0.88, 0.44], 2: [0.51, 0.81, 0.404]},
    "lcmd": {0: [0.6, 0.9, 0.5], 1: [0.525, 0.84, 0.42], 2: [0.5, 0.8, 0.4]},
    ALL: {0: [0.5, 0.8, 0.4]},
}


def test_excess_is_the_part_above_the_fit_with_all_labels_of_the_same_seed(
    tmp_path: Path,
) -> None:
    study = write_scores(tmp_path / "a", HAND)
    result = study.excess("random")
    assert result[0] == pytest.approx({0: 0.2, 1: 0.125, 2: 0.25})
    assert result[1] == pytest.approx(
        {0: 0.1, 1: 0.1, 2: 0.1}
    )  # errors differ, excess does not
    assert result[2] == pytest.approx({0: 0.02, 1: 0.0125, 2: 0.01})
    assert study.excess("lcmd")[2] == pytest.approx({0: 0.0, 1: 0.0, 2: 0.0})


def test_models_that_are_trained_otherwise_have_a_fit_of_their_own_or_none(
    tmp_path: Path,
) -> None:
    own = f"{ALL}@training=server-solve"
    solved = "random@training=server-solve"
    study = write_scores(
        tmp_path / "a", {**HAND, solved: HAND["random"], own: {0: [0.25, 0.4, 0.2]}}
    )
    assert study.full_fit(solved) == own
    assert study.excess(solved)[1] == pytest.approx({0: 1.2, 1: 1.2, 2: 1.2})
    assert study.full_fit("random") == ALL
    assert study.full_fit("random@trainer=10x25") is None
    assert study.excess("random@trainer=10x25") == {}


def test_the_report_of_numbers_has_the_median_and_the_tests(tmp_path: Path) -> None:
    study = write_scores(tmp_path / "a", HAND)
    table, note = excess(study, "a")
    assert isinstance(table, Table)
    assert isinstance(note, Note)
    assert table.header[-1] == "Against random"
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["random"] == ["10.00 %", "1.25 %", "–"]
    assert rows["lcmd"] == ["5.00 %", "0.00 %", "0/3/0"]  # 3 seeds are too few


def test_a_study_without_such_a_fit_has_no_table(tmp_path: Path) -> None:
    study = read_study(write_regression(tmp_path / "a", ("random", "lcmd"), 2, 3))
    assert excess(study, "a") == []


def test_holm_is_over_all_cycles_and_strategies() -> None:
    seeds = range(7)  # the exact test of 7 pairs can reach 1/64
    at = [(0, 1), (0, 2), (1, 1)]
    base = {cycle: dict.fromkeys(seeds, 0.5) for cycle in at}
    less = {cycle: {seed: 0.4 - seed / 100 for seed in seeds} for cycle in at}
    more = {at[0]: {seed: 0.6 + seed / 100 for seed in seeds}}
    alone = tally({"less": {at[0]: less[at[0]]}, "base": base}, "base")
    assert str(alone["less"]) == "1/0/0"
    three = tally({"less": less, "base": base}, "base")
    assert str(three["less"]) == "3/0/0"  # 3/64 is below 0.05
    four = tally({"less": less, "more": more, "base": base}, "base")
    assert str(four["less"]) == "0/3/0"  # 4/64 is not
    assert str(four["more"]) == "0/1/0"
    assert str(tally({"more": more, "base": base}, "base")["more"]) == "0/0/1"


def test_over_studies_every_checkpoint_has_a_row_and_every_pair_a_tally(
    tmp_path: Path,
) -> None:
    studies = [write_scores(tmp_path / name, HAND) for name in ("a", "b")]
    ((title, blocks),) = excess_across(studies, "all")
    assert title == "Excess errors over studies"
    medians, against, _ = blocks
    assert isinstance(medians, Table)
    assert isinstance(against, Table)
    assert medians.rows[0] == ["made", "60", "3", "10.00 %", "5.00 %"]
    assert len(medians.rows) == 4  # two checkpoints of two studies
    assert against.rows == [["random", "–", "0/6/0"], ["lcmd", "0/6/0", "–"]]
    assert excess_across(studies[:1], "all") == []
