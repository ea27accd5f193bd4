"""docs/input-tests.md: every test of an input is counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.each import each_of
from tests.test_threats import load_script

inputs = load_script("input_tests")


def test_the_page_has_the_numbers_of_today() -> None:
    assert inputs.PAGE.read_text(encoding="utf-8") == inputs.build_page(), (
        "run: python scripts/input_tests.py"
    )


def test_every_module_about_kinds_of_input_is_counted() -> None:
    counted = {name for _, names in inputs.KINDS.values() for name in names}
    files = (inputs.ROOT / "tests" / "data").glob("test_kinds_*.py")
    assert {f"data.{file.stem}" for file in files} <= counted


def plain() -> None:
    """Stand for a test without a table."""


@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", [1, 2, 3])
def crossed(a: int, b: int) -> None:
    """Stand for a test with two tables."""


@each_of("a", "xyz")
def of_rows(a: str) -> None:
    """Stand for a test with a table of `each_of`."""


@pytest.mark.parametrize(("test", "rows"), [(plain, 1), (crossed, 6), (of_rows, 3)])
def test_each_row_of_a_table_is_one_input(test: Any, rows: int) -> None:
    assert inputs.count_rows(test) == rows
