"""Test labeling tasks and labels in a site's ledger."""

from __future__ import annotations

import pytest

from fallow.deployment.ledger.label_requests import SelectedRow
from fallow.sites.store import Label
from tests.deployment.ledgers import RUN, Open, close, values

# -- first label ---------------------------------------------------------------------------


def test_questions_stand_in_the_order_in_which_rows_were_chosen(open_ledger: Open) -> None:
    questions = open_ledger().tasks()
    assert [(q.row, q.position, q.of, q.state) for q in questions] == [
        (4, 0, 3, "open"),
        (2, 1, 3, "open"),
        (9, 2, 3, "open"),
    ]


def test_the_first_answer_settles_a_question(open_ledger: Open) -> None:
    values = open_ledger().answer(2, 1, "ann")
    assert (values.state, values.value, values.answers[0].annotator) == (
        "answered",
        1.0,
        "ann",
    )


def test_an_answer_enters_training_when_its_step_is_closed_and_no_earlier(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    assert ledger.store.load_labels("north") == []
    assert close(ledger) == [Label(2, 1.0, 0)]


def test_a_label_for_a_row_that_was_never_asked_is_refused(open_ledger: Open) -> None:
    with pytest.raises(ValueError, match="row 7 of site north has no labeling task"):
        open_ledger().answer(7, 1, "ann")


def test_an_answer_without_a_name_is_refused(open_ledger: Open) -> None:
    with pytest.raises(ValueError, match="row 2 has no annotator"):
        open_ledger().answer(2, 1, " ")


def test_the_same_answer_twice_is_one_line_of_history(open_ledger: Open) -> None:
    ledger = open_ledger()
    assert ledger.answer(2, 1, "ann") == ledger.answer(2, 1, "ann")
    assert len(ledger.history(2)) == 1


# -- changed label -------------------------------------------------------------------------


def test_a_person_changes_their_answer_and_the_last_one_counts(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    assert ledger.answer(2, 0, "ann").state == "answered"
    assert [answer.value for answer in ledger.history(2)] == [1.0, 0.0]
    assert close(ledger)[0].value == 0.0


def test_a_label_that_has_entered_training_is_corrected_at_the_next_close(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    close(ledger)
    ledger.answer(2, 0, "ann")
    assert values(ledger) == {2: 1.0}
    assert close(ledger, "1/query") == [Label(2, 0.0, 0)]


def test_a_correction_keeps_cycle_weight_and_whether_it_is_held_back(
    open_ledger: Open,
) -> None:
    ledger = open_ledger(rows=())
    ledger.requests.ask(
        RUN,
        "1/query",
        cycle=1,
        allowed=1,
        deadline=None,
        rows=[SelectedRow(5, {}, 2.5, 0.25)],
    )
    ledger.answer(5, 1, "ann")
    ledger.requests.close(
        RUN, "1/query", lambda labels: [labels[0]._replace(is_validation=True)]
    )
    ledger.answer(5, 2, "ann")
    assert close(ledger, "2/query") == [Label(5, 2.0, 1, 2.5, 0.25, True)]


def test_two_people_who_disagree_are_a_conflict_until_somebody_decides(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    outcome = ledger.answer(2, 0, "bob")
    assert outcome.state == "conflict" and outcome.value is None
    assert [(answer.annotator, answer.value) for answer in outcome.answers] == [
        ("ann", 1.0),
        ("bob", 0.0),
    ]
    decided = ledger.resolve(2, 0, "cy")
    assert (decided.state, decided.value) == ("answered", 0.0)
    assert close(ledger)[0].value == 0.0


def test_a_conflict_is_over_when_one_of_them_agrees(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    ledger.answer(2, 0, "bob")
    assert ledger.answer(2, 0, "ann").state == "answered"


def test_whoever_decided_may_decide_otherwise_and_it_stays_the_last_word(
    open_ledger: Open,
) -> None:
    ledger = open_ledger(answers=2)
    for annotator, value in (("ann", 1), ("bob", 0)):
        ledger.answer(2, value, annotator)
    ledger.resolve(2, 0, "cy")
    assert ledger.answer(2, 2, "cy").value == 2.0


def test_a_conflict_over_a_trained_label_leaves_it_alone_until_decided(
    open_ledger: Open,
) -> None:
    ledger = open_ledger()
    ledger.answer(2, 1, "ann")
    close(ledger)
    ledger.answer(2, 0, "bob")
    assert values(ledger) == {2: 1.0} and ledger.requests.find_excluded_rows() == []
    assert close(ledger, "1/query")[0].value == 1.0
    ledger.resolve(2, 0, "cy")
    assert close(ledger, "2/query")[0].value == 0.0


def test_a_conflict_at_the_close_costs_and_leaves_the_pool_until_it_is_decided(
    open_ledger: Open,
) -> None:
    ledger = open_ledger(rows=(2,), limit=1)
    ledger.answer(2, 1, "ann")
    ledger.answer(2, 0, "bob")
    assert close(ledger) == [] and ledger.requests.find_excluded_rows() == [2]
    assert (
        ledger.requests.ask(
            RUN, "1/query", cycle=1, allowed=1, deadline=None, rows=[SelectedRow(3)]
        )
        == 0
    )
    ledger.resolve(2, 1, "cy")
    # the list changes only when a step is closed
    assert ledger.requests.find_excluded_rows() == [2]
    assert (
        close(ledger, "1/query") == [Label(2, 1.0, 0)]
        and ledger.requests.find_excluded_rows() == []
    )


def test_with_two_annotators_a_question_is_open_until_two_agree(open_ledger: Open) -> None:
    ledger = open_ledger(answers=2)
    assert ledger.answer(2, 1, "ann").state == "open"
    assert ledger.answer(2, 1, "bob").state == "answered"
