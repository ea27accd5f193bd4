"""Test how labeling tasks end: cannot tell, undone, withdrawn, expired or closed."""

from __future__ import annotations

import os
import signal

import pytest

from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.sites.store import Label
from tests.deployment.ledgers import RUN, STEP, Open, close, state, values


def test_cannot_tell_costs_leaves_the_pool_and_is_not_replaced(open_ledger: Open) -> None:
    ledger = open_ledger(limit=3)
    assert ledger.answer(2, None, "ann").state == "declined"
    closed = ledger.requests.close(RUN, STEP, lambda labels: labels)
    assert (closed.asked, closed.answered, closed.declined) == (3, 0, 1)
    assert ledger.store.load_labels(
        "north"
    ) == [] and ledger.requests.find_excluded_rows() == [2]
    lines = [SelectedRow(row) for row in (2, 4, 9, 1)]
    assert (
        ledger.requests.ask(RUN, "1/query", cycle=1, allowed=3, deadline=None, rows=lines)
        == 2
    )  # one of 3 is used


def test_a_skip_and_a_reason_survive_a_killed_page(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.close()
    child = os.fork()
    if child == 0:
        try:
            page = open_ledger()
            page.skip(4, "ann")
            page.answer(2, None, "ann", reason="other: shows a form")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    ledger = open_ledger()
    for annotator, row in (("ann", 9), ("bob", 4)):
        task = ledger.load_task(ledger.waiting.find_next(None, annotator))
        assert task is not None and task.row == row
    assert ledger.history(2)[-1].reason == "other: shows a form"
    close(ledger)
    assert ledger.requests.find_excluded_rows() == [2]


def test_a_row_that_nobody_could_tell_comes_back_with_a_label(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, None, "ann")
    close(ledger)
    ledger.answer(2, 1, "ann")
    assert (
        close(ledger, "1/query") == [Label(2, 1.0, 0)]
        and ledger.requests.find_excluded_rows() == []
    )


def test_a_label_becomes_cannot_tell_and_trains_no_more(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    close(ledger)
    ledger.answer(2, None, "ann")
    assert close(ledger, "1/query") == [] and ledger.requests.find_excluded_rows() == [2]


def test_a_person_takes_back_their_latest_answer_and_then_the_one_before(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(4, 1, "ann")
    ledger.answer(2, 1, "ann")
    ledger.answer(2, 0, "bob")
    back = ledger.take_back("ann")
    assert back is not None and (back.row, back.state, back.value) == (2, "answered", 0.0)
    again = ledger.take_back("ann")
    assert again is not None and (again.row, again.state) == (4, "open")
    assert ledger.take_back("ann") is None
    assert [answer.kind for answer in ledger.history(4)] == ["answer", "taken back"]


def test_an_answer_that_has_entered_training_is_not_taken_back(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    close(ledger)
    assert ledger.take_back("ann") is None
    ledger.answer(2, 0, "ann")  # a correction that is not used yet can be undone
    back = ledger.take_back("ann")
    assert back is not None and back.value == 1.0


def test_a_withdrawn_sample_takes_no_labels_and_is_never_asked_again(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(4, 1, "ann")
    for row in (4, 2, 7):
        ledger.withdraw(row, "ann", "consent withdrawn")
    assert (state(ledger, 4), state(ledger, 2)) == ("withdrawn", "withdrawn")
    with pytest.raises(ValueError, match="row 2 of site north was withdrawn"):
        ledger.answer(2, 1, "ann")
    assert close(ledger) == []
    assert (
        ledger.requests.ask(
            RUN,
            "1/query",
            cycle=1,
            allowed=9,
            deadline=None,
            rows=[SelectedRow(4), SelectedRow(2), SelectedRow(7)],
        )
        == 0
    )


def test_a_withdrawn_sample_has_left_at_once(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.withdraw(2, "ann")
    assert ledger.requests.find_excluded_rows() == [2]


def test_a_correction_counts_before_the_end_of_labeling_and_a_new_label_does_not(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    assert not ledger.requests.apply_corrections()
    close(ledger)
    ledger.requests.ask(
        RUN, "1/query", cycle=1, allowed=1, deadline=None, rows=[SelectedRow(5)]
    )
    ledger.answer(2, 0, "ann")
    ledger.answer(5, 1, "ann")
    assert ledger.requests.apply_corrections()
    assert values(ledger) == {2: 0.0}
    assert not ledger.requests.apply_corrections()


def test_cannot_tell_removes_a_label_before_the_end_of_labeling(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    close(ledger)
    ledger.answer(2, None, "ann")
    assert ledger.requests.apply_corrections()
    assert values(ledger) == {}
    assert ledger.requests.find_excluded_rows() == [2]


# -- end states ----------------------------------------------------------------------------


def test_an_open_question_expires_at_the_close_and_is_given_back(open_ledger: Open) -> None:
    ledger = open_ledger(limit=3)
    ledger.answer(4, 1, "ann")
    close(ledger)
    assert state(ledger, 2) == "expired"
    with pytest.raises(
        ValueError, match="row 2 of site north expired at the end of cycle 0"
    ):
        ledger.answer(2, 1, "ann")
    lines = [SelectedRow(row) for row in (2, 9, 1)]
    assert (
        ledger.requests.ask(RUN, "1/query", cycle=1, allowed=3, deadline=None, rows=lines)
        == 2
    )


def test_a_close_twice_enters_nothing_twice(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    assert close(ledger) == close(ledger) == [Label(2, 1.0, 0)]


def test_labels_enter_in_the_order_in_which_rows_were_chosen(open_ledger: Open) -> None:
    ledger = open_ledger()
    for row in (9, 4, 2):
        ledger.answer(row, 1, "ann")
    instruction: list[int] = []

    def hold(labels: list[Label]) -> list[Label]:
        instruction.extend(label.row for label in labels)
        return labels

    ledger.requests.close(RUN, STEP, hold)
    assert instruction == [4, 2, 9]


def test_what_was_answered_in_a_step_that_was_never_closed_enters_later(
    open_ledger: Open,
) -> None:
    ledger = open_ledger(rows=(2, 4))
    ledger.answer(2, 1, "ann")
    lines = [SelectedRow(row) for row in (2, 4, 5)]
    assert (
        ledger.requests.ask(RUN, "1/query", cycle=1, allowed=3, deadline=None, rows=lines)
        == 1
    )  # 5 alone
    ledger.answer(5, 0, "ann")
    assert close(ledger, "1/query") == [Label(2, 1.0, 0), Label(5, 0.0, 1)]


def test_progress_counts_each_kind_of_the_newest_cycle(open_ledger: Open) -> None:
    ledger = open_ledger(rows=(1, 2, 3, 4))
    ledger.answer(1, 1, "ann")
    ledger.answer(2, None, "ann")
    ledger.answer(3, 1, "ann")
    ledger.answer(3, 2, "bob")
    values = ledger.progress()
    assert (values.asked, values.answered, values.declined) == (4, 1, 1)
    assert (values.conflicts, values.open) == (1, 1)
    assert ledger.cycles() == [0] and ledger.progress(7).asked == 0
