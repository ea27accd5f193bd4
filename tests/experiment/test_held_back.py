"""Labels reserved for validation: their choice and storage."""

from __future__ import annotations

from pathlib import Path

from fallow.experiment.event_log import EventLog
from fallow.experiment.steps import hold_back
from fallow.sites.store import Label


def test_a_purchase_is_split_by_class_and_a_single_label_trains() -> None:
    bought = [Label(row, float(row % 2), 0) for row in range(10)]
    labels = hold_back(bought, 0.2, True, 0)
    assert [label._replace(is_validation=False) for label in labels] == bought
    assert sorted(label.value for label in labels if label.is_validation) == [0.0, 1.0]
    assert hold_back(labels[:1], 0.9, True, 0) == labels[:1]
    assert hold_back(bought, 0.0, True, 0) == bought
    for n in (2, 3):  # at least one each
        assert (
            0
            < sum(label.is_validation for label in hold_back(bought[:n], 0.01, True, 0))
            < n
        )


def test_held_labels_are_there_after_the_journal_is_opened_again(tmp_path: Path) -> None:
    labels = [Label(0, 1.0, 0, is_validation=True), Label(1, 0.0, 0)]
    event_log = EventLog(tmp_path / "event_log.sqlite")
    event_log.write("a", labels)
    event_log.close()
    again = EventLog(tmp_path / "event_log.sqlite")
    assert again.load_labels("a") == labels
    again.close()
