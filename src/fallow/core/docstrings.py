"""Sections of docstrings that are declared once and shared by several classes."""

from __future__ import annotations

import re

HEADING = "    Parameters\n    ----------\n"
NEXT = re.compile(r"^    (?:Attributes|Raises|Notes|References|Examples)\n", re.MULTILINE)
"""Sections after the parameters."""


def add_parameters(doc: str, entries: str) -> str:
    """Return a class docstring with further entries at the end of its parameters."""
    start = max(doc.find(HEADING), 0)
    following = NEXT.search(doc, start)
    end = len(doc)
    if following is not None:
        end = following.start()
    before = doc[:end].rstrip() + "\n"
    if HEADING not in doc:
        before += f"\n{HEADING}"
    return f"{before}{entries.rstrip()}\n\n{doc[end:]}"
