"""Test the page in a real browser with the keyboard, in desktop and telephone widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.browser import NEEDS, chromium
from tests.deployment.label_queues import (
    DOSE,
    HEART,
    ask,
    close,
    make_queue,
    running,
    table_rows,
)

WIDTHS = [1200, 360]
pytestmark = NEEDS


@pytest.fixture(scope="module", name="chromium")
def one_browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def page_of(chromium: Any, width: int, address: str, **more: Any) -> tuple[Any, list[str]]:
    """Return a page and the list of its errors."""
    page = chromium.new_context(viewport={"width": width, "height": 740}, **more).new_page()
    page.set_default_timeout(30_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda message: wrong.append(message.text) if message.type == "error" else None,
    )
    page.goto(address)
    page.wait_for_url("**/")
    page.wait_for_load_state()
    return page, wrong


def press(page: Any, key: str) -> None:
    """Press a key that leads to another page."""
    with page.expect_navigation():
        page.keyboard.press(key)


def fits(page: Any) -> bool:
    """Return whether the page needs no horizontal scrolling."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("width", WIDTHS)
def test_three_samples_are_labeled_by_the_keyboard_alone(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(tmp_path, HEART, asked={3: {"predicted": 1.0}, 1: {}, 4: {}})
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        page.screenshot(path=tmp_path / f"sample-{width}.png", full_page=True)
        assert fits(page)
        page.keyboard.press("w")
        assert page.locator("details.why").evaluate("it => it.open")
        press(page, "ArrowRight")  # skip
        assert page.locator("h1").inner_text() == "Example patient-1"
        press(page, "ArrowLeft")
        press(page, "2")
        press(page, "u")  # undo
        assert page.locator("h1").inner_text() == "Example patient-3"
        for key in ("1", "x", "2"):
            press(page, key)
        assert page.locator("h1").inner_text() == "All done for now"
        page.screenshot(path=tmp_path / f"done-{width}.png", full_page=True)
        assert fits(page) and wrong == []
        page.context.close()
    labels = {question.row: question.answers[0].value for question in queue.ledger.tasks()}
    assert labels == {3: 0.0, 1: None, 4: 1.0}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_number_is_typed_and_letters_in_its_field_are_no_keys(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(tmp_path, DOSE, asked=(3, 1))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        page.keyboard.type("x2,5")
        press(page, "Enter")
        assert "is not a number" in page.locator("[role=alert]").inner_text()
        page.locator("#value").fill("")
        page.keyboard.type("2,5")
        press(page, "Enter")
        page.locator("#value:focus").wait_for()
        page.keyboard.press("Escape")
        press(page, "x")  # outside the field, keys are shortcuts again
        assert fits(page) and [line for line in wrong if "409" not in line] == []
        page.context.close()
    assert [q.answers[0].value for q in queue.ledger.tasks()] == [2.5, None]


def test_an_example_is_skipped_and_marked_as_not_gradable_by_keys(
    chromium: Any, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, asked=(3, 1))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, 1200, access.address)
        press(page, "s")
        assert page.locator("h1").inner_text() == "Example patient-1"
        page.keyboard.press("n")
        focused = page.locator(":focus")
        assert focused.inner_text() == "Insufficient quality"
        assert focused.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"
        for _ in range(2):
            page.keyboard.press("Tab")
        page.keyboard.type("shows a form")
        press(page, "Enter")
        assert page.locator("h1").inner_text() == "Example patient-3"
        page.keyboard.press("n")
        press(page, "Enter")
        assert wrong == []
        page.context.close()
    assert [q.answers[0].reason for q in queue.ledger.tasks()] == [
        "quality",
        "other: shows a form",
    ]


def test_without_scripts_the_tab_key_reaches_every_answer(
    chromium: Any, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    with running(queue, "Ann") as access:
        page, _ = page_of(chromium, 1200, access.address, java_script_enabled=False)
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.locator("button:focus").all_inner_texts()[:1] == ["2\nill"]:
                break
        press(page, "Enter")
        assert page.locator("h1").inner_text() == "All done for now"
        page.context.close()
    assert queue.ledger.history(3)[0].value == 1.0


def test_an_open_page_hears_of_the_end_of_a_cycle_and_of_new_samples(
    chromium: Any, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, asked=(3,))
    with running(queue, "Ann") as access:
        page, _ = page_of(chromium, 1200, access.address)
        close(queue.ledger)
        page.get_by_text("this labeling task has expired").wait_for()
        press(page, "1")
        assert "expired" in page.locator("[role=alert]").inner_text()
        page.goto(f"http://{access.hosts[0]}/")
        ask(queue.ledger, (5,), cycle=1)
        page.get_by_role("heading", name="Example patient-5").wait_for()
        page.context.close()
    assert not queue.ledger.history(3)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_texts_without_a_space_need_no_horizontal_scrolling(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    word = "x" * 120
    schema = replace(HEART, classes=(f"healthy-{word}", f"ill-{word}"))
    rows = table_rows(tuple(f"{word}-{row}" for row in range(12)))
    texts = replace(
        rows, describe=lambda row: (("note", word, ""), ("code", word[:80], ""))
    )
    queue = make_queue(tmp_path, schema, texts, asked=(3, 1, 4), answers=2)
    queue.ledger.answer(3, 0.0, "Ann")
    queue.ledger.answer(3, 1.0, "Bob")
    queue.ledger.answer(4, 1.0, "Ann")
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        for path in ("/", "/sample/4", "/conflicts", "/mine", "/withdraw/1"):
            page.goto(f"http://{access.hosts[0]}{path}")
            assert fits(page), path
        assert wrong == []
        page.context.close()
