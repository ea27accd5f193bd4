"""Answers that are no label: cannot tell, none of these, not gradable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fallow.core.events import Event
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.label_queue import N_SIMILAR
from fallow.deployment.labeling_page.texts import RESERVED
from fallow.deployment.no_label import NO_LABELS, NONE_OF_THESE, name_no_label
from fallow.deployment.site.agreement_text import list_agreed_disclosures
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import import_labels, list_choices, list_labels
from fallow.deployment.site.status import collect_progress
from fallow.report.live import read_live, site_columns
from fallow.report.page import write_report
from fallow.settings.spec import Spec
from tests.deployment.agreed import TABLE, agreed
from tests.deployment.label_queues import (
    DOSE,
    HEART,
    ask,
    close,
    enter,
    make_queue,
)
from tests.deployment.simulations import NAMES, TINY, Federation, federation, rows
from tests.deployment.test_page_similar import CLOSED, queue_of, until_asked

pytest.importorskip("cryptography")
PLAN = AnswerPlan(none_of_these=True)
NONE = NONE_OF_THESE.code
NUMBERS = replace(TABLE, task="regression", classes=())


def offering(folder: Path, answers: int = 1) -> LabelQueue:
    """Return a queue whose annotators may answer that no class fits."""
    return replace(make_queue(folder, answers=answers), plan=PLAN)


def test_no_class_fits_is_an_answer_with_a_key(tmp_path: Path) -> None:
    queue = offering(tmp_path)
    browser = enter(queue)
    assert "x Cannot tell o None of these" in browser.get()
    saved = browser.send("/answer", cannot=NONE)
    assert "Saved: “none of these” for example “patient-3”" in saved
    task = queue.task(3)
    assert task is not None and task.state == "declined" and task.value is None
    browser.get("/sample/3")
    assert "You chose none of these" in browser.text
    assert 'value="none" formnovalidate data-key="o" aria-pressed="true"' in (
        browser.shown.text
    )
    assert 'data-key="x" aria-pressed' not in browser.shown.text
    changed = browser.post("/answer", {"row": "3", "seen": "xnone", "value": "1"})
    assert "Corrected: example “patient-3” is now “ill”" in changed


def test_it_is_not_offered_without_the_setting(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    assert "None of these" not in browser.get()
    refused = browser.send("/answer", cannot=NONE)
    assert "'none' is not a known reason: nothing was saved" in refused
    assert queue.ledger.history(3) == []


def test_keys_of_answers_are_reserved() -> None:
    assert {answer.key for answer in NO_LABELS} - {""} <= set(RESERVED)


def test_such_an_example_has_no_label_and_is_not_asked_again(tmp_path: Path) -> None:
    queue = offering(tmp_path)
    ledger = queue.ledger
    ledger.answer(3, None, "Ann", reason=NONE)
    ledger.answer(1, 1.0, "Ann")
    close(ledger)
    assert [label.row for label in ledger.store.load_labels("cleveland")] == [1]
    assert ledger.requests.find_excluded_rows() == [3]
    ask(ledger, (3, 5), cycle=1)
    assert [task.row for task in ledger.tasks(cycle=1)] == [5]
    assert ledger.requests.count_none() == (1, 2)
    ledger.answer(3, 0.0, "Ann")  # a correction makes it an example of a class
    assert ledger.requests.count_none() == (0, 2)
    ledger.requests.apply_corrections()
    close(ledger, 1)
    assert {label.row for label in ledger.store.load_labels("cleveland")} == {1, 3}


def test_another_reason_contradicts_and_cannot_tell_does_not(tmp_path: Path) -> None:
    ledger = offering(tmp_path, answers=2).ledger
    for row, other in ((3, ""), (1, "quality"), (4, NONE)):
        ledger.answer(row, None, "Ann", reason=NONE)
        ledger.answer(row, None, "Bo", reason=other)
    assert ledger.requests.find_none_of_these() == {3, 4}
    ledger.answer(4, None, "Ann", reason="content")
    assert ledger.requests.find_none_of_these() == {3}
    ledger.withdraw(3, "Ann")
    assert ledger.requests.count_none() == (0, 2)


def test_a_conflict_may_be_decided_as_none_of_these(tmp_path: Path) -> None:
    queue = offering(tmp_path)
    ledger = queue.ledger
    ledger.answer(3, 1.0, "Ann")
    ledger.answer(3, None, "Bo", reason=NONE)
    ledger.answer(1, 1.0, "Ann")
    ledger.answer(1, None, "Bo", reason="other: a <form>")
    browser = enter(queue)
    text = browser.get("/conflicts")
    assert "Bo chose none of these" in text
    assert "Bo chose not gradable (a <form>)" in text
    assert '<button name="cannot" value="none">none of these</button>' in browser.shown.text
    decided = browser.send("/resolve", cannot=NONE)
    assert "Decided: “none of these” for example “patient-3”" in decided
    assert ledger.requests.find_none_of_these() == {3}
    form = browser.hidden("/resolve") | {"cannot": "other: a <form>"}
    assert "Decided: “not gradable (a <form>)”" in browser.post("/resolve", form)


def test_every_answer_passes_through_a_file(tmp_path: Path) -> None:
    asked = range(5)
    queue = make_queue(tmp_path, asked=tuple(asked))
    reasons = ["", NONE, "quality", "content", "other: upside down"]
    for row, reason in zip(asked, reasons, strict=True):
        queue.ledger.answer(row, None, "Ann", reason=reason)
    file = tmp_path / "labels.csv"
    lines = list_labels(queue.ledger, HEART, queue.rows)
    assert {line["label"] for line in lines} == set(map(name_no_label, reasons))
    write_lines(file, lines)
    (tmp_path / "other").mkdir()
    other = make_queue(tmp_path / "other", asked=tuple(asked))
    taken = import_labels(other.ledger, HEART, other.rows, file, "Bo", plan=PLAN)
    assert (taken.recorded, taken.refused) == (5, ())
    answers = {task.row: task.answers for task in other.ledger.tasks()}
    assert {row: own[0].reason for row, own in answers.items()} == dict(enumerate(reasons))
    again = import_labels(other.ledger, HEART, other.rows, file, "Bo", plan=PLAN)
    assert (again.same, again.refused) == (5, ())


def test_a_file_contradicts_an_answer_with_another_reason(tmp_path: Path) -> None:
    queue = offering(tmp_path)
    file = tmp_path / "labels.csv"
    file.write_text("id,label\npatient-3,None of these\npatient-3,cannot tell\n")
    taken = import_labels(queue.ledger, HEART, queue.rows, file, "Ann", plan=PLAN)
    assert "'none of these' in line 2 and 'cannot tell' in line 3" in taken.refused[0]
    file.write_text("id,label\npatient-3,none of these\n")
    assert import_labels(queue.ledger, HEART, queue.rows, file, "Ann", plan=PLAN).recorded
    file.write_text("id,label\npatient-3,cannot tell\n")
    taken = import_labels(queue.ledger, HEART, queue.rows, file, "Ann", plan=PLAN)
    assert "has the label 'none of these' by Ann, not 'cannot tell'" in taken.refused[0]


def test_a_file_has_only_answers_of_the_study(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    file = tmp_path / "labels.csv"
    file.write_text("id,label\npatient-3,none of these\n")
    taken = import_labels(queue.ledger, HEART, queue.rows, file, "Ann")
    assert taken.refused == (
        "line 2: 'none of these' is not an answer of this study (federation.none_of_these); "
        "choose a class or 'cannot tell'",
    )
    own = replace(HEART, classes=("ill", "none of these"))
    assert import_labels(queue.ledger, own, queue.rows, file, "Ann").recorded == 1
    assert queue.ledger.history(3)[0].value == 1.0


def test_labeling_tools_offer_the_answers_of_the_plan() -> None:
    assert list_choices(HEART, AnswerPlan()) == ("healthy", "ill", "cannot tell")
    assert list_choices(HEART, PLAN)[2:] == ("cannot tell", "none of these")
    assert list_choices(DOSE, AnswerPlan()) == ()


def test_a_plan_without_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"none_of_these is true, but the labels are not"):
        agreed("strategy=random", schema=NUMBERS, plan=PLAN)


def test_with_noise_their_number_is_not_sent() -> None:
    config = agreed("strategy=entropy", plan=PLAN).config
    assert PLAN.sends_none(config)
    noisy = replace(config.privacy, epsilon=1.0, sums="noisy")
    assert not PLAN.sends_none(replace(config, privacy=noisy))
    assert not AnswerPlan().sends_none(config)


# -- order ----------------------------------------------------------------------------------------


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[LabelQueue]:
    """Return a queue of a table with features, and open tasks."""
    config = replace(CLOSED, encoder=Spec("fourier", {"features": 24}), budget=9)
    simulation = until_asked(tmp_path, config=config, data=rows(NAMES[:3]), plan=PLAN)
    yield replace(queue_of(simulation), plan=PLAN)
    simulation.close()


def find_shares(queue: LabelQueue, none: set[int]) -> dict[int, float]:
    """Return how many of the nearest answered rows of each open row no class fits, naively."""
    assert queue.space is not None
    site = queue.space._read_site()
    assert site is not None
    z = site.seen[:].double()
    known = sorted(none | set(queue._settled_labels()))
    shares = {}
    for task in queue.ledger.tasks(state="open"):
        distances = {row: float((z[row] - z[task.row]).norm()) for row in known}
        nearest = sorted(known, key=distances.__getitem__)[:N_SIMILAR]
        shares[task.row] = sum(row in none for row in nearest) / len(nearest)
    return shares


def test_rows_near_those_that_no_class_fits_are_asked_later(asked: LabelQueue) -> None:
    queue = asked
    first, *others = (task.row for task in queue.ledger.tasks(state="open"))
    assert queue.next_task(None, "Ann").row == first  # type: ignore[union-attr]
    assert queue.space is not None
    for row in queue.space.find_nearest(first, others, N_SIMILAR - 1):
        queue.ledger.answer(row, None, "Bo", reason=NONE)
    none = queue.ledger.requests.find_none_of_these()
    shares = find_shares(queue, none)
    later = [row for row, share in shares.items() if share > 0.5]
    before = [row for row in shares if row not in later]
    assert first in later and before, "the case must have both kinds"
    order = []
    while (task := queue.next_task(None, "Ann")) is not None:
        order.append(task.row)
        if len(order) == 2:
            queue.ledger.skip(task.row, "Ann")
            continue
        queue.ledger.withdraw(task.row, "Ann")
    skipped = order[1]
    assert order[-1] == skipped
    expected = [row for row in (*before, *later) if row != skipped]
    assert [row for row in order if row != skipped] == expected


def test_without_such_answers_the_order_is_that_of_the_selection(asked: LabelQueue) -> None:
    rows_asked = [task.row for task in asked.ledger.tasks(state="open")]
    asked.ledger.answer(rows_asked[1], None, "Bo", reason="quality")
    order = []
    while (task := asked.next_task(None, "Ann")) is not None:
        order.append(task.row)
        asked.ledger.answer(task.row, 0.0, "Ann")
    assert order == [row for row in rows_asked if row != rows_asked[1]]


# -- a whole study --------------------------------------------------------------------------------


@pytest.mark.long
def test_sites_send_only_how_many_examples_no_class_fits(tmp_path: Path) -> None:
    config = replace(TINY, initial=6, budget=6, cycles=2)
    data = rows(NAMES[:3])
    simulation = federation(tmp_path, config, data, plan=PLAN)
    none = {name: set(range(0, 40, 3)) for name in NAMES[:3]}

    def notify(event: Event) -> None:
        simulation.events.append(event)
        if event["event"] != "labels":
            return
        for name, ledger in simulation.ledgers.items():
            for task in ledger.tasks(state="open"):
                if task.row in none[name]:
                    ledger.answer(task.row, None, "Ann", reason=NONE)
                else:
                    ledger.answer(task.row, simulation.truth(name, task.row), "Ann")

    assert simulation.program(notify).go()
    assert simulation.list_events("refused") == []
    check_counts(simulation, none)
    simulation.close()


def check_counts(simulation: Federation, none: dict[str, set[int]]) -> None:
    """Check that state, status and report have the counts of the ledgers, and models no such row."""
    live = read_live(simulation.coordinator_folder)
    assert live is not None
    for name, ledger in simulation.ledgers.items():
        answered = {task.row for task in ledger.tasks()}
        counts = {
            "none_of_these": len(answered & none[name]),
            "decided": len(answered),
        }
        assert counts["none_of_these"] > 0
        assert dict(live["sites"][name].get("none_of_these") or {}) == counts
        trained = {label.row for label in ledger.store.load_labels(name)}
        assert trained == answered - none[name]
        progress = collect_progress(simulation.sites[name])
        assert progress["none_of_these"] == counts["none_of_these"]
        assert progress["decided"] == counts["decided"]
    assert all(" of 18" in cell for cell in site_columns(live)["None of these"])
    page = write_report([simulation.coordinator_folder]).read_text()
    assert ">None of these</th>" in page and "examples that no class fits" in page
    sent = [line.reveals for line in list_agreed_disclosures(simulation.agreement)]
    assert sum("no class fits" in reveals for reveals in sent) == 1
    other = list_agreed_disclosures(replace(simulation.agreement, plan=AnswerPlan()))
    assert not any("no class fits" in line.reveals for line in other)
    assert torch.isfinite(torch.tensor(simulation.records()[-1]["accuracy"]))
