"""A real browser for tests of the labeling page, where there is one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
NEEDS = [
    pytest.mark.long,
    pytest.mark.processes,
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None, reason="playwright is not installed"
    ),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium without a window, ended with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


def browser_test(test: Any) -> Any:
    """A test that is passed over where there is no browser."""
    for mark in NEEDS:
        test = mark(test)
    return test
