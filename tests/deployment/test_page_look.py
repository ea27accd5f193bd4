"""Test zooming, panning, brightness and contrast of images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.labeling_page.texts import KEYS, RESERVED, hot_keys
from tests.deployment.browser import browser_test, chromium
from tests.deployment.label_queues import DIGITS, enter, make_queue, picture_rows, running
from tests.deployment.test_case_rows import SCANS, read_scans
from tests.deployment.test_page_keyboard import fits, page_of, press

WIDTHS = [1280, 390]
STYLE = "document.querySelector('figure img').style"
PLAIN = "Zoom 100 %, brightness 100 %, contrast 100 %."


@pytest.fixture(scope="module", name="chromium")
def one_browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def transform(page: Any) -> str:
    return str(page.evaluate(f"{STYLE}.transform"))


def brightness_and_contrast(page: Any) -> str:
    return str(page.evaluate(f"{STYLE}.filter"))


def read_settings(page: Any) -> str:
    return str(page.locator("#looks").inner_text())


def test_the_keys_of_images_are_keys_of_no_class_and_no_answer(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=(3,))
    browser = enter(queue)
    browser.get()
    keys = re.findall(r'data-look-key="([^"]+)"', browser.shown.text)
    assert len(keys) == len(set(keys)) == 11
    many = hot_keys([f"class {number}" for number in range(99)])
    taken = {*KEYS, *RESERVED, "0", "Backspace", *many}
    assert taken.isdisjoint(keys)
    # arrow keys change the example while there is nothing to pan
    others = set(re.findall(r'data-key="([^"]+)"', browser.shown.text))
    assert others & set(keys) <= {"ArrowLeft", "ArrowRight"}


def test_a_row_of_a_table_has_no_such_controls(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    browser.get()
    assert "look" not in browser.shown.text


@browser_test
@pytest.mark.parametrize("width", WIDTHS)
def test_slices_of_a_case_are_shown_one_at_a_time_and_labeled_together(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(tmp_path, SCANS, read_scans(tmp_path), asked=(2, 1))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)

        def read_shown() -> tuple[str, int]:
            number = page.locator("figure:visible img").get_attribute("src")
            return str(number), page.locator("figure:visible").count()

        assert read_shown() == ("/picture/2/2", 1)
        assert page.locator(".slice").inner_text() == "3 / 5"
        for key in ["ArrowRight"] * 4:  # the last slice does not open the next example
            page.keyboard.press(key)
        assert read_shown() == ("/picture/2/4", 1)
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")  # moves the zoomed image
        assert read_shown() == ("/picture/2/4", 1)
        page.keyboard.press("Escape")
        page.locator("[type=range]").fill("1")
        assert read_shown() == ("/picture/2", 1)
        assert fits(page)
        page.screenshot(path=tmp_path / f"slices-{width}.png", full_page=True)
        press(page, "1")  # with the focus on the slider
        assert queue.ledger.count("answered") == 1
        assert not wrong


@browser_test
@pytest.mark.parametrize("width", WIDTHS)
def test_an_image_is_looked_at_by_the_keyboard_and_then_labeled(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=(3, 1, 4))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url))
        assert read_settings(page) == PLAIN

        page.keyboard.press("+")
        page.keyboard.press("=")  # the same key without Shift
        assert "scale(1.5625)" in transform(page)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        assert "translate(-40px, -40px)" in transform(page)
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowUp")
        assert "translate(0px, 0px)" in transform(page)
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        edge = page.evaluate("document.querySelector('figure img').offsetWidth") * 0.28125
        moved = re.search(r"translate\(([\d.]+)px", transform(page))
        assert moved is not None
        assert float(moved[1]) == pytest.approx(edge, abs=1)

        for key in (".", ".", ",", "<", "<", ">"):
            page.keyboard.press(key)
        assert brightness_and_contrast(page) == "brightness(110%) contrast(90%)"
        assert read_settings(page) == "Zoom 156 %, brightness 110 %, contrast 90 %."
        assert fits(page)
        page.screenshot(path=tmp_path / f"look-{width}.png", full_page=True)

        page.keyboard.press("Escape")
        assert transform(page) == brightness_and_contrast(page) == ""
        assert read_settings(page) == PLAIN
        assert [url for url in sent if "/state" not in url] == []
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0

        page.keyboard.press("+")
        press(page, "2")  # a label, zoomed in or not
        assert page.locator("h1").inner_text() == "Example scan-1.png"
        assert read_settings(page) == PLAIN  # the next image starts with default settings
        press(page, "ArrowRight")
        assert page.locator("h1").inner_text() == "Example scan-4.png"
        assert wrong == []
        page.context.close()
    assert [answer.value for answer in queue.ledger.history(3)] == [1.0]


@browser_test
@pytest.mark.parametrize("width", WIDTHS)
def test_every_function_has_a_button_with_a_name(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=(3,))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)

        def click(name: str) -> None:
            page.get_by_role("button", name=name, exact=True).click()

        right = page.get_by_role("button", name="Move right", exact=True)
        assert right.is_disabled()  # nothing to pan yet
        for name in ("Zoom in", "Zoom in", "Zoom in", "Zoom out"):
            click(name)
        click("Move right")
        assert transform(page) == "translate(-40px, 0px) scale(1.5625)"
        click("Move left")
        click("Move down")
        click("Move up")
        assert transform(page) == "translate(0px, 0px) scale(1.5625)"
        click("Brighter")
        click("Brighter")
        click("Darker")
        click("Less contrast")
        click("Less contrast")
        click("More contrast")
        assert brightness_and_contrast(page) == "brightness(110%) contrast(90%)"
        click("Reset")
        assert read_settings(page) == PLAIN and transform(page) == ""
        assert wrong == []
        page.context.close()
    assert not queue.ledger.history(3)


@browser_test
def test_the_wheel_zooms_at_the_pointer_and_dragging_moves(
    chromium: Any, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=(3,))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, 1280, access.address)
        box = page.locator("figure img").bounding_box()
        x = box["x"] + box["width"] / 4
        y = box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.wheel(0, -100)
        page.wait_for_function(f"{STYLE}.transform !== ''")
        after = page.locator("figure img").bounding_box()
        # the point at a quarter of the width stays below the pointer
        assert after["x"] + after["width"] / 4 == pytest.approx(x, abs=1)
        assert after["width"] == pytest.approx(1.25 * box["width"], abs=1)

        page.mouse.down()
        page.mouse.move(x - 20, y + 10)
        page.mouse.up()
        page.mouse.move(x, y)  # same as a pointer that only hovers
        moved = page.locator("figure img").bounding_box()
        assert moved["x"] == pytest.approx(after["x"] - 20, abs=1)
        assert moved["y"] == pytest.approx(after["y"] + 10, abs=1)

        page.mouse.wheel(0, 100)
        page.wait_for_function(f"{STYLE}.transform === ''")
        assert wrong == []
        page.context.close()


@browser_test
def test_letters_and_signs_in_the_field_of_a_number_are_no_keys(
    chromium: Any, tmp_path: Path
) -> None:
    schema = replace(DIGITS, task="regression", classes=(), unit="mm")
    queue = make_queue(tmp_path, schema, picture_rows(tmp_path), asked=(3,))
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, 1280, access.address)
        page.locator("#value:focus").wait_for()
        page.keyboard.type("+2.5")
        assert page.locator("#value").input_value() == "+2.5"
        assert read_settings(page) == PLAIN
        page.keyboard.press("Escape")  # only leaves the field
        page.keyboard.press(".")
        assert read_settings(page) == "Zoom 100 %, brightness 110 %, contrast 100 %."
        assert wrong == []
        page.context.close()


@browser_test
def test_without_scripts_there_are_no_controls_that_do_nothing(
    chromium: Any, tmp_path: Path
) -> None:
    queue = make_queue(tmp_path, DIGITS, picture_rows(tmp_path), asked=(3,))
    with running(queue, "Ann") as access:
        page, _ = page_of(chromium, 390, access.address, java_script_enabled=False)
        assert page.locator(".look").is_hidden()
        assert page.locator("figure img").is_visible()
        page.context.close()
