from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fallow.study.reading import read_study
from fallow.study.records import SQUARED_ERROR
from tests.report.regression import FALE, write_regression


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_study_is_read_whole(study_dir: Path) -> None:
    study = read_study(study_dir)
    assert study.strategies == ("random", "entropy", "ahfal")
    assert study.bounds == ("bound:all-labels",)
    assert len(study.cells) == 24
    assert study.missing == ()
    assert study.damaged == 0


def test_only_final_records_make_the_score_of_a_cycle(study_dir: Path) -> None:
    rows = lines(study_dir / "cells/ahfal/seed-2/records.jsonl")
    expected = fmean(r["accuracy"] for r in rows if r["cycle"] == 2 and r["final"])
    study = read_study(study_dir)
    assert study.final("ahfal")[2] == expected == study.curve("ahfal")[2][2]


def test_fractions_and_areas_follow_the_labels(study_dir: Path) -> None:
    study = read_study(study_dir)
    assert study.fractions("random") == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    curve = [study.curve("random")[c][4] for c in range(3)]
    assert study.areas("random")[4] == pytest.approx(
        (curve[0] / 2 + curve[1] + curve[2] / 2) / 2
    )


def test_an_upper_bound_has_its_own_last_cycle_and_no_area(study_dir: Path) -> None:
    study = read_study(study_dir)
    assert len(study.final("bound:all-labels")) == 6
    assert study.areas("bound:all-labels") == {}


def test_the_partition_of_a_bound_is_not_the_studys(study_dir: Path) -> None:
    for path in study_dir.glob("cells/bound:all-labels/*/partition.json"):
        path.write_text(
            json.dumps({"sites": ["all"], "classes": ["a", "b"], "matrix": [[4, 4]]})
        )
    parts = read_study(study_dir).partitions
    assert {len(p.sites) for p in parts.values()} == {3}


def test_a_cell_that_still_runs_has_no_final_score(study_dir: Path) -> None:
    path = study_dir / "cells/entropy/seed-1/records.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:4]))
    shutil.rmtree(study_dir / "cells/entropy/seed-3")
    study = read_study(study_dir)
    assert study.missing == (("entropy", 1), ("entropy", 3))
    assert set(study.final("entropy")) == {0, 2, 4, 5}
    assert set(study.curve("entropy")[1]) == {0, 1, 2, 4, 5}


def test_a_cycle_with_fewer_counting_rounds_than_elsewhere_is_not_scored(
    study_dir: Path,
) -> None:
    for strategy in ("random", "entropy", "ahfal"):
        for seed in range(6):
            path = study_dir / f"cells/{strategy}/seed-{seed}/records.jsonl"
            rows = [r | {"final": True} for r in lines(path)]
            if (strategy, seed) == ("ahfal", 5):
                rows = rows[:-1]
            path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert 5 not in read_study(study_dir).final("ahfal")


def test_strategies_may_have_other_numbers_of_counting_rounds(study_dir: Path) -> None:
    before = read_study(study_dir).final("random")
    for path in study_dir.glob("cells/ahfal/*/records.jsonl"):
        rows = [r | {"final": True} for r in lines(path)]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    study = read_study(study_dir)
    assert len(study.final("ahfal")) == 6
    assert study.final("random") == before


def test_a_strategy_may_lack_the_first_cycle(tmp_path: Path) -> None:
    study = read_study(write_regression(tmp_path / "a"))
    assert list(study.curve(FALE)) == list(study.labels(FALE)) == list(range(1, 13))
    assert list(study.curve("random")) == list(range(13))
    assert (study.labels(FALE)[12], study.labels("random")[12]) == (240, 280)
    assert study.fractions(FALE)[12] == 240 / 4000
    assert set(study.final(FALE)) == set(study.areas(FALE)) == {0, 1, 2, 3}


def test_curves_without_a_common_range_have_no_area(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a", ("random", FALE), cycles=2)
    assert read_study(root).areas("random") == {}  # 20 and 40 labels against 40 to 80


def test_a_damaged_line_is_skipped_and_counted(study_dir: Path) -> None:
    path = study_dir / "cells/random/seed-0/records.jsonl"
    before = read_study(study_dir).final("random")
    path.write_text(path.read_text() + '{"cycle": 3, "accur')
    study = read_study(study_dir)
    assert study.damaged == 1
    assert study.final("random") == before


def test_errors_are_scored_when_there_is_no_accuracy(study_dir: Path) -> None:
    for path in study_dir.glob("cells/*/*/records.jsonl"):
        rows = [r | {"mse": 1 - r["accuracy"], "accuracy": None} for r in lines(path)]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    study = read_study(study_dir)
    assert study.measure == SQUARED_ERROR
    assert not study.higher_is_better


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a study"):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "damaged"),
        ("[]", "not a study's description"),
        ('{"name": "x"}', "strategies"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(ValueError, match=says):
        read_study(tmp_path)
