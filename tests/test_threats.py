"""docs/threats.md: every row names a test, and every test that the page names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "threats.md"
NAMED = re.compile(r"`(?P<file>tests/[\w/]+\.py)?(?:::(?P<test>test_\w+))?`")
"""A test in code marks: a file, a test in it, or a test in the file that was named before."""


def rows_of_attacks(page: str) -> Iterator[list[str]]:
    """The cells of each row of the tables whose last column is called ``test``."""
    is_inside = False
    for line in page.splitlines():
        if not line.startswith("|"):
            is_inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[-1] == "test":
            is_inside = True
        elif is_inside and set(cells[-1]) != {"-"}:
            yield cells


def named_tests(text: str) -> Iterator[tuple[str, str | None]]:
    """(file, test) of every test that a text names; None: the whole file."""
    file = ""
    for found in NAMED.finditer(text):
        file = found["file"] or file
        if found["file"] or found["test"]:
            yield file, found["test"]


def missing(root: Path, tests: Sequence[tuple[str, str | None]]) -> list[str]:
    """Which of these tests are not there, as pytest calls them."""
    lost = []
    for file, test in tests:
        path = root / file
        if not path.is_file():
            lost.append(file)
        elif test is not None and test not in functions(path):
            lost.append(f"{file}::{test}")
    return lost


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of the functions that a file defines at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_test_that_the_page_of_threats_names_is_there() -> None:
    named = list(named_tests(PAGE.read_text(encoding="utf-8")))
    assert len(named) > 50
    assert missing(REPOSITORY, named) == []


def test_every_attack_of_the_page_has_a_test() -> None:
    rows = list(rows_of_attacks(PAGE.read_text(encoding="utf-8")))
    assert len(rows) > 50
    assert [row[0] for row in rows if not list(named_tests(row[-1]))] == []


def test_no_table_has_a_row_of_another_width() -> None:
    """A bar in a cell would push the test of a row out of its column."""
    width = 0
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = line.count("|") if line.startswith("|") else 0
        assert cells in (0, width) or width == 0, line
        width = cells


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("`tests/test_one.py`", []),
        ("`tests/test_one.py::test_a`", []),
        ("`tests/test_one.py::test_b`", ["tests/test_one.py::test_b"]),
        ("`tests/test_one.py::test_a`, `::test_c`", ["tests/test_one.py::test_c"]),
        ("`tests/two/test_two.py::test_a`", ["tests/two/test_two.py"]),
    ],
)
def test_a_test_that_is_not_there_is_found(
    tmp_path: Path, text: str, lost: list[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_a() -> None: ...\n")
    assert missing(tmp_path, list(named_tests(text))) == lost


def test_only_rows_under_a_column_of_tests_are_attacks() -> None:
    page = (
        "| party | trust |\n|---|---|\n| a site | much |\n\n"
        "| what | test |\n|---|---|\n| x | `y` |\n"
    )
    assert list(rows_of_attacks(page)) == [["x", "`y`"]]
