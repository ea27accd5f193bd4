"""Test labeling beside predictions: likeliest classes, sheets, blind examples, and their counts."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow.core.events import Event
from fallow.core.streams import stream
from fallow.deployment.annotator_statistics import PredictionUse, measure_pause
from fallow.deployment.annotator_values import PREDICTED
from fallow.deployment.annotators import _hide_predictions
from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.texts import FREE_LETTERS
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.site.agreement_text import list_agreed_disclosures
from fallow.deployment.site.labels_io import list_labels, list_open_tasks
from fallow.report.live import read_live, site_columns
from fallow.report.page import write_report
from fallow.settings.spec import Spec
from tests.deployment.agreed import agreed
from tests.deployment.browser import browser_test, chromium
from tests.deployment.label_queues import (
    BLIND,
    DIGITS,
    DOSE,
    GUIDED,
    HEART,
    ask,
    close,
    enter,
    guess,
    make_queue,
    picture_rows,
    running,
)
from tests.deployment.simulations import NAMES, TINY, federation, photos, rows
from tests.deployment.test_page_similar import CLOSED, SITE, queue_of, until_asked

ASKED = {
    3: guess(1, 0.6),
    1: guess(1, 0.9),
    4: guess(0, 0.8),
    5: BLIND,
    7: guess(1, 0.7),
}


@pytest.fixture
def queue(tmp_path: Path) -> LabelQueue:
    """Return a queue of patients, four with predictions and one without."""
    return replace(make_queue(tmp_path, asked=ASKED), plan=GUIDED)


def test_the_plan_leaves_a_random_share_without_predictions_and_is_agreed_on() -> None:
    plan = AnswerPlan(guided_share=0.9)
    drawn = [plan.draw_guided(35, stream(seed, "guided", "s", "x")) for seed in range(200)]
    blind = [one.count(False) for one in drawn]
    assert set(blind) == {3, 4}
    assert sum(blind) / 200 == pytest.approx(3.5, abs=0.15)
    assert len({tuple(one) for one in drawn}) > 150
    assert AnswerPlan().draw_guided(2, stream(0, "guided", "s", "x")) == [False, False]
    (sentence,) = plan.describe()
    assert "likeliest classes of 90 % of the examples" in sentence
    assert agreed("strategy=entropy", plan=plan).digest != agreed("strategy=entropy").digest
    for share in (1.0, 0.96, -0.1):
        with pytest.raises(ValueError, match=r"guided_share is .*; it must be at least 0"):
            AnswerPlan(guided_share=share)
    with pytest.raises(
        ValueError, match=r"guided_share is 0.9, but the labels are not classes"
    ):
        agreed(plan=plan, schema=DOSE)
    with pytest.raises(
        ValueError, match=r"guided_share is 0.9, .* evaluation_fraction is 0.1"
    ):
        agreed("strategy=entropy", "evaluation_fraction=0.1", plan=plan)
    with pytest.raises(ValueError, match=r"guided_share is 0.9, but training=none has no"):
        agreed("strategy=random", "training=none", "encoder=identity", plan=plan)


def test_only_guided_examples_keep_their_likeliest_classes() -> None:
    reasons: list[Reasons] = [*(guess(1, 0.6) for _ in range(20)), {}]
    plan = AnswerPlan(guided_share=0.5)
    _hide_predictions(reasons, plan, stream(0, "guided", "s", "x"))
    kinds = [(("likeliest" in why), why.get("is_blind", False)) for why in reasons[:20]]
    assert (
        set(kinds) == {(True, False), (False, True)}
        and 9 <= kinds.count((False, True)) <= 11
    )
    assert reasons[20] == {}, "no model was trained"
    _hide_predictions(reasons, AnswerPlan(), stream(0, "guided", "s", "x"))
    assert not any("likeliest" in why for why in reasons)


@pytest.mark.long
def test_a_site_shows_predictions_of_the_model_of_the_query(tmp_path: Path) -> None:
    plan = AnswerPlan(guided_share=0.5)
    study = until_asked(tmp_path, config=CLOSED, data=photos(), plan=plan)
    with closing(study):
        tasks = study.ledgers[SITE].tasks(state="open")
        shown = [task.reasons for task in tasks if "likeliest" in task.reasons]
        assert 0 < len(shown) < len(tasks)
        for why in shown:
            (value, probability), *_ = why["likeliest"]
            assert (value, probability) == (why["predicted"], why["probability"])
        blind = [task.row for task in tasks if task.reasons.get("is_blind")]
        assert len(blind) == len(tasks) - len(shown)
        browser = enter(replace(queue_of(study), plan=GUIDED))
        assert "predicts" not in browser.get(f"/sample/{blind[0]}?guess=yes")
        browser.send("/answer", value="0")
        page = browser.get(f"/sample/{blind[0]}?guess=yes")
        assert page.count(" predicts “") == 2


def test_the_likeliest_classes_come_first_with_their_keys(queue: LabelQueue) -> None:
    browser = enter(queue)
    page = browser.get("/sample/4")
    assert "Likeliest by the model" in page and "1 healthy 80 %" in page
    html = browser.shown.text
    assert (
        html.index('data-key="1"') < html.index('data-key="a"') < html.index('data-key="b"')
    )
    assert 'data-key="2"' not in html and "Show the current prediction" not in page
    browser.send("/answer", value="0")
    assert "Likeliest by the model" not in browser.get("/sample/4")


def test_a_blind_example_shows_no_prediction_before_its_label(queue: LabelQueue) -> None:
    browser = enter(queue)
    for path in ("/sample/5", "/sample/5?guess=yes"):
        page = browser.get(path)
        assert "predicts" not in page and "Likeliest" not in page and "70 %" not in page
        assert "The prediction is shown once you have chosen a label." in page
        assert 'data-key="1"' not in browser.shown.text  # no habit labels it
    schema, rows = queue.schema, queue.rows
    lines = list_open_tasks(queue.ledger, schema, rows, guess=True)
    assert {line["row"]: line["guess"] for line in lines}[5] == ""
    browser.send("/answer", value="0")
    assert "predicts “ill” with 70 %" in browser.get("/sample/5")
    (labeled,) = list_labels(queue.ledger, schema, rows, guess=True)
    assert labeled["guess"] == "ill"


def test_classes_named_by_digits_keep_their_keys(tmp_path: Path) -> None:
    digits = replace(HEART, classes=("0", "1", "2", "3"))
    asked = {3: guess(2, 0.6)}
    queue = replace(make_queue(tmp_path, digits, asked=asked), plan=GUIDED)
    html = (browser := enter(queue)).get("/") and browser.shown.text
    assert html.count('data-key="2"') == 2 and html.count('data-key="1"') == 1
    assert len(FREE_LETTERS) == 19


def test_a_sheet_confirms_the_unmarked_examples_and_the_marked_come_one_by_one(
    queue: LabelQueue,
) -> None:
    browser = enter(queue)
    page = browser.get("/sheet")
    assert "Predicted: ill" in page and "healthy 1" in page
    form = browser.hidden("/confirm")
    assert form == {"value": "1", "rows": "1,7,3"}, "the most certain first, none is blind"
    page = browser.post("/confirm", {**form, "wrong-7": "yes"})
    assert "Saved: “ill” for 2 examples." in page and "Predicted: healthy" in page
    states = {task.row: task.state for task in queue.ledger.tasks()}
    assert states == {3: "answered", 1: "answered", 4: "open", 5: "open", 7: "open"}
    assert [answer.kind for answer in queue.ledger.history(1)] == ["confirmed"]
    assert "ill (confirmed on a sheet)" in browser.get("/sample/1")
    assert queue.count_sheets("Ann") == {0: 1} and queue.count_sheets("Bo") == {1: 1, 0: 1}
    order = []
    row = None
    while (asked := queue.next_task(row, "Ann")) is not None:
        order.append(row := asked.row)
        queue.answer(row, 0.0, "Ann", "")
    assert order == [4, 5, 7]
    assert "There are no predictions to confirm." in browser.get("/sheet")
    assert 'href="/sheet"' not in (browser.get("/") and browser.shown.text)


def test_a_sheet_changes_nothing_that_it_may_not_change(queue: LabelQueue) -> None:
    browser = enter(queue)
    queue.answer(3, 0.0, "Ann", "")
    page = browser.post("/confirm", {"value": "1", "rows": "3,4,5,1,1"})
    assert "Saved: “ill” for 1 example." in page
    values = {task.row: task.value for task in queue.ledger.tasks()}
    assert values == {3: 0.0, 1: 1.0, 4: None, 5: None, 7: None}
    page = browser.post("/confirm", {"value": "1", "rows": "3,1"})
    assert browser.shown.status_code == 409
    assert "These examples are no longer open. Nothing was changed." in page
    for fields in (
        {"value": "9", "rows": "7"},
        {"value": "1", "rows": "7,99"},
        {"value": "1", "rows": ""},
        {"value": "1"},
        {"rows": "7"},
    ):
        browser.post("/confirm", fields)
        assert browser.shown.status_code == 400, fields
    assert queue.ledger.progress().answered == 2
    dose = enter(make_queue(queue.ledger.path.parent / "..", DOSE))
    dose.post("/confirm", {"value": "1", "rows": "3"})
    assert dose.shown.status_code == 400


def test_the_ledger_counts_labels_beside_predictions_and_without(queue: LabelQueue) -> None:
    ledger = queue.ledger
    assert ledger.measure_predictions().describe() == []
    queue.confirm(1, [1, 7], [3], "Ann")
    queue.answer(3, 0.0, "Ann", "")
    queue.answer(4, 0.0, "Ann", "")
    queue.answer(5, 0.0, "Ann", "")
    queue.answer(5, 1.0, "Ann", "0.0")  # a correction may follow the prediction
    use = ledger.measure_predictions()
    assert (use.blind, use.blind_agreed) == (1, 0)
    assert (use.chosen, use.chosen_agreed, use.confirmed) == (2, 1, 2)
    sentences = use.describe()
    assert sentences[0].startswith(
        "Labels beside predictions: 4, 2 of them confirmed on sheets; 75 % equal the prediction. "
        "Labels without: 1; 0 % equal it."
    )
    ledger.take_back("Ann")
    ledger.take_back("Ann")
    use = ledger.measure_predictions()
    assert use.blind == 0 and "no label without" in use.describe()[0]


def confirm_sheet(tmp_path: Path) -> LabelQueue:
    """Return a queue with 40 confirmed labels at the end of labeling."""
    asked = {row: guess(1, 0.6) for row in range(40)}
    queue = replace(make_queue(tmp_path, DIGITS, asked=asked), plan=GUIDED)
    queue.ledger.confirm(1, range(40), [], "Ann")
    close(queue.ledger)
    return queue


AGAIN: Reasons = {"is_blind": True, "is_again": True}


def test_confirmed_labels_are_given_again_without_their_prediction(tmp_path: Path) -> None:
    queue = confirm_sheet(tmp_path)
    ledger = queue.ledger
    assert ledger.requests.find_confirmed_rows() == list(range(40))
    ask(ledger, {3: AGAIN, 5: AGAIN}, cycle=1, is_check=True)
    assert ledger.requests.count_again() == 2
    assert queue.list_checks("Ann") == [], "it is not shown to be suspicious"
    browser = enter(queue)
    page = browser.get("/sample/3?guess=yes")
    assert "predicts" not in page and "Likeliest" not in page and "one (" not in page
    assert ledger.measure_predictions().again == 0
    browser.send("/answer", value="1")
    queue.answer(5, 0.0, "Ann", "")
    use = ledger.measure_predictions()
    assert (use.confirmed, use.again, use.again_agreed) == (40, 2, 1)
    assert (
        "Labels of sheets that were given again one by one: 2; 50 % are equal."
        in use.describe()
    )
    assert {task.row: task.state for task in ledger.tasks() if task.is_check} == {
        3: "answered",
        5: "conflict",
    }
    ledger.take_back("Ann")
    assert ledger.measure_predictions().again == 1


def test_one_of_twenty_confirmed_labels_is_given_again_in_place_of_half_the_tasks() -> None:
    plan = AnswerPlan(guided_share=0.9)
    counts = [plan.count_again(n, 0, tasks=10) for n in (0, 19, 20, 59, 1000)]
    assert counts == [0, 0, 1, 2, 5]
    assert plan.count_again(59, 1, tasks=10) == 1 and plan.count_again(59, 3, tasks=10) == 0
    assert plan.count_again(40, 0, tasks=1) == 0
    assert AnswerPlan().count_again(40, 0, tasks=10) == 0


@pytest.mark.long
def test_sites_give_confirmed_labels_again_and_send_their_counts(tmp_path: Path) -> None:
    config = replace(TINY, strategy=Spec("entropy"), initial=4, budget=24, cycles=2)
    data = rows(NAMES[:3], per_site=90)
    plan = AnswerPlan(guided_share=0.95)
    simulation = federation(tmp_path, config, data, plan=plan)
    again: dict[str, list[int]] = {}

    def notify(event: Event) -> None:
        simulation.events.append(event)
        if event["event"] != "labels":
            return
        for name, ledger in simulation.ledgers.items():
            sheets = ledger.waiting.count_guided("Ann")
            for value in sheets:
                tasks = ledger.waiting.list_guided("Ann", value)
                shown = [task.row for task in ledger.load_tasks(tasks)]
                ledger.confirm(value, shown, [], "Ann")
            for task in ledger.tasks(state="open"):
                if task.is_check:
                    again.setdefault(name, []).append(task.row)
                ledger.answer(task.row, simulation.truth(name, task.row), "Ann")
            for task in ledger.tasks(state="conflict"):
                ledger.resolve(task.row, simulation.truth(name, task.row), "Bob")

    assert simulation.program(notify).go()
    assert simulation.list_events("refused") == []
    *_, last = simulation.list_events("annotators")
    live = read_live(simulation.coordinator_folder)
    assert live is not None
    for name, ledger in simulation.ledgers.items():
        use = ledger.measure_predictions()
        assert len(again[name]) == 1 and use.again == 1
        assert use.confirmed > 20
        counts = {field: getattr(use, field) for field in PREDICTED}
        assert last["sites"][name] == {"predictions": counts}
        assert live["sites"][name]["predictions"] == counts
    columns = site_columns(live)
    assert set(columns["Again"]) <= {"0 of 1", "1 of 1"}
    page = write_report([simulation.coordinator_folder]).read_text()
    assert ">Confirmed</th>" in page and "a random sample of confirmed" in page
    sent = [line.reveals for line in list_agreed_disclosures(simulation.agreement)]
    assert sum("beside predictions" in reveals for reveals in sent) == 1
    other = list_agreed_disclosures(replace(simulation.agreement, plan=AnswerPlan()))
    assert not any("predictions" in line.reveals for line in other)
    simulation.close()


def test_with_noise_no_exact_count_of_equal_labels_is_sent() -> None:
    plan = AnswerPlan(guided_share=0.9)
    assert plan.sends_predictions(agreed("strategy=entropy", plan=plan).config)
    private = ("training=closed-form:delta=1e-5", "privacy.epsilon=4.0", "strategy=random")
    assert not plan.sends_predictions(agreed(*private, plan=plan).config)


def test_times_per_label_leave_out_pauses_and_divide_those_of_sheets(
    queue: LabelQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = start

    def wait(seconds: int) -> None:
        nonlocal at
        at += timedelta(seconds=seconds)

    monkeypatch.setattr("fallow.deployment.ledger.ledger.now", lambda: at.isoformat())
    queue.answer(4, 0.0, "Ann", "")
    wait(8)
    queue.answer(5, 0.0, "Ann", "")
    wait(4)
    queue.confirm(1, [1, 7], [], "Ann")
    wait(3600)
    queue.answer(3, 0.0, "Ann", "")
    use = queue.ledger.measure_predictions()
    assert (use.single_seconds, use.sheet_seconds) == (8.0, 2.0)
    assert use.describe()[1] == "Median time per label: 8.0 s one by one, 2.0 s on sheets."
    assert measure_pause(at, start) is None, "the clock was set back"


@pytest.mark.processes
def test_a_killed_page_saves_all_of_a_sheet_or_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, asked=ASKED)
    queue.ledger.close()
    confirmed: list[set[int]] = []
    for point in (*range(1, 7), 100):  # the statement at which the process is killed
        child = os.fork()
        if not child:
            _confirm_and_die(tmp_path, point)
        os.waitpid(child, 0)
        with closing(Ledger(tmp_path / "ledger.sqlite", "cleveland", 2, None)) as ledger:
            confirmed.append({task.row for task in ledger.tasks(state="answered")})
    assert confirmed == [set()] * 6 + [{1, 3, 7}]


def _confirm_and_die(path: Path, point: int) -> None:
    """Confirm a sheet in a child process that is killed after some statements, or afterwards."""
    ledger = Ledger(path / "ledger.sqlite", "cleveland", 2, None)
    write = ledger._tables.write
    n_statements = 0

    def count(sql: str, *values: object) -> int:
        nonlocal n_statements
        n_statements += 1
        if n_statements == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(sql, *values)  # type: ignore[arg-type]

    ledger._tables.write = count  # type: ignore[method-assign]
    ledger.confirm(1, [1, 7, 3], [], "Ann")
    os.kill(os.getpid(), signal.SIGKILL)


@browser_test
@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_confirms_a_sheet_and_labels_the_rest_by_keys(
    tmp_path: Path, width: int, scheme: str
) -> None:
    asked = {row: guess(1, 0.5 + row / 30) for row in range(9)} | {
        9: BLIND,
        10: guess(2, 0.6),
    }
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=asked)
    queue = replace(queue, plan=GUIDED)
    with chromium() as browser, running(queue, "Ann") as access:
        page = browser.new_context(
            viewport={"width": width, "height": 740}, color_scheme=scheme
        ).new_page()

        def look(name: str) -> None:
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            page.screenshot(path=tmp_path / f"{name}.png", full_page=True)

        page.goto(access.address)
        page.wait_for_url("**/")
        page.wait_for_load_state()
        look("example")
        page.goto(page.url + "sheet")
        page.locator(".tile").nth(2).click()
        look("sheet")
        with page.expect_navigation():
            page.locator("main button.main").click()
        assert "Saved: “one” for 8 examples." in page.locator("main").inner_text()
        look("saved")
        page.goto(page.url.split("/sheet")[0] + "/sample/9")
        page.keyboard.press("1")
        look("blind")
        with page.expect_navigation():
            page.keyboard.press("b")
        page.goto(page.url.split("/?")[0] + "/sample/10")
        with page.expect_navigation():
            page.keyboard.press("1")
        values = {task.row: task.value for task in queue.ledger.tasks()}
        assert values == {**dict.fromkeys(range(9), 1.0), 6: None, 9: 1.0, 10: 2.0}


def test_without_a_blind_label_there_is_nothing_to_compare(tmp_path: Path) -> None:
    use = PredictionUse(0, 0, 2, 2, 6)
    assert use.describe() == [
        "Labels beside predictions: 8, 6 of them confirmed on sheets; 100 % equal the prediction. "
        "There is no label without a prediction to compare with."
    ]
    assert len(replace(use, blind=4, blind_agreed=1).describe()) == 1
