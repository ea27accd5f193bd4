"""Links between documents lead to existing files and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?!\w+:)(?P<file>[^)#\s]*)(?:#(?P<heading>[^)\s]*))?\)")
"""A Markdown link that is no address on the web: ``[...](file.md#heading)``."""
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def documents(root: Path) -> list[Path]:
    folders = (root / "docs", root / "studies")
    return [
        *sorted(root.glob("*.md")),
        *(page for folder in folders for page in sorted(folder.rglob("*.md"))),
    ]


def anchor(heading: str) -> str:
    """Return the anchor of a heading by GitHub's rule.

    >>> anchor("2. The sites join"), anchor("Masked rows (FALE)")
    ('2-the-sites-join', 'masked-rows-fale')
    """
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page; the second of equal headings ends with ``-1``."""
    outcome: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page), re.MULTILINE):
        name = anchor(heading)
        outcome[name] = outcome.get(name, -1) + 1
    return {
        name if number == 0 else f"{name}-{number}"
        for name, many in outcome.items()
        for number in range(many + 1)
    }


def broken_links(root: Path) -> Iterator[str]:
    """Return ``page: link`` for every broken link of the documents."""
    for page in documents(root):
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        for link in LINK.finditer(text):
            target = page.parent / link["file"] if link["file"] else page
            is_there = target.exists()
            if is_there and link["heading"] and target.suffix == ".md":
                is_there = link["heading"] in anchors(target.read_text(encoding="utf-8"))
            if not is_there:
                yield f"{page.relative_to(root)}: {link.group()[2:-1]}"


def test_every_link_between_documents_leads_somewhere() -> None:
    assert list(broken_links(REPOSITORY)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("# One\n\n```text\n# Two\n```\n\n# One\n")
    (tmp_path / "a.md").write_text(
        "[1](docs/b.md) [2](docs/b.md#one) [3](docs/b.md#one-1) [4](https://example.org/#x)\n"
        "[5](docs/b.md#two) [6](docs/c.md) [7](#here)\n"
    )
    assert list(broken_links(tmp_path)) == [
        "a.md: docs/b.md#two",
        "a.md: docs/c.md",
        "a.md: #here",
    ]
