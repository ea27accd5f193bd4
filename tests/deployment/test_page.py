"""Test labeling on the page by one annotator, one example after the other."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from fallow.core.load_options import DecimalMark, KnownMarks
from fallow.deployment.labeling_page.forms import number_of
from fallow.deployment.labeling_page.label_queue import Outdated
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.labeling_page.texts import list_reasons
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.site.rows import ReadableRow
from tests.data.test_own_images import POSTSCRIPT, plant_ghostscript
from tests.deployment.label_queues import (
    DIGITS,
    DOSE,
    HEART,
    ask,
    close,
    enter,
    make_queue,
    picture_rows,
    table_rows,
)
from tests.each import each_of

WHY: Reasons = {"predicted": 1, "probability": 0.62, "by": "global", "score": 0.6641}


def test_a_row_is_shown_in_the_agreed_words_and_units(tmp_path: Path) -> None:
    text = enter(make_queue(tmp_path)).get()
    assert "Example patient-3 1 of 3 in cycle 0" in text
    assert "age 43 years sex male chol 209 mg/dl" in text
    assert "disease 1 healthy 2 ill x Cannot tell" in text


def test_the_direction_of_a_cell_does_not_reach_its_unit(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    browser.get()
    assert '<bdi>209</bdi> <span class="unit">mg/dl</span>' in browser.shown.text


def test_an_address_without_a_page_is_said_in_words(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    assert "There is no page at this address" in browser.get("/sampel/3")
    assert browser.shown.status_code == 404


def test_an_empty_cell_is_shown_as_empty_and_with_no_unit(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    rows = queue.rows

    def describe(row: int) -> ReadableRow:
        cells = table_rows().describe(row)
        assert not isinstance(cells, Path)
        return tuple(("age", "", "years") if c[0] == "age" else c for c in cells)

    text = enter(replace(queue, rows=replace(rows, describe=describe))).get()
    assert "age empty sex male chol 209 mg/dl" in text


def test_an_answer_is_kept_and_leads_to_the_next_sample(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    text = browser.send("/answer", value="1")
    assert "Saved: “ill” for example “patient-3”" in text
    assert "Example patient-1 2 of 3" in text and "1 of 3 done" in text
    (answer,) = queue.ledger.history(3)
    assert (answer.annotator, answer.value) == ("Ann", 1.0)


def test_samples_that_were_passed_over_come_again_after_the_others(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    assert '<a class="button quiet" rel="next" href="/sample/1"' in browser.shown.text
    assert '<a class="button quiet" rel="prev" href="/sample/4"' in browser.shown.text
    browser.get("/sample/1")
    browser.send("/answer", value="0")
    assert "Example patient-4" in browser.text
    assert "Example patient-3" in browser.send("/answer", value="0")


def test_cannot_tell_is_an_answer(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    assert "Saved: “cannot tell”" in browser.send("/answer", cannot="yes")
    question = queue.task(3)
    assert question is not None and question.state == "declined"


def test_a_skipped_sample_comes_again_last_and_is_still_open_for_others(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    assert "Skipped: example “patient-3” comes again" in browser.send("/skip")
    browser.get("/sample/4")
    assert "Example patient-1" in browser.send("/answer", value="0")  # not 3
    assert "Example patient-3" in browser.send("/skip")
    assert "Example patient-1" in browser.send("/skip")  # 3 was skipped again, 1 before it
    assert "Example patient-3" in browser.send("/answer", value="0")
    assert "Example patient-3" in enter(queue, "Bo").get()
    browser.send("/answer", value="0")
    assert "Nothing was skipped" in browser.post("/skip", {"row": "3"})


def test_an_example_that_is_not_gradable_has_a_reason_and_no_label(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    assert "counts against the label budget" in browser.get()
    form = {**browser.hidden("/answer"), "cannot": "other"}
    text = browser.post("/answer", {**form, "cannot": "quality"})
    assert "Saved: “not gradable (insufficient quality)” for example “patient-3”" in text
    refused = browser.post("/answer", {**form, "row": "1", "why": " "})
    assert "Give a reason of at most 500 characters" in refused
    assert "'taste' is not a known reason" in browser.post(
        "/answer", {**form, "row": "1", "cannot": "taste"}
    )
    browser.post("/answer", {**form, "row": "1", "why": "<i>a form</i>"})
    browser.get("/sample/1")
    assert "You chose not gradable (<i>a form</i>)" in browser.text
    assert "<i>" not in browser.shown.text
    assert "Corrected: example “patient-3” is now “cannot tell”" in browser.post(
        "/answer", {**form, "cannot": "yes", "seen": "xquality"}
    )
    close(queue.ledger)
    assert queue.ledger.requests.find_excluded_rows() == [1, 3]
    assert queue.ledger.requests.asked == 2


def test_a_number_may_have_a_decimal_comma_and_has_its_unit(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE)
    browser = enter(queue)
    assert "dose in mg" in browser.get()
    assert "Saved: “2.5 mg”" in browser.send("/answer", value="2,5")
    assert queue.ledger.history(3)[0].value == 2.5
    assert "is ambiguous" in browser.send("/answer", value="1,234.5")
    assert browser.shown.status_code == 409 and 'value="1,234.5"' in browser.shown.text
    assert "type 3,2150 or 3215" in browser.send("/answer", value="3,215")
    assert browser.shown.status_code == 409 and 'value="3,215"' in browser.shown.text
    assert len(queue.ledger.history(1)) == 0
    assert "is not a finite number" in browser.send("/answer", value="inf")
    assert "is not a number" in browser.send("/answer", value="")
    assert "Saved: “cannot tell”" in browser.send("/answer", value="", cannot="yes")
    assert queue.ledger.history(1)[0].value is None


@each_of(
    "decimal, typed, value",
    [
        (",", "3,215", 3.215),
        (",", "3.215", None),
        (".", "3.215", 3.215),
        (".", "-3,215", None),
        ("auto", "3,215", None),
        ("auto", "3.215", None),
        ("auto", "12.3456", 12.3456),
        ("auto", "0,215", 0.215),
        ("auto", "3.2150", 3.215),
        ("auto", "−3215", -3215.0),
    ],
)
def test_three_digits_after_a_mark_count_only_after_that_of_the_data(
    decimal: DecimalMark, typed: str, value: float | None
) -> None:
    if value is not None:
        assert number_of(typed, decimal) == value
        return
    with pytest.raises(Mistake, match="may be a fraction or have a thousands separator"):
        number_of(typed, decimal)


def test_a_label_has_the_decimal_mark_of_the_data(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE, replace(table_rows(), marks=KnownMarks(",")))
    browser = enter(queue)
    browser.get()
    browser.send("/answer", value="3,215")
    assert [answer.value for answer in queue.ledger.history(3)] == [3.215]


def test_the_own_number_is_shown_as_it_may_be_sent_again(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE)
    queue.ledger.answer(3, 3.125, "Ann")
    browser = enter(queue)
    browser.get("/sample/3")
    typed = re.search(r'name="value"[^>]* value="([^"]*)"', browser.shown.text)
    assert typed is not None and number_of(typed[1]) == 3.125


@pytest.mark.parametrize("value", ["2", "-1", "1.0", "ill", "", "٣", "9" * 400])
def test_an_unknown_class_is_refused_and_nothing_is_kept(
    tmp_path: Path, value: str
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    assert "is not a class of this study: nothing was saved" in browser.send(
        "/answer", value=value
    )
    assert browser.shown.status_code == 409 and not queue.ledger.history(3)


def test_a_sample_that_was_never_asked_takes_no_label(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    fields = {"row": "7", "seen": "", "value": "1"}
    assert "not selected for labeling. Nothing was saved" in browser.post("/answer", fields)
    assert "there is no example '12'" in browser.post("/answer", {**fields, "row": "12"})
    assert "the form has no field 'seen'" in browser.post(
        "/answer", {"row": "3", "value": "1"}
    )
    assert "not selected for labeling" in browser.get("/sample/7")
    assert not queue.ledger.history(7) and not queue.ledger.history(3)


def test_the_guess_is_hidden_until_somebody_wants_to_see_it(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path, asked={3: WHY}))
    browser.get()
    before, hidden = browser.shown.text.split('<details class="why"', 1)
    assert "predicts “ill”" in hidden and "predicts" not in before
    assert "Choose a label before you look" in hidden
    assert "open" not in hidden.split(">", 1)[0]


def test_why_a_sample_was_chosen_is_said_in_words() -> None:
    assert list_reasons(HEART, WHY, position=1, of=20) == [
        "It was selected as number 2 of 20 in its cycle.",
        "The global model predicts “ill” with 62 % probability.",
        "The query strategy gave it the score 0.6641.",
    ]
    assert "This site's personalized model predicts “3.5 mg”." in list_reasons(
        DOSE, {"predicted": 3.5, "by": "local"}, position=0, of=1
    )
    assert "There is no prediction" in list_reasons(HEART, {}, position=0, of=1)[1]


def test_undo_takes_the_last_answer_back_once(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    browser.send("/answer", value="1")
    browser.send("/answer", value="0")
    form = browser.hidden("/undo")
    assert "Undone: your last label for example “patient-1”" in browser.send("/undo")
    assert browser.path == "/sample/1"
    assert "Nothing was undone" in browser.post("/undo", form)  # a second click
    assert [q.state for q in queue.ledger.tasks()] == ["answered", "open", "open"]
    browser.get("/sample/1")
    assert "Undo “ill” for patient-3" in browser.text
    browser.send("/undo")
    assert [q.state for q in queue.ledger.tasks()] == ["open", "open", "open"]


def test_undoing_a_correction_twice_by_a_double_click_keeps_what_was_said_first(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Ann")
    browser = enter(queue)
    browser.get("/sample/3")
    form = browser.hidden("/undo")
    browser.send("/undo")
    assert "The labels of this example have changed" in browser.post("/undo", form)
    (question,) = queue.ledger.tasks()
    assert [answer.value for answer in question.answers] == [1.0]


def test_two_requests_to_undo_at_the_same_time_undo_one_label(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, 0.0, "Ann")
    outcomes: list[str] = []

    def undo() -> None:
        ledger = Ledger(queue.ledger.path, "cleveland", 2, None)
        try:
            outcomes.append(replace(queue, ledger=ledger).take_back(3, "Ann", "2").state)
        except Outdated:
            outcomes.append("outdated")
        finally:
            ledger.close()

    requests = [Thread(target=undo), Thread(target=undo)]
    with queue.ledger.transaction():  # both wait for the end of this transaction
        for request in requests:
            request.start()
        time.sleep(0.5)
    for request in requests:
        request.join()
    assert sorted(outcomes) == ["answered", "outdated"]
    (task,) = queue.ledger.tasks()
    assert [answer.value for answer in task.answers] == [1.0]


def test_undo_does_not_reach_into_training(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    browser = enter(queue)
    browser.get()
    browser.send("/answer", value="1")
    close(queue.ledger)
    assert "your labels are already used in training" in browser.send("/undo")
    assert queue.ledger.history(3)[-1].kind == "answer"


@pytest.mark.parametrize("number", ["2", "0000000009", "-1", "１", "1.0", ""])
def test_a_class_that_the_study_lacks_is_no_label_however_it_is_written(
    number: str, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": number}
    assert "is not a class of this study: nothing was saved" in browser.post(
        "/answer", form
    )
    assert queue.ledger.history(3) == []


@pytest.mark.parametrize("number", ["1e39", "-3.5e38", "nan", "inf", "1_0"])
def test_a_number_that_models_cannot_compute_with_is_no_label(
    number: str, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, DOSE)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": number}
    assert "is not a finite number" in browser.post("/answer", form)
    assert queue.ledger.history(3) == []


def test_a_double_click_counts_once(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": "1"}
    browser.post("/answer", form)
    assert "“ill” was already saved for example “patient-3”" in browser.post(
        "/answer", form
    )
    assert len(queue.ledger.history(3)) == 1


def test_another_answer_from_an_old_page_does_not_replace_the_newer_one(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    old = browser.hidden("/answer")  # a second tab, or a page reached by the back button
    browser.send("/answer", value="1")
    text = browser.post("/answer", {**old, "value": "0"})
    assert "You have labeled this example 'ill' since this page was loaded" in text
    assert "'healthy' was not saved" in text and "Example patient-3" in text
    assert [answer.value for answer in queue.ledger.history(3)] == [1.0]
    assert "Corrected: example “patient-3” is now “healthy”" in browser.send(
        "/answer", value="0"
    )
    assert [answer.value for answer in queue.ledger.history(3)] == [1.0, 0.0]


def test_an_answer_to_a_question_that_has_expired_is_refused_in_words(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": "1"}
    close(queue.ledger)
    text = browser.post("/answer", form)
    assert "expired at the end of cycle 0: nothing was changed" in text
    assert browser.shown.status_code == 409 and not queue.ledger.history(3)
    assert "This labeling task expired at the end of its cycle" in browser.get("/sample/3")


def test_a_page_left_open_over_a_cycle_still_takes_an_answer_for_a_sample_asked_again(
    tmp_path: Path,
) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    browser.get()
    form = {**browser.hidden("/answer"), "value": "1"}
    close(queue.ledger)
    ask(queue.ledger, (3,), cycle=1)
    assert "Saved: “ill” for example “patient-3”" in browser.post("/answer", form)
    assert [q.state for q in queue.ledger.tasks(1)] == ["answered"]


def test_the_page_says_when_nothing_waits_and_what_happens_next(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    browser = enter(queue)
    browser.get()
    text = browser.send("/answer", value="1")
    assert "All done for now Thank you, Ann. You have no open labeling tasks." in text
    assert "What happens next" in text and "1 of 1 done" in text
    assert '<noscript><meta http-equiv="refresh"' in browser.shown.text
    ask(queue.ledger, (5,), cycle=1)
    assert browser.request("GET", "/state").json()["waiting"] == 1
    assert "Example patient-5" in browser.get()


def test_a_site_that_was_asked_for_nothing_yet_says_so(tmp_path: Path) -> None:
    assert "No examples to label yet" in enter(make_queue(tmp_path, asked=())).get()


def test_the_state_of_a_page_left_open_is_told(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    first = browser.request("GET", "/state?row=3").json()
    assert (first["state"], first["seen"], first["waiting"]) == ("open", "", 3)
    queue.ledger.answer(3, 1.0, "Bo")
    assert browser.request("GET", "/state?row=3").json()["state"] == "answered"


def test_a_deadline_that_has_passed_is_said_and_ends_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=())
    ask(queue.ledger, (3,), deadline=(datetime.now(UTC) - timedelta(hours=1)).isoformat())
    browser = enter(queue)
    assert "the deadline has passed, but labels count" in browser.get()
    assert "Saved" in browser.send("/answer", value="1")


def test_pictures_are_shown_from_their_files_and_small_ones_enlarged(
    tmp_path: Path,
) -> None:
    browser = enter(make_queue(tmp_path, DIGITS, picture_rows(tmp_path)))
    browser.get()
    assert '<figure class="small">' in browser.shown.text
    assert '<img src="/picture/3" width="8" height="8"' in browser.shown.text
    response = browser.request("GET", "/picture/3")
    assert response.headers["content-type"] == "image/png"
    assert response.content == (tmp_path / "scan-3.png").read_bytes()
    (tmp_path / "scan-3.png").unlink()
    assert "scan-3.png cannot be displayed" in browser.get("/picture/3")


def test_postscript_under_the_name_of_an_image_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = plant_ghostscript(tmp_path, monkeypatch)
    rows = picture_rows(tmp_path)
    file = tmp_path / "scan-3.tif"
    file.write_bytes(POSTSCRIPT)
    browser = enter(make_queue(tmp_path, DIGITS, replace(rows, describe=lambda row: file)))
    browser.get()
    assert "scan-3.tif cannot be displayed" in browser.get("/picture/3")
    assert not trace.exists()


def test_rows_that_have_the_shape_of_pictures_are_drawn(tmp_path: Path) -> None:
    import torch

    from fallow.deployment.site.rows import SiteRows

    x = torch.linspace(-1, 1, 12 * 64).reshape(12, 1, 8, 8)
    rows = SiteRows(
        x, (None,) * 12, tuple(map(str, range(12))), lambda row: (("x0", "1", ""),)
    )
    browser = enter(make_queue(tmp_path, DIGITS, rows))
    browser.get()
    assert '<img src="/picture/3"' in browser.shown.text
    assert browser.request("GET", "/picture/3").content.startswith(b"\x89PNG")


def test_names_of_samples_and_classes_are_never_markup(tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.deployment.label_queues import table_rows

    ids = tuple(f"<b>{row}</b>" for row in range(12))
    schema = replace(HEART, classes=("<i>no</i>", '"><script>'))
    browser = enter(make_queue(tmp_path, schema, table_rows(ids)))
    browser.get()
    assert "<b>3</b>" not in browser.shown.text and "<i>no" not in browser.shown.text
    browser.send("/answer", value="1")
    assert "<b>3</b>" not in browser.shown.text and '"><script>' not in browser.shown.text
