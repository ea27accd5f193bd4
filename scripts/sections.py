"""Sections of a page that scripts write, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

from __future__ import annotations


def replace_section(page: str, name: str, text: str) -> str:
    """Return the page with this text between the marks of a section.

    Raises ValueError unless the page has one such section.
    """
    begin = f"<!-- begin {name} -->\n"
    end = f"<!-- end {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(
            f"the page is to have one section {name}, between {begin} and {end}"
        )
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n{text.strip()}\n\n{end}{after}"
