"""The documentation stays within its planned number of words per part, 28,900 in all.

A longer page requires a shorter one in the same part. Generated pages (settings, the list
of tests of the threat model) and code of tutorials are not counted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

PARTS = {
    "README": (300, ["README.md"]),
    "home": (250, ["docs/index.md"]),
    "tutorials": (5000, ["docs/three-sites.md", "docs/tutorials/*.py"]),
    "how-to": (
        10_300,  # 300 of them on several labels per example
        [
            "docs/choose-strategy.md",
            "docs/deployment.md",
            "docs/extend.md",
            "docs/installing.md",
            "docs/integrations.md",
            "docs/labeling-tools.md",
            "docs/load-data.md",
            "docs/operating.md",
            "docs/personalized.md",
            "docs/read-report.md",
            "docs/scale-out.md",
            "docs/tracking.md",
            "docs/train.md",
            "docs/transports.md",
        ],
    ),
    "cases": (450, ["docs/cases.md"]),
    "explanation": (
        8000,
        [
            "docs/a-round.md",
            "docs/closed-form.md",
            "docs/disclosure.md",
            "docs/privacy.md",
            "docs/statistics.md",
            "docs/threats.md",
            "docs/what-leaves.md",
        ],
    ),
    "results": (3000, ["docs/results.md"]),
    "approval sheet": (800, ["docs/approval-sheet.md"]),
    "architecture": (2000, ["docs/architecture.md"]),
}
"""Part -> the number of words that it may have, and its pages."""

GENERATED = {"settings.md", "threat-tests.md", "input-tests.md"}
WHOLE = 28_900


def pages_of(part: str) -> list[Path]:
    """Return the files of a part."""
    return [path for pattern in PARTS[part][1] for path in sorted(ROOT.glob(pattern))]


def count_words(path: Path) -> int:
    """Return the number of words of a file, as ``wc -w`` counts them."""
    return len(path.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_documentation_keeps_its_size(part: str) -> None:
    words = {path.name: count_words(path) for path in pages_of(part)}
    assert 0 < sum(words.values()) <= PARTS[part][0], words


def test_all_parts_together_keep_their_size() -> None:
    words = {part: sum(map(count_words, pages_of(part))) for part in PARTS}
    assert sum(words.values()) <= WHOLE, words


def test_every_page_is_in_a_part() -> None:
    counted = {path for part in PARTS for path in pages_of(part)}
    pages = {path for path in DOCS.glob("*.md") if path.name not in GENERATED}
    assert pages <= counted
