"""Test several annotators at one site: conflicts, corrections and withdrawn examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.deployment.label_queues import DOSE, ask, close, enter, make_queue, table_rows


def test_two_people_who_agree_settle_a_sample_where_two_must(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, answers=2, asked=(3,))
    ann, bo = enter(queue, "Ann"), enter(queue, "Bo")
    ann.get()
    text = ann.send("/answer", value="1")
    assert "All done for now" in text and "1 example waits for another annotator" in text
    before = bo.get()
    # annotators decide independently
    assert "Example patient-3" in before and "Ann" not in before
    bo.send("/answer", value="1")
    assert [q.state for q in queue.ledger.tasks()] == ["answered"]


def test_another_answer_to_a_sample_that_was_open_for_both_is_a_conflict_and_is_said(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    ann, bo = enter(queue, "Ann"), enter(queue, "Bo")
    ann.get()
    bo.get()
    ann.send("/answer", value="1")
    text = bo.send("/answer", value="0")
    assert (
        "Saved: “healthy” for example “patient-3”. Another annotator chose a different label"
        in text
    )
    assert "Conflicts 1" in text and "Decide 1 conflict" in text
    assert [(g.annotator, g.value) for g in queue.ledger.history(3)] == [
        ("Ann", 1.0),
        ("Bo", 0.0),
    ]


def test_the_same_answer_by_a_second_person_is_no_conflict(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    ann, bo = enter(queue, "Ann"), enter(queue, "Bo")
    bo.get()
    ann.get()
    ann.send("/answer", value="1")
    assert "Saved: “ill”" in bo.send("/answer", value="1")
    assert [q.state for q in queue.ledger.tasks()] == ["answered"]


def test_conflicts_say_who_said_what_and_are_decided_there(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, None, "Bo")
    cy = enter(queue, "Cy")
    text = cy.get("/conflicts")
    assert (
        "Ann chose ill" in text
        and "Bo chose cannot tell" in text
        and "age 43 years" in text
    )
    form = cy.hidden("/resolve")
    assert "Decided: “ill” for example “patient-3”" in cy.send("/resolve", value="1")
    assert "There are no conflicts" in cy.text
    (question,) = queue.ledger.tasks()
    assert question.state == "answered" and question.value == 1.0
    assert "already resolved. Nothing was changed" in cy.post(
        "/resolve", {**form, "value": "0"}
    )
    assert [answer.annotator for answer in queue.ledger.history(3)] == ["Ann", "Bo", "Cy"]


def test_only_an_adjudicator_decides_and_sees_who_chose_what(tmp_path: Path) -> None:
    queue = replace(make_queue(tmp_path, asked=(3, 1), answers=2), adjudicators=("Cy",))
    ann, cy = enter(queue, "Ann"), enter(queue, "Cy")
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Bo")
    text = ann.get("/conflicts")
    assert "They are decided by Cy." in text and "Agreement" not in text
    assert "Ann chose ill" in text and "Another annotator chose healthy" in text
    assert "Bo" not in ann.shown.text and 'action="/resolve"' not in ann.shown.text
    ann.get("/sample/3")
    assert "Another annotator : healthy" in ann.text and "Bo" not in ann.shown.text
    text = cy.get("/conflicts")
    assert "Bo chose healthy" in text and "Agreement of annotators on 1 example" in text
    form = cy.hidden("/resolve")
    refused = ann.post("/resolve", {**form, "value": "1"})
    assert "Conflicts are decided by Cy. Nothing was changed." in refused
    assert [q.state for q in queue.ledger.tasks()] == ["conflict", "open"]
    assert "Decided: “ill”" in cy.send("/resolve", value="1")
    assert queue.ledger.tasks()[0].value == 1.0


def test_who_does_not_decide_conflicts_reads_who_does(tmp_path: Path) -> None:
    queue = replace(make_queue(tmp_path, asked=(3,)), adjudicators=("Cy",))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Bo")
    text = enter(queue, "Ann").get()
    assert "1 in conflict . They are decided by Cy." in text and "Decide 1" not in text
    assert "Decide 1 conflict" in enter(queue, "Cy").get()


def test_a_name_without_a_login_is_the_same_in_any_case(tmp_path: Path) -> None:
    queue = replace(make_queue(tmp_path, asked=(3, 1), answers=2), adjudicators=("Cy",))
    ann, again, cy = enter(queue, "Ann"), enter(queue, "ann"), enter(queue, "CY")
    ann.get()
    ann.send("/answer", value="1")
    assert "Example patient-1" in again.get()  # patient-3 needs another annotator
    again.send("/answer", value="1")
    assert queue.ledger.list_annotators() == ["Ann"]
    assert [q.state for q in queue.ledger.tasks()] == ["open", "open"]
    queue.ledger.answer(3, 0.0, "Bo")
    cy.get("/conflicts")
    assert "Decided: “ill”" in cy.send("/resolve", value="1")
    assert queue.ledger.history(3)[-1].annotator == "Cy"


def test_a_conflict_is_not_decided_from_a_page_that_lacks_an_answer(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Bo")
    cy = enter(queue, "Cy")
    cy.get("/conflicts")
    form = cy.hidden("/resolve")
    queue.ledger.answer(3, None, "Dee")
    assert "Another annotator has labeled this example" in cy.post(
        "/resolve", {**form, "value": "1"}
    )
    assert "Dee chose cannot tell" in cy.text
    assert [q.state for q in queue.ledger.tasks()] == ["conflict"]


def test_a_conflict_about_a_number_may_be_decided_with_another_one(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE, asked=(3,))
    queue.ledger.answer(3, 1 / 3, "Ann")
    queue.ledger.answer(3, 0.3, "Bo")
    cy = enter(queue, "Cy")
    assert "Ann chose 0.3333333333 mg" in cy.get("/conflicts")
    assert f'value="{1 / 3!r}"' in cy.shown.text  # the button contains every digit
    assert "is not a number" in cy.send("/resolve", value="much")
    assert "Decided: “0.31 mg”" in cy.send("/resolve", value="0,31")


def test_own_labels_are_listed_and_lead_to_a_correction(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    assert "You have not labeled anything yet, Ann." in browser.get("/mine")
    queue.ledger.answer(1, 0.0, "Ann")
    queue.ledger.answer(4, 0.0, "Bo")
    text = browser.get("/mine")
    assert (
        "1 label, newest first" in text
        and "patient-1 healthy" in text
        and "patient-4" not in text
    )
    close(queue.ledger)
    assert "You chose healthy" in browser.get("/sample/1")
    assert "this one replaces it at once" in browser.send("/answer", value="1")
    ask(queue.ledger, (5,), cycle=1)
    close(queue.ledger, 1)
    labels = {
        label.row: label.value for label in queue.ledger.store.load_labels("cleveland")
    }
    assert labels == {1: 1.0, 4: 0.0}


def test_a_long_list_of_labels_has_pages(tmp_path: Path) -> None:
    rows = table_rows(tuple(f"patient-{row}" for row in range(60)))
    queue = make_queue(tmp_path, rows=rows, asked=tuple(range(60)))
    for row in range(60):
        queue.ledger.answer(row, 1.0, "Ann")
    browser = enter(queue)
    text = browser.get("/mine")
    assert (
        "60 labels, newest first" in text
        and "Page 1 of 2 Older" in text
        and text.count("Correct ") == 50
    )
    text = browser.get("/mine?page=99")
    assert "Newer Page 2 of 2" in text and text.count("Correct ") == 10
    assert "Page 1 of 2" in browser.get("/mine?page=x")


def test_a_sample_is_withdrawn_with_a_reason_and_a_confirmation(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    assert "Withdraw example patient-3?" in browser.get("/withdraw/3")
    assert "Give a reason" in browser.send("/withdraw", why="  ", sure="yes")
    assert "Tick the box" in browser.send("/withdraw", why="consent was withdrawn")
    assert 'value="consent was withdrawn"' in browser.shown.text
    assert [q.state for q in queue.ledger.tasks()] == ["open"] * 3
    text = browser.send("/withdraw", why="consent was withdrawn", sure="yes")
    assert "0 of 3 done, 1 withdrawn, " in text
    assert "Example “patient-3” is withdrawn" in text and "Example patient-1" in text
    assert [q.state for q in queue.ledger.tasks()] == ["withdrawn", "open", "open"]
    assert "withdrawn and can no longer be labeled" in browser.get("/sample/3")
    assert 'action="/answer"' not in browser.shown.text


def test_an_answer_to_a_sample_withdrawn_meanwhile_is_refused_in_words(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": "1"}
    queue.ledger.withdraw(3, "Bo", "consent")
    assert "was withdrawn and accepts no more labels" in browser.post("/answer", form)
    assert not queue.ledger.history(3)


def test_what_was_said_is_shown_after_ones_own_answer(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Bo")
    browser = enter(queue)
    assert "Bo" not in browser.get("/sample/3")
    browser.send("/answer", value="0")
    text = browser.get("/sample/3")
    assert "Bo : ill" in text and "Ann : healthy" in text
    assert "Another annotator chose a different label: resolve the conflict" in text


def test_a_sample_that_somebody_else_decided_stays_among_ones_own_labels(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3, 1))
    queue.ledger.answer(1, 0.0, "Ann")
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, None, "Bo")
    queue.ledger.resolve(3, 0.0, "Cy")
    text = enter(queue).get("/mine")
    assert "2 labels, newest first" in text and "patient-1 healthy" in text
    assert "patient-3 ill" in text and "Cy decided “healthy”" in text
    assert "patient-3 cannot tell" in enter(queue, "Bo").get("/mine")
    assert (
        "patient-3 healthy" in (own := enter(queue, "Cy").get("/mine"))
        and "you decided" in own
    )
    text = enter(queue).get("/sample/3")
    assert "You chose ill" in text and "Cy decided healthy" in text
    assert "Label history of this example" in text


def test_what_somebody_took_back_or_never_said_is_not_among_their_labels(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Ann")
    queue.ledger.take_back("Ann")
    queue.ledger.answer(3, 0.0, "Dee")
    queue.ledger.take_back("Dee")
    queue.ledger.answer(3, None, "Bo")
    queue.ledger.resolve(3, None, "Cy")
    assert "patient-3 ill" in enter(queue).get(
        "/mine"
    )  # the label that Ann gave before her correction
    assert "You have not labeled anything yet" in enter(queue, "Dee").get("/mine")
    assert "You have not labeled anything yet" in enter(queue, "Eve").get("/mine")


def test_what_was_said_to_a_question_that_expired_is_not_an_answer_to_the_next(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3,), answers=2)
    queue.ledger.answer(3, 1.0, "Ann")
    close(queue.ledger)
    ask(queue.ledger, (3,), cycle=1)
    queue.ledger.answer(3, 1.0, "Bo")
    queue.ledger.answer(3, 0.0, "Cy")
    queue.ledger.resolve(3, 0.0, "Bo")
    text = enter(queue).get("/mine")
    assert (
        "1 label, newest first" in text
        and "expired without a label" in text
        and "decided" not in text
    )
