"""Write docs/threat-tests.md: the tests of each numbered line of the threat model.

    python scripts/threat_tests.py

The lines come from the tables of docs/threats.md, their tests from docs/threats.toml.
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
LIMITS = "limits"
"""The entry of attacks that succeed."""
HEAD = """\
---
orphan: true
---

# Tests of the threat model

`scripts/threat_tests.py` makes this page from the numbered lines of the
[threat model](threats.md) and from `docs/threats.toml`.
`tests/test_threats.py` fails where a line has no test or a test is missing.

| | threat | tests |
|---|---|---|
"""


def main() -> None:
    """Write the appendix."""
    text = appendix(PAGE.read_text(encoding="utf-8"), read_tests(TESTS))
    APPENDIX.write_text(text, encoding="utf-8")
    sys.stdout.write(f"Wrote {APPENDIX.relative_to(ROOT)}\n")


def read_tests(file: Path) -> dict[str, list[str]]:
    """Return the tests of each line, by its number."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


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


def appendix(page: str, tests: Mapping[str, Sequence[str]]) -> str:
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
        text += f"| {number} | {threat} | {', '.join(f'`{name}`' for name in names)} |\n"
    return text


if __name__ == "__main__":
    main()
