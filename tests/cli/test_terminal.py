"""Progress messages of long-running commands."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from fallow.cli import terminal
from fallow.cli.terminal import Spinner
from tests.cli.conftest import Command


def to_text() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, width=200), screen


def test_nothing_is_said_of_what_is_quick() -> None:
    console, screen = to_text()
    with Spinner(console, "reading a.csv") as words:
        words.tell_bytes(5, 10)
    assert screen.getvalue() == ""


def test_what_takes_longer_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.01)
    console, screen = to_text()
    with Spinner(console, "reading a.csv"):
        time.sleep(0.2)
    assert screen.getvalue() == "reading a.csv ...\n"


def test_bytes_are_said_now_and_then_but_not_at_the_end() -> None:
    console, screen = to_text()
    with Spinner(console, "reading a.csv") as words:
        words._shown = -100.0  # time of the next line
        words.tell_bytes(60_000_000, 150_000_000)
        words.tell_bytes(90_000_000, 150_000_000)
        words._shown = -100.0
        words.tell_bytes(150_000_000, 150_000_000)
    assert screen.getvalue() == "reading a.csv: 60.0 MB of 150.0 MB\n"


def test_a_terminal_shows_the_bytes_in_one_line() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True)
    with Spinner(console, "reading a.csv") as words:
        words.tell_bytes(3_000_000, 9_000_000)
        time.sleep(0.3)
    assert "reading a.csv: 3.0 MB of 9.0 MB" in screen.getvalue()


def test_the_line_goes_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.05)
    console, screen = to_text()
    with pytest.raises(ValueError, match="bad"), Spinner(console, "reading a.csv"):
        raise ValueError("bad")
    time.sleep(0.1)
    assert screen.getvalue() == ""


@pytest.mark.long
def test_a_dry_run_says_what_it_waits_for(
    fallow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    words = ("compare", "patients.csv", "--label", "sick", "--set", "encoder=identity")
    shown = fallow(*words, "--dry-run").out
    assert "reading patients.csv ..." in shown
    assert "timing two short rounds per configuration ..." in shown
    quiet = fallow(*words, "--dry-run", "--quiet")
    assert quiet.out == ""
