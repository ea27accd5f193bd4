"""Test access to the labeling page and its restrictions for browsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.deployment.labeling_page.access import TokenAccess
from fallow.deployment.labeling_page.forms import FIELDS, name_of
from tests.deployment.label_queues import enter, make_queue, outside

PATHS = [
    "/",
    "/name",
    "/sample/3",
    "/conflicts",
    "/mine",
    "/sheet",
    "/withdraw/3",
    "/picture/3",
    "/state",
    "/static/label.css",
    "/favicon.ico",
    "/docs",
    "/openapi.json",
    "/elsewhere",
    # parsed as a whole, these addresses look like the entrance
    "/enter%3F/../sample/3",
    "/enter%23/sample/3",
]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_cookie(tmp_path: Path, path: str) -> None:
    browser = outside(make_queue(tmp_path))
    assert "the latest address that 'fallow label' printed" in browser.get(path)
    assert browser.shown.status_code == 403 and "patient" not in browser.text


def test_nothing_is_changed_without_the_cookie(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = outside(queue)
    browser.post("/answer", {"row": "3", "seen": "", "value": "1"})
    assert browser.shown.status_code == 403 and not queue.ledger.history(3)


def test_only_the_token_of_this_start_opens_the_page(tmp_path: Path) -> None:
    browser = outside(make_queue(tmp_path), "Ann")
    for wrong in ("", "?token=", "?token=another", "?token=the-toke", "?token=%C3%A9"):
        assert "is not the latest one that 'fallow label' printed" in browser.get(
            f"/enter{wrong}"
        )
        assert browser.shown.status_code == 403 and not browser.cookies
    browser.get(browser.access.address)
    assert "Example patient-3" in browser.get()
    assert (
        TokenAccess(1).token != TokenAccess(1).token
        and TokenAccess(1).key != TokenAccess(1).token
    )


def test_the_cookie_is_of_no_use_elsewhere(tmp_path: Path) -> None:
    browser = outside(make_queue(tmp_path), "Ann")
    cookies = browser.request("GET", browser.access.address).headers.get_list("set-cookie")
    assert len(cookies) == 2
    assert all("HttpOnly" in c and "SameSite=strict" in c for c in cookies)
    assert browser.access.token not in "".join(cookies)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8123", "127.0.0.1", "127.0.0.1:80"]
)
def test_another_name_that_leads_here_is_refused(tmp_path: Path, host: str) -> None:
    browser = enter(make_queue(tmp_path))
    for path in ("/", browser.access.address):
        outcome = browser.request("GET", path, headers={"host": host})
        assert outcome.status_code == 421 and "patient" not in browser.text


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:9999", "https://127.0.0.1:8123", "null", ""]
)
def test_a_form_of_another_page_changes_nothing(tmp_path: Path, origin: str) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    headers = {"origin": origin} if origin else {}
    fields = {
        "row": "3",
        "seen": "",
        "value": "1",
        "why": "x",
        "sure": "yes",
        "name": "Eve",
    }
    for path in ("/answer", "/withdraw", "/name", "/undo", "/resolve"):
        assert (
            browser.request("POST", path, data=fields, headers=headers).status_code == 403
        )
    question = queue.task(3)
    assert question is not None and question.state == "open" and not question.answers


def test_every_answer_forbids_what_comes_from_elsewhere(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    for path in ("/", "/static/label.js", "/state", "/nowhere", "/sample/99"):
        headers = browser.request("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_pages_name_no_other_machine_and_hold_no_code(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    for path in ("/", "/conflicts", "/mine", "/withdraw/3", "/name"):
        page = browser.request("GET", path).text
        assert "//" not in page and "style=" not in page and "onclick" not in page
        assert (
            page.count("<script") == 1 and '<script src="/static/label.js" defer>' in page
        )


def test_files_beside_the_static_ones_cannot_be_had(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    for path in ("/static/..%2fapp.py", "/static/app.py", "/static/%2e%2e/app.py"):
        assert browser.request("GET", path).status_code == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"row=3&" + b"x" * 70_000, "the form is too long"),
        (b"row=%ff&seen=&value=1", "the form cannot be read"),
        (b"\xff", "the form cannot be read"),
        (b"&".join(b"a=1" for _ in range(FIELDS + 1)), "the form cannot be read"),
        (b'{"row": 3}', "the form has no field 'row'"),
        (b"", "the form has no field 'row'"),
    ],
)
def test_a_form_that_is_none_is_refused_in_words(
    tmp_path: Path, body: bytes, message: str
) -> None:
    browser = enter(make_queue(tmp_path))
    headers = {"origin": f"http://{browser.access.hosts[0]}"}
    response = browser.request("POST", "/answer", content=body, headers=headers)
    assert response.status_code == 400 and message in browser.text


def test_somebody_says_who_they_are_before_they_label(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue, annotator=None)
    assert "Who is labeling?" in browser.get()
    assert browser.path == "/name"
    fields = {"row": "3", "seen": "", "value": "1"}
    assert "Who is labeling?" in browser.post("/answer", fields)
    assert not queue.ledger.history(3)
    assert "is not a valid name" in browser.post("/name", {"name": " =cmd"})
    assert 'value=" =cmd"' in browser.shown.text
    assert "Zoë Müller change" in browser.post("/name", {"name": " Zoë  Müller "})
    browser.send("/answer", value="1")
    assert queue.ledger.history(3)[0].annotator == "Zoë Müller"


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "a\x00b", "-Ann", "‮Ann"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name"):
        name_of(name)
