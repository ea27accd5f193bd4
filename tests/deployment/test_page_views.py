"""Test examples with two images: display, synchronized navigation and file access."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fallow.deployment.labeling_page.pictures import picture, placeholder, sizes
from fallow.deployment.ledger.labeling_tasks import LabelingTask
from fallow.deployment.schema import Schema
from fallow.deployment.site.labels_files import write_lines
from fallow.deployment.site.labels_io import list_open_tasks
from fallow.deployment.site.rows import SiteRows, read_rows
from tests.deployment.browser import browser_test, chromium
from tests.deployment.label_queues import (
    DIGITS,
    HEART,
    ROWS,
    enter,
    make_queue,
    picture_rows,
    running,
    table_rows,
)
from tests.deployment.test_page_keyboard import fits, page_of

ARRAYS = Schema("arrays", "classification", classes=("benign", "malign"), shape=(5,))


@pytest.fixture(scope="module", name="chromium")
def one_browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def write_pairs(folder: Path, views: tuple[str, ...] = ("left", "right")) -> Path:
    """Write twelve examples with numbers and two images, of 40 x 30 and 60 x 30 pixels."""
    names = np.array([[f"{row}-{view}.png" for view in views] for row in range(ROWS)])
    for row, named in enumerate(names.tolist()):
        for at, name in enumerate(named):
            gray = np.full((30, 40 + 20 * at), 20 * row + at, dtype=np.uint8)
            Image.fromarray(gray).save(folder / name)
    x = np.random.default_rng(0).normal(size=(ROWS, 5))
    np.savez(folder / "rows.npz", x=x, files=names)
    return folder / "rows.npz"


def test_both_images_of_a_row_are_read_from_its_file(tmp_path: Path) -> None:
    rows = read_rows(write_pairs(tmp_path), ARRAYS)
    assert [file.name for file in rows.files(3)] == ["3-left.png", "3-right.png"]
    assert sizes(rows, 3) == [(40, 30), (60, 30)]
    for view, name in enumerate(("3-left.png", "3-right.png")):
        shown = picture(rows, 3, view)
        assert shown is not None
        assert shown.content == (tmp_path / name).read_bytes()
    assert picture(rows, 3, 2) is None


def test_a_row_may_have_fewer_images_than_others_but_not_none(tmp_path: Path) -> None:
    file = write_pairs(tmp_path)
    arrays = dict(np.load(file))
    arrays["files"][4, 1] = ""
    np.savez(file, **arrays)
    assert len(read_rows(file, ARRAYS).files(4)) == 1
    arrays["files"][4, 0] = ""
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match="row 5 has no image"):
        read_rows(file, ARRAYS)


@pytest.mark.parametrize("shape", [(ROWS, 7), (ROWS, 2, 2)])
def test_names_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    file = write_pairs(tmp_path)
    arrays = dict(np.load(file)) | {"files": np.full(shape, "0-left.png")}
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=r"files has shape .*or up to 4 images"):
        read_rows(file, ARRAYS)


def test_an_image_outside_the_folder_is_refused_whichever_it_is(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    file = write_pairs(inside)
    arrays = dict(np.load(file))
    arrays["files"] = arrays["files"].astype("<U40")
    arrays["files"][2, 1] = "../secret.png"
    Image.new("L", (2, 2)).save(tmp_path / "secret.png")
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=", outside "):
        read_rows(file, ARRAYS)


def test_another_second_image_than_the_site_began_with_is_not_shown(tmp_path: Path) -> None:
    rows = read_rows(write_pairs(tmp_path), ARRAYS)
    Image.new("L", (9, 9)).save(tmp_path / "3-right.png")
    assert picture(rows, 3, 0) is not None
    with pytest.raises(ValueError, match=r"3-right\.png has changed since"):
        picture(rows, 3, 1)


@pytest.mark.parametrize(("channels", "views"), [(1, 1), (3, 1), (2, 2), (6, 2), (4, 0)])
def test_channels_say_how_many_pictures_a_row_of_numbers_is(
    channels: int, views: int
) -> None:
    x = torch.arange(float(channels * 64)).view(1, channels, 8, 8)
    rows = SiteRows(x, (None,), ("a",), lambda row: (("x", "1", ""),))
    assert sizes(rows, 0) == [(8, 8)] * views
    assert (picture(rows, 0, 1) is not None) == (views == 2)


def test_the_file_of_open_questions_names_both_images(tmp_path: Path) -> None:
    queue = make_queue(
        tmp_path, ARRAYS, read_rows(write_pairs(tmp_path), ARRAYS), asked=(3,)
    )
    out = tmp_path / "open.csv"
    write_lines(out, list_open_tasks(queue.ledger, queue.schema, queue.rows))
    head, line = out.read_text().splitlines()
    assert "file" in head.split(",") and "file 2" in head.split(",")
    assert "3-left.png" in line and "3-right.png" in line


def test_a_page_names_each_image_of_a_sample(tmp_path: Path) -> None:
    queue = make_queue(
        tmp_path, ARRAYS, read_rows(write_pairs(tmp_path), ARRAYS), asked=(3,)
    )
    browser = enter(queue)
    browser.get()
    page = browser.shown.text
    assert 'src="/picture/3"' in page and 'src="/picture/3/1"' in page
    assert "Image 1 of 2 to label" in page and "Image 2 of 2 to label" in page
    assert browser.request("GET", "/picture/3/1").headers["content-type"] == "image/png"
    for wrong in ("/picture/3/2", "/picture/3/-1", "/picture/3/one"):
        assert browser.request("GET", wrong).status_code == 404


def write_huge(file: Path) -> None:
    """Write a small file that claims to be an image of 900 megapixels."""
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(file)
    whole = file.read_bytes()
    head = b"IHDR" + 2 * (30_000).to_bytes(4, "big") + whole[24:29]
    file.write_bytes(whole[:12] + head + zlib.crc32(head).to_bytes(4, "big") + whole[33:])


def test_a_page_says_in_the_place_of_an_image_why_it_is_not_shown(tmp_path: Path) -> None:
    file = write_pairs(tmp_path)
    write_huge(tmp_path / "3-right.png")
    (tmp_path / "5-left.png").write_bytes(b"%!PS-Adobe-3.0 <b>")
    rows = read_rows(file, ARRAYS)
    assert any("3-right.png cannot be displayed: Image size" in note for note in rows.notes)
    assert any(
        "5-left.png cannot be displayed: its format is not" in note for note in rows.notes
    )
    browser = enter(make_queue(tmp_path, ARRAYS, rows, asked=(3, 5)))
    browser.get()
    assert browser.shown.status_code == 200
    assert 'src="/picture/3/1"' in browser.shown.text
    shown = browser.request("GET", "/picture/3/1")
    assert shown.headers["content-type"] == "image/svg+xml"
    assert "3-right.png cannot be displayed" in " ".join(browser.text.split())
    browser.request("GET", "/picture/5")
    assert "5-left.png cannot be displayed: its format is not supported" in browser.text
    assert b"<b>" not in placeholder("<b>").content


def disagree(folder: Path, rows: SiteRows, schema: Schema) -> Any:
    """Return a queue of three examples with conflicting labels for two of them."""
    queue = make_queue(folder, schema, rows, asked=(3, 1, 4), answers=2)
    for row in (3, 1):
        for annotator, value in (("Ann", 0.0), ("Bo", 1.0)):
            queue.ledger.answer(row, value, annotator)
    result: list[LabelingTask] = queue.ledger.tasks(state="conflict")
    assert [asked.row for asked in result] == [3, 1]
    return queue


def test_conflicts_on_rows_of_a_table_have_no_such_controls(tmp_path: Path) -> None:
    browser = enter(disagree(tmp_path, table_rows(), HEART), "Ann")
    browser.get("/conflicts")
    assert "look" not in browser.shown.text


def test_pictures_in_files_without_digests_still_have_one_view(tmp_path: Path) -> None:
    rows = replace(picture_rows(tmp_path), originals=None)
    assert len(rows.files(2)) == 1 and rows.content(2, 1) is None


@browser_test
@pytest.mark.parametrize("width", [1280, 390])
def test_both_images_are_zoomed_moved_and_brightened_together(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = make_queue(
        tmp_path, ARRAYS, read_rows(write_pairs(tmp_path), ARRAYS), asked=(3,)
    )
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        left, right = page.locator("figure").all()
        assert abs(left.bounding_box()["y"] - right.bounding_box()["y"]) < 1  # side by side
        for key in ("+", "+", ".", ">", "ArrowRight"):
            page.keyboard.press(key)
        styles = [figure.locator("img").get_attribute("style") for figure in (left, right)]
        for style in styles:
            assert "scale(1.5625)" in style and "translate(-" in style
            assert "brightness(110%) contrast(110%)" in style
        assert fits(page)
        page.keyboard.press("Escape")
        assert not page.locator("figure.zoomed").count()
        assert wrong == []
        page.context.close()


@browser_test
@pytest.mark.parametrize("width", [1280, 390])
def test_images_on_which_people_disagree_are_looked_at_each_for_itself(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    queue = disagree(tmp_path, picture_rows(tmp_path), DIGITS)
    with running(queue, "Ann") as access:
        page, wrong = page_of(chromium, width, access.address)
        page.goto(page.url + "conflicts")
        first, second = page.locator("article").all()
        for _ in range(2):
            second.get_by_role("button", name="Zoom in", exact=True).click()
        assert "scale(1.5625)" in str(second.locator("img").get_attribute("style"))
        assert not first.locator("img").get_attribute("style")
        page.keyboard.press(".")  # the second image has the focus
        assert "brightness(110%)" in str(second.locator("img").get_attribute("style"))
        page.evaluate("document.activeElement.blur()")
        first.locator("img").hover()
        page.keyboard.press("+")
        assert "scale(1.25)" in str(first.locator("img").get_attribute("style"))
        outputs = [output.inner_text() for output in page.locator("output").all()]
        assert outputs[0].startswith("Zoom 125 %") and outputs[1].startswith("Zoom 156 %")
        assert fits(page)
        assert wrong == []
        page.context.close()


@browser_test
def test_a_browser_shows_the_placeholder(tmp_path: Path, chromium: Any) -> None:
    file = write_pairs(tmp_path)
    write_huge(tmp_path / "3-right.png")
    queue = make_queue(tmp_path, ARRAYS, read_rows(file, ARRAYS), asked=(3,))
    with running(queue, "Ann") as access:
        page, _ = page_of(chromium, 900, access.address)
        widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 2 and min(widths) > 0
