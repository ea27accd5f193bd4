"""docs/threats.md: every numbered line has existing tests, listed in the appendix."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
WORDS = 2000  # of the page, as ``wc -w`` counts them


def load_script(name: str) -> Any:
    """Import a script that is in no package, with the scripts beside it on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "scripts"))
        return import_module(name)


threats = load_script("threat_tests")


def missing(root: Path, tests: Iterable[str]) -> list[str]:
    """Return the tests, by pytest's names, that do not exist."""
    lost = []
    for name in tests:
        file, _, test = name.partition("::")
        path = root / file
        if not path.is_file() or (test and test not in functions(path)):
            lost.append(name)
    return lost


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of the functions at the top level of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def page() -> str:
    return str(threats.PAGE.read_text(encoding="utf-8"))


def test_every_line_of_the_threat_model_has_a_test() -> None:
    numbers = [number for number, _ in threats.numbered_lines(page())]
    tests = threats.read_tests(threats.TESTS)
    assert len(numbers) > 50
    assert len(numbers) == len(set(numbers))
    assert {*numbers, threats.LIMITS} == tests.keys()
    assert [number for number, names in tests.items() if not names] == []


def test_every_line_of_the_threat_model_has_a_planted_fault() -> None:
    faults = threats.read_faults(threats.FAULTS)
    tests = threats.read_tests(threats.TESTS)
    bare = [
        number for number, names in tests.items() if not threats.find_faults(names, faults)
    ]
    assert bare == ["A3"]  # no fault is planted in the script that plants them


def test_every_test_of_the_threat_model_is_there() -> None:
    tests = threats.read_tests(threats.TESTS)
    named = [name for names in tests.values() for name in names]
    assert len(named) > 200
    assert missing(REPOSITORY, named) == []


def test_the_appendix_lists_the_tests_of_each_line() -> None:
    tests = threats.read_tests(threats.TESTS)
    made = threats.appendix(page(), tests, threats.read_faults(threats.FAULTS))
    assert threats.APPENDIX.read_text(encoding="utf-8") == made, (
        "run: python scripts/threat_tests.py"
    )


def test_the_page_stays_short() -> None:
    assert len(page().split()) <= WORDS


def test_no_table_has_a_row_of_another_width() -> None:
    """Check the width of rows, which an unescaped bar in a cell would change."""
    width = 0
    for line in page().splitlines():
        cells = line.count("|") if line.startswith("|") else 0
        assert cells in (0, width) or width == 0, line
        width = cells


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("tests/test_one.py", []),
        ("tests/test_one.py::test_a", []),
        ("tests/test_one.py::test_b", ["tests/test_one.py::test_b"]),
        ("tests/two/test_two.py::test_a", ["tests/two/test_two.py::test_a"]),
    ],
)
def test_a_test_that_is_not_there_is_noticed(
    tmp_path: Path, name: str, lost: list[str]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_a() -> None: ...\n")
    assert missing(tmp_path, [name]) == lost


def test_a_line_without_tests_shows_in_the_appendix() -> None:
    lines = "| | threat | what stops it |\n|---|---|---|\n| C1 | send code | nothing |\n"
    tests = {"C1": ["tests/test_one.py::test_a"]}
    faults = {"code is run": ["tests/test_one.py::test_a[1]"], "other": ["tests/b.py"]}
    made = threats.appendix(lines, tests, faults)
    assert re.findall(r"^\| C1 .*$", made, re.MULTILINE) == [
        "| C1 | send code | `tests/test_one.py::test_a` | code is run |"
    ]
    assert "| C1 | send code |  |  |" in threats.appendix(lines, {}, faults)
