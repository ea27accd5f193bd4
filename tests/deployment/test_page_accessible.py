"""Test with axe in a real browser that every page of a site is accessible."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.site.rows import ReadableRow
from tests.deployment.browser import NEEDS, chromium
from tests.deployment.label_queues import (
    BLIND,
    DIGITS,
    DOSE,
    FACTS,
    GUIDED,
    guess,
    make_checks,
    make_queue,
    picture_rows,
    running,
    table_rows,
)

LOOKS = [("light", 1280, "en"), ("dark", 400, "de")]
VIOLATIONS = """axe.run().then(found => found.violations.map(rule =>
    `${rule.id}: ${rule.nodes.map(node => node.html).join(" ")}`))"""
pytestmark = NEEDS


def describe_text(row: int) -> ReadableRow:
    return (("report", "No acute findings. The heart is of normal size. " * 20, ""),)


def make_queues(folder: Path) -> Iterator[tuple[LabelQueue, list[str]]]:
    """Yield queues of each kind of input, with the addresses to look at."""
    for name in ("images", "text", "dose", "done", "check", "guided", "grid"):
        (folder / name).mkdir()
    table = make_queue(folder, asked={3: {"predicted": 1.0}, 1: {}, 4: {}, 5: {}})
    table.ledger.answer(1, 1.0, "Ann")
    table.ledger.answer(1, 0.0, "Bo")
    table.ledger.answer(5, None, "Ann", reason="other: the wrong eye")
    table = replace(table, describe_data=lambda: FACTS, guideline="Label what you see.")
    pages = ["/", "/sample/5", "/sample/1", "/conflicts", "/mine", "/data", "/withdraw/4"]
    yield table, [*pages, "/name", "/sample/9", "/nowhere"]
    yield make_queue(folder / "images", DIGITS, picture_rows(folder / "images")), ["/"]
    text = replace(table_rows(), describe=describe_text)
    yield make_queue(folder / "text", rows=text), ["/"]
    yield make_queue(folder / "dose", DOSE), ["/"]
    yield make_queue(folder / "done", asked=()), ["/"]
    yield make_checks(folder / "check"), ["/", "/suspicious"]
    asked: dict[int, Reasons] = {3: guess(1, 0.6), 4: guess(1, 0.7), 5: BLIND}
    guided = make_queue(folder / "guided", asked=asked)
    yield replace(guided, plan=GUIDED), ["/", "/sample/5", "/sheet"]
    grid = make_queue(folder / "grid", DIGITS, picture_rows(folder / "grid"), asked=asked)
    yield replace(grid, plan=GUIDED), ["/sheet"]


@pytest.mark.parametrize(("scheme", "width", "language"), LOOKS)
def test_axe_finds_no_violation_on_any_page(
    tmp_path: Path, scheme: str, width: int, language: str
) -> None:
    script = importlib.import_module("axe_playwright_python.base").AXE_SCRIPT
    violations: dict[str, list[str]] = {}
    seen = 0

    def check(page: Any, name: str) -> None:
        nonlocal seen
        seen += 1
        for details in page.locator("details").all():
            details.evaluate("it => { it.open = true }")
        page.screenshot(path=tmp_path / f"{name}-{scheme}.png", full_page=True)
        page.evaluate(script)
        if problems := page.evaluate(VIOLATIONS):
            violations[name] = problems
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate("document.documentElement.lang") == language

    with chromium() as browser, ExitStack() as stack:
        for number, (queue, paths) in enumerate(make_queues(tmp_path)):
            access = stack.enter_context(running(queue, "Ann"))
            context = browser.new_context(
                viewport={"width": width, "height": 800},
                color_scheme=scheme,
                locale=language,
            )
            page = context.new_page()
            page.goto(f"http://{access.hosts[0]}/")  # without the cookie
            check(page, f"{number}-refused")
            page.goto(access.address)
            page.wait_for_url("**/")
            for path in paths:
                page.goto(f"http://{access.hosts[0]}{path}")
                check(page, f"{number}{path.replace('/', '-')}")
            context.close()
    assert violations == {} and seen == 28
