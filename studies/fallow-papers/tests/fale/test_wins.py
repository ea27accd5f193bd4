from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from fallow.configs.papers import load_paper_results
from fallow.report.regression import at_labels, checkpoints, is_even, marks
from fallow.study.published import PublishedCounts
from fallow.study.records import StudyRecords
from fallow_papers.fale.wins import (
    WinCounts,
    find_matches,
    matches_by_subject,
    outcome,
    subjects,
    total,
)
from tests.report.conftest import rewrite
from tests.report.reading import read_study
from tests.report.regression import FALE, LOCAL, STRATEGIES, write_regression


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecords:
    return read_study(write_regression(tmp_path_factory.mktemp("wtl") / "a"))


def sums_by(key: Callable[[PublishedCounts], str], method: str) -> dict[str, str]:
    """Return the published wins, ties and losses, summed by ``key``."""
    rows = [
        t
        for t in load_paper_results().published.tallies("fale-table2")
        if t.method == method
    ]
    return {name: str(total(group)) for name, group in groupby(sorted(rows, key=key), key)}


def test_the_printed_rows_of_table_2_sum_to_its_printed_totals() -> None:
    assert sums_by(lambda t: t.rival, "FALE") == {
        "ACS-FW": "90/0/0",
        "BADGE": "79/9/2",
        "BAIT": "90/0/0",
        "CoreSet": "82/8/0",
        "FALE-local": "77/11/2",
        "LCMD": "77/13/0",
        "LoGo": "90/0/0",
        "Random": "90/0/0",
    }
    assert sums_by(lambda t: t.dataset, "FALE-local") == {
        "ct": "51/19/10",
        "diamonds": "47/15/18",
        "kegg undir": "38/20/22",
        "mlr knn": "58/10/12",
        "online video": "54/21/5",
        "protein": "69/1/10",
        "sarcos": "41/26/13",
        "stock": "55/19/6",
        "wecs": "70/1/9",
    }
    assert sums_by(lambda t: t.method, "FALE") == {"FALE": "675/41/4"}
    assert sums_by(lambda t: t.method, "FALE-local") == {"FALE-local": "483/132/105"}
    for method in ("FALE", "FALE-local"):
        rows = [
            t
            for t in load_paper_results().published.tallies("fale-table2")
            if t.method == method
        ]
        assert total(rows).total == 9 * 8 * 10


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        # equal differences for all seeds
        ((1.0, 2.0, 3.0), (2.0, 3.0, 4.0), WinCounts(win=1)),
        ((2.0, 3.0, 4.0), (1.0, 2.0, 3.0), WinCounts(loss=1)),
        ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0), WinCounts(tie=1)),
        # rounding is not a difference
        ((0.3, 0.1 + 0.2, 0.5), (0.1 + 0.2, 0.3, 0.5), WinCounts(tie=1)),
        ((1.0, 1.1, 1.2), (1.9, 2.1, 2.2), WinCounts(win=1)),
        ((1.0, 5.0, 1.0), (2.0, 1.0, 2.0), WinCounts(tie=1)),
        ((1.0, 1.0, 1.0), (2.0, 2.0, 4.0), WinCounts(tie=1)),  # t = 2.5, p = 0.13
        (
            (1.0, 1.0, 1.0, 1.0),
            (2.0, 2.0, 3.0, 4.0),
            WinCounts(win=1),
        ),  # t = 3.66, p = 0.035
        ((1.0,), (2.0,), None),
    ],
)
def test_a_checkpoint_is_won_by_the_lower_error(
    ours: tuple[float, ...], theirs: tuple[float, ...], expected: WinCounts | None
) -> None:
    assert outcome(dict(enumerate(ours)), dict(enumerate(theirs))) == expected


def test_only_seeds_of_both_are_paired() -> None:
    ours = {0: 1.0, 1: 1.0, 2: 9.0}
    theirs = {0: 2.0, 1: 2.0, 3: 0.0}
    assert outcome(ours, theirs) == WinCounts(win=1)
    assert outcome(ours, {3: 1.0, 2: 1.0}) is None


