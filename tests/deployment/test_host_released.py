"""Test how much a value released with noise depends on one label."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deployment.hosts import CLASSES, Leader, agreement, folder, truth

pytest.importorskip("cryptography")


def split(path: Path, other: dict[int, float], *settings: str) -> tuple[list[bool], object]:
    """Return the initial labels used for validation, if annotators give the labels in
    ``other`` to some labeling tasks, and the counts that the site sends."""
    path.mkdir()
    agreed = agreement("strategy=ahfal", "validation=0.5", "initial=8", *settings)
    leader = Leader(folder(path, agreed))
    methods = leader.host._made.methods
    methods["initial"].query(leader.ask("0/initial", "initial"), {"north": 8}, {})
    leader.people("ask", "0/initial", -1, allowed=8)
    for at, question in enumerate(leader.ledger.tasks(state="open")):
        value = (truth(question.row) + other.get(at, 0)) % CLASSES
        leader.ledger.answer(question.row, value, "ann")
    reply = leader.people("close", "0/initial", -1)
    labels = leader.ledger.store.load_labels("north")
    leader.ledger.close()
    return [label.is_validation for label in labels], reply


OTHERS = [{at: float(by)} for at in range(8) for by in (1, 2)]


@pytest.mark.long
def test_at_a_real_site_no_label_says_which_labels_are_held_back_behind_noise(
    tmp_path: Path,
) -> None:
    """Nor does the number of validation labels, which is sent without noise."""
    pytest.importorskip("opendp")
    plain = split(tmp_path / "plain", {}, "privacy.epsilon=0.5")
    for at, other in enumerate(OTHERS):
        assert split(tmp_path / f"other-{at}", other, "privacy.epsilon=0.5") == plain


@pytest.mark.long
def test_without_noise_labels_are_held_back_by_class(tmp_path: Path) -> None:
    plain = split(tmp_path / "plain", {})
    values = [split(tmp_path / f"other-{at}", other) for at, other in enumerate(OTHERS)]
    assert any(other != plain for other in values)


def count_held_of_brought(path: Path, *settings: str) -> list[int]:
    """Return the number of validation labels by class among labels of the site's file."""
    path.mkdir()
    leader = Leader(
        folder(
            path,
            agreement("strategy=ahfal", "validation=0.5", *settings),
            brought=range(12),
        )
    )
    leader.people("hello", "0/hello")
    labels = leader.ledger.store.load_labels("north")
    leader.ledger.close()
    return [sum(e.is_validation for e in labels if e.value == c) for c in range(CLASSES)]


def test_labels_that_were_brought_are_held_back_in_the_same_way(tmp_path: Path) -> None:
    """Two of the four labels of each class are used for validation."""
    pytest.importorskip("opendp")
    assert count_held_of_brought(tmp_path / "plain") == [2, 2, 2]
    behind = count_held_of_brought(tmp_path / "noise", "privacy.epsilon=0.5")
    assert sum(behind) == 6 and behind != [2, 2, 2]
