"""Test the folds of labels, which are decided once."""

from __future__ import annotations

from collections import Counter

from fallow.core.view import FOLDS
from fallow.sites.folds import FoldAssignment
from fallow.sites.store import Label


def labels(*values: float) -> list[Label]:
    return [Label(row, value, cycle=0) for row, value in enumerate(values)]


def test_folds_are_even_in_every_class() -> None:
    placed = FoldAssignment(0, "a", 3).assign(labels(*23 * [0.0], *7 * [1.0], *40 * [2.0]))
    for value in range(3):
        sizes = Counter(label.fold for label in placed if label.value == value)
        assert set(sizes) == set(range(FOLDS))
        assert max(sizes.values()) - min(sizes.values()) <= 1


def test_training_and_validation_labels_have_even_folds_of_their_own() -> None:
    lines = [
        label._replace(is_validation=label.row % 2 == 0) for label in labels(*20 * [1.0])
    ]
    placed = FoldAssignment(0, "a", 3).assign(lines)
    training = Counter(label.fold for label in placed if not label.is_validation)
    assert set(training.values()) == {2}


def test_more_labels_change_no_earlier_fold() -> None:
    lines = labels(*[float(row % 3) for row in range(40)])
    early = FoldAssignment(0, "a", 3).assign(lines[:11])
    assert FoldAssignment(0, "a", 3).assign(lines)[:11] == early
    later = FoldAssignment(0, "a", 3)
    later.assign(early)
    assert [*early, *later.assign(lines[11:])] == FoldAssignment(0, "a", 3).assign(lines)


def test_all_targets_of_regression_are_of_one_class() -> None:
    placed = FoldAssignment(0, "a", 0).assign(labels(*[0.1 * row for row in range(10)]))
    assert set(Counter(label.fold for label in placed).values()) == {2}


def test_the_hash_decides_between_equal_folds_by_seed_site_and_row() -> None:
    chosen = set()
    for seed in range(20):
        chosen.add(FoldAssignment(seed, "a", 3).assign(labels(1.0))[0].fold)
    assert chosen == set(range(FOLDS))
    alone = [Label(row, 1.0, cycle=0) for row in range(20)]
    by_row = [FoldAssignment(0, "a", 3).assign([label])[0].fold for label in alone]
    assert set(by_row) == set(range(FOLDS))
    assert by_row != [FoldAssignment(0, "b", 3).assign([label])[0].fold for label in alone]


def test_labels_of_a_group_share_a_fold_over_all_purchases() -> None:
    groups = [row % 9 for row in range(60)]
    assignment = FoldAssignment(0, "a", 3, groups)
    placed = assignment.assign(labels(*[float(row % 3) for row in range(25)]))
    more = [Label(row, float(row % 3), cycle=1) for row in range(25, 60)]
    fold_of: dict[int, set[int | None]] = {}
    for label in [*placed, *assignment.assign(more)]:
        fold_of.setdefault(groups[label.row], set()).add(label.fold)
    assert all(len(folds) == 1 for folds in fold_of.values())
    assert set.union(*fold_of.values()) == set(range(FOLDS))
