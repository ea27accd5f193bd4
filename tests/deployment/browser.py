"""Run tests of the labeling page in a real browser, if one is installed."""

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
    """Run headless Chromium and close it at the end of the block."""
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
    """Mark a test as skipped if no browser is installed."""
    for mark in NEEDS:
        test = mark(test)
    return test
