"""Write docs/threat-tests.md: tests and planted faults of each numbered line of the threat model.

    python scripts/threat_tests.py

The lines come from the tables of docs/threats.md, their tests from docs/threats.toml, and the faults
that these tests catch from scripts/faults.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "threats.md"
TESTS = ROOT / "docs" / "threats.toml"
APPENDIX = ROOT / "docs" / "threat-tests.md"
FAULTS = ROOT / "scripts" / "faults"
LIMITS = "limits"
"""The entry of attacks that succeed."""
HEAD = """\
---
orphan: true
---

# Tests of the threat model

`scripts/threat_tests.py` makes this page from the numbered lines of the
[threat model](threats.md), `docs/threats.toml` and the faults in `scripts/faults` that these
tests catch (`make mutants`).
`tests/test_threats.py` fails where a line has no test or no planted fault (but for A3), or a test
is missing.

| | threat | tests | planted faults |
|---|---|---|---|
"""


def main() -> None:
    """Write the appendix."""
    page = PAGE.read_text(encoding="utf-8")
    text = appendix(page, read_tests(TESTS), read_faults(FAULTS))
    APPENDIX.write_text(text, encoding="utf-8")
    sys.stdout.write(f"Wrote {APPENDIX.relative_to(ROOT)}\n")


def read_tests(file: Path) -> dict[str, list[str]]:
    """Return the tests of each line, by its number."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def read_faults(folder: Path) -> dict[str, list[str]]:
    """Return the tests that must catch each planted fault, by its name."""
    faults = {}
    for file in sorted(folder.glob("*.toml")):
        for fault in tomllib.loads(file.read_text(encoding="utf-8"))["fault"]:
            faults[fault["name"]] = fault["tests"]
    return faults


def find_faults(tests: Sequence[str], faults: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the faults that one of these tests catches; a file stands for all of its tests.

    >>> find_faults(
    ...     ["a.py::test_b"], {"one": ["a.py::test_b[1]"], "two": ["a.py"], "no": ["b.py"]}
    ... )
    ['one', 'two']
    """
    result = []
    for name, of_fault in faults.items():
        if any(_is_covered(test, other) for test in tests for other in of_fault):
            result.append(name)
    return result


def _is_covered(test: str, other: str) -> bool:
    """Return whether two names are of the same test, or one is the file of the other."""
    file, _, function = test.partition("[")[0].partition("::")
    other_file, _, other_function = other.partition("[")[0].partition("::")
    if not function or not other_function:
        return file == other_file
    return (file, function) == (other_file, other_function)


def numbered_lines(page: str) -> Iterator[tuple[str, str]]:
    """Yield number and threat of each line of the tables whose first column has no title.

    >>> list(
    ...     numbered_lines(
    ...         "| | threat | y |\\n|---|---|---|\\n| C1 | send code | no |\\n| party | z |\\n"
    ...     )
    ... )
    [('C1', 'send code')]
    """
    width = 0
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("| | threat |"):
            width = len(line.split("|"))
        elif not line.startswith("|"):
            width = 0
        elif len(line.split("|")) == width and set(cells[0]) != {"-"}:
            yield cells[0], cells[1]


def appendix(
    page: str,
    tests: Mapping[str, Sequence[str]],
    faults: Mapping[str, Sequence[str]],
) -> str:
    """Return the text of the appendix."""
    lines = [
        (number, threat, tests.get(number, ())) for number, threat in numbered_lines(page)
    ]
    limits = (
        "",
        'attacks that succeed, as "Not protected" says',
        tests.get(LIMITS, ()),
    )
    text = HEAD
    for number, threat, names in [*lines, limits]:
        shown = ", ".join(f"`{name}`" for name in names)
        planted = "; ".join(find_faults(names, faults))
        text += f"| {number} | {threat} | {shown} | {planted} |\n"
    return text


if __name__ == "__main__":
    main()
