"""Writes docs/settings.md, or says with --check whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from fallow.settings.page import settings_page

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def main() -> int:
    """Write the page; with --check, return 1 where it is not what would be written."""
    text = settings_page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is not current: python scripts/settings_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
