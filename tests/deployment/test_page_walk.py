"""Test all addresses of the labeling page with unusual examples and swapped images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.site.pictures import Originals
from tests.deployment.label_queues import (
    DIGITS,
    DOSE,
    Browser,
    enter,
    make_queue,
    outside,
    picture_rows,
)
from tests.each import mark_long

ODD = (
    *("0", "3", "11", "12", "-1", "999999999", "9" * 30, "9" * 5000),
    *("", "x", "1.5", "1e3", "²", "٣", "%00", "..%2f..", "None", "3%20", "+3", "0x3"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
FIELDS = {
    "seen": "",
    "said": "0",
    "value": "1",
    "why": "consent",
    "sure": "yes",
    "name": "Ann",
}
GETS = (
    "/sample/{}",
    "/withdraw/{}",
    "/picture/{}",
    "/static/{}",
    "/?row={}",
    "/mine?page={}",
)
STATES = ("/state?row={}", "/?outcome=saved&row={}", "/conflicts?outcome=saved&row={}")
POSTS = ("/answer", "/undo", "/resolve", "/withdraw", "/name")


def origin(browser: Browser) -> dict[str, str]:
    return {"origin": f"http://{browser.access.hosts[0]}"}


def queue_of(kind: str, folder: Path) -> LabelQueue:
    if kind == "images":
        return make_queue(folder, DIGITS, picture_rows(folder))
    result = make_queue(folder) if kind == "table" else make_queue(folder, DOSE)
    result.ledger.withdraw(4, "Bob", "consent")
    result.ledger.answer(1, 1, "Bob")
    return result


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", mark_long(["table", "numbers", "images"], ["numbers", "images"])
)
def test_no_address_fails_whatever_row_it_names(tmp_path: Path, kind: str) -> None:
    queue = queue_of(kind, tmp_path)
    browser = enter(queue)
    for path in (*GETS, *STATES):
        for row in ODD:
            result = browser.request("GET", path.format(row))
            assert result.status_code in (200, 303, 307, 400, 404, 405), (path, row[:40])
            assert "Traceback" not in result.text
    for path in POSTS:
        for row in ODD:
            for change in ({}, {"value": row}, {"said": row}, {"sure": ""}):
                fields = {**FIELDS, "row": row, **change}
                result = browser.request("POST", path, data=fields, headers=origin(browser))
                assert result.status_code in (200, 303, 400, 409), (path, row[:40], change)
    queue.ledger.close()


@pytest.mark.long
def test_no_address_fails_whatever_method_asks_for_it(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    routes = [route for route in browser.app.routes if isinstance(route, APIRoute)]
    assert len(routes) > 12
    known = {(method, route.path) for route in routes for method in route.methods or ()}
    for route in routes:
        path = route.path.replace("{row}", "3").replace("{file}", "label.css")
        for method in METHODS:
            for headers in ({}, origin(browser)):
                result = browser.request(method, path, headers=headers, follow=False)
                assert result.status_code < 500, (method, path)
                if (method, route.path) not in known:
                    assert result.status_code in (403, 405), (method, path)
    question = queue.task(3)
    assert question is not None and question.state == "open" and not question.answers
    queue.ledger.close()


@pytest.mark.parametrize("row", [0, 3])
def test_a_sample_that_is_no_picture_is_said_to_be_none(tmp_path: Path, row: int) -> None:
    browser = enter(make_queue(tmp_path))
    values = browser.request("GET", f"/picture/{row}")
    assert values.status_code == 404 and "This example has no image" in browser.text


# -- access --------------------------------------------------------------------------------


def test_the_name_of_the_host_is_asked_even_with_the_cookie(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    good = browser.request("GET", "/state")
    assert good.status_code == 200
    wrong = browser.request("GET", "/state", headers={"host": "evil.example:8123"})
    assert wrong.status_code == 421


def test_the_origin_of_a_form_is_asked_even_with_the_cookie(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    fields = {**FIELDS, "row": "3"}
    result = browser.request(
        "POST", "/answer", data=fields, headers={"origin": "http://evil.example"}
    )
    assert result.status_code == 403 and not queue.ledger.history(3)
    assert browser.request(
        "POST", "/answer", data=fields, headers=origin(browser)
    ).is_success
    assert len(queue.ledger.history(3)) == 1


def test_the_cookie_is_asked_even_with_the_right_host_and_origin(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = outside(queue, "Ann")
    fields = {**FIELDS, "row": "3"}
    assert browser.request("GET", "/state").status_code == 403
    result = browser.request("POST", "/answer", data=fields, headers=origin(browser))
    assert result.status_code == 403 and not queue.ledger.history(3)
    browser.cookies.set(browser.access.cookie, "guessed")
    assert browser.request("GET", "/state").status_code == 403


# -- images --------------------------------------------------------------------------------


def images(folder: Path) -> tuple[Browser, Path]:
    """Return a page of twelve images in a folder, and a secret file beside the folder."""
    inside = folder / "rows"
    inside.mkdir()
    rows = picture_rows(inside)
    files = [inside / name for name in rows.ids]
    rows = replace(rows, originals=Originals.of(inside, files))
    secret = folder / "secret.png"
    secret.write_bytes(b"\x89PNG secret")
    return enter(make_queue(folder, DIGITS, rows)), secret


@pytest.mark.parametrize("way", ["link", "folder"])
def test_an_image_swapped_for_a_link_to_outside_is_not_shown(
    tmp_path: Path, way: str
) -> None:
    browser, secret = images(tmp_path)
    inside = tmp_path / "rows"
    assert browser.request("GET", "/picture/3").status_code == 200
    if way == "link":
        (inside / "scan-3.png").unlink()
        (inside / "scan-3.png").symlink_to(secret)
    else:
        inside.rename(tmp_path / "old")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "scan-3.png").write_bytes(secret.read_bytes())
        inside.symlink_to(tmp_path / "elsewhere")
    result = browser.request("GET", "/picture/3")
    assert result.status_code == 400 and b"secret" not in result.content.replace(
        b"secret.png", b""
    )
    assert browser.request("GET", "/sample/3").status_code == 200


def test_an_image_with_other_contents_than_at_the_start_is_not_shown(
    tmp_path: Path,
) -> None:
    browser, secret = images(tmp_path)
    (tmp_path / "rows" / "scan-3.png").write_bytes(secret.read_bytes())
    result = browser.request("GET", "/picture/3")
    assert result.status_code == 400
    assert "has changed since the site started" in browser.text


def test_a_pipe_in_place_of_an_image_holds_nobody_up(tmp_path: Path) -> None:
    import os

    browser, _ = images(tmp_path)
    file = tmp_path / "rows" / "scan-3.png"
    file.unlink()
    os.mkfifo(file)
    assert browser.request("GET", "/picture/3").status_code == 400
    assert "it is not a file" in browser.text


def test_an_image_that_is_a_link_within_its_folder_is_shown(tmp_path: Path) -> None:
    inside = tmp_path / "rows"
    inside.mkdir()
    (inside / "a.png").write_bytes(b"content")
    (inside / "b.png").symlink_to("a.png")
    result = Originals.of(inside, [inside / "a.png", inside / "b.png"])
    assert result.read(1) == b"content"