def test_an_accuracy_is_won_by_the_higher_one() -> None:
    ours = {0: 0.5, 1: 0.6}
    theirs = {0: 0.4, 1: 0.5}
    assert outcome(ours, theirs, higher_is_better=True) == WinCounts(win=1)


def test_marks_of_few_cycles_are_all_of_them_and_of_many_every_tenth_part() -> None:
    assert marks(range(6), 10) == (1, 2, 3, 4, 5)
    assert marks(range(0, 101), 10) == tuple(range(10, 101, 10))
    assert marks(range(30, 301, 30), 5) == (60, 120, 180, 240, 300)
    assert marks([0], 10) == (0,)
    assert marks([], 10) == ()


def test_fale_is_the_subject_and_else_the_reference(
    study: StudyRecords, tmp_path: Path
) -> None:
    assert subjects(study) == (FALE, LOCAL)
    other = read_study(write_regression(tmp_path / "b", STRATEGIES[:3], reference="lcmd"))
    assert subjects(other) == ("lcmd",)
    third = read_study(write_regression(tmp_path / "c", STRATEGIES[:3], reference=None))
    assert subjects(third) == ()


def test_a_strategy_that_is_better_for_every_seed_wins_every_checkpoint(
    study: StudyRecords,
) -> None:
    assert checkpoints(study, 10) == (1, 2, 4, 5, 6, 7, 8, 10, 11, 12)
    (fale, local) = find_matches(study)
    assert {str(r.count) for r in fale.rivals} == {"10/0/0"}
    assert {r.strategy: str(r.count) for r in local.rivals} == dict.fromkeys(
        ("random", "lcmd", "random@training=server-solve", FALE), "0/0/10"
    )


def test_equal_labels_are_compared_only_where_the_rivals_curve_reaches(
    study: StudyRecords,
) -> None:
    (fale, local) = find_matches(study)
    level = {r.strategy: r.at_equal_labels.total for r in fale.rivals}
    assert level == {"random": 9, "lcmd": 9, "random@training=server-solve": 9, LOCAL: 10}
    first = next(r for r in local.rivals if r.strategy == "random")
    assert str(first.count) == "0/0/10"
    # cycle 2 of FALE-local is cycle 0 of random
    assert str(first.at_equal_labels) == "1/0/8"


def test_a_curve_is_joined_between_its_labels(study: StudyRecords) -> None:
    assert not is_even(study)
    curve = study.curve("random")
    assert at_labels(study, "random", 60)[1] == curve[1][1]
    assert at_labels(study, "random", 50)[1] == pytest.approx(
        (curve[0][1] + curve[1][1]) / 2
    )
    assert at_labels(study, "random", 39) == at_labels(study, "random", 281) == {}


def test_a_run_in_which_one_strategy_has_only_begun_is_counted_by_the_others(
    tmp_path: Path,
) -> None:
    root = write_regression(tmp_path / "a")
    for path in root.glob("cells/lcmd/*/records.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    study = read_study(root)
    assert len(checkpoints(study, 10)) == 10
    count = {r.strategy: r.count.total for r in find_matches(study)[0].rivals}
    assert (count["lcmd"], count["random"]) == (2, 10)


def test_one_seed_is_no_test(tmp_path: Path) -> None:
    assert find_matches(read_study(write_regression(tmp_path / "a", seeds=1))) == []


def test_studies_share_the_subjects_that_two_of_them_have(
    study: StudyRecords, tmp_path: Path
) -> None:
    other = read_study(write_regression(tmp_path / "b", ("random", FALE)))
    assert list(matches_by_subject([study, other])) == [FALE]
    assert matches_by_subject([study]) == {}


def test_all_strategies_with_first_labels_have_equally_many(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a", STRATEGIES[:3])
    study = read_study(root)
    assert is_even(study)
    block = find_matches(study)[0]
    assert all(r.count == r.at_equal_labels for r in block.rivals)
    rewrite(root, lambda r, _: {"labeled": r["labeled"] + 9 * (r["strategy"] == "lcmd")})
    assert not is_even(read_study(root))
