"""Rendering of pages: templates and their functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fallow.report.blocks import Block, Blocks, slug
from fallow.storage.plain import printable

TEMPLATES = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page loads no external resources: styles, figures and files are embedded."""

LONG = 24
"""Cells with more characters may wrap."""


@dataclass(frozen=True)
class Part:
    """Section of an article, with a title."""

    title: str
    id: str
    blocks: Blocks


@dataclass(frozen=True)
class Article:
    """Article about one or several studies; ``id`` is the prefix of all its ids."""

    id: str
    name: str
    title: str = ""
    lead: str = ""
    facts: Sequence[str] = ()
    warnings: Sequence[str] = ()
    parts: Sequence[Part] = ()


@dataclass(frozen=True)
class Page:
    """HTML document; ``refresh`` is the reload interval in seconds."""

    title: str
    articles: Sequence[Article] = field(default_factory=tuple)
    refresh: int | None = None


def parts_of(key: str, sections: Iterable[tuple[str, Blocks]]) -> list[Part]:
    """Return the sections with content, each with a unique id that starts with ``key``."""
    parts: list[Part] = []
    for title, blocks in sections:
        if not blocks:
            continue
        name = f"{key}-{slug(title)}"
        taken = sum(part.id.startswith(name) for part in parts)
        if taken:
            name = f"{name}-{taken + 1}"
        parts.append(Part(title, name, blocks))
    return parts


def render_page(page: Page) -> str:
    """Return the document as text, without control and bidirectional characters."""
    return printable(
        _environment().get_template("page.html").render(page=page, policy=POLICY)
    )


def render_blocks(blocks: Iterable[Block]) -> str:
    """Return blocks as a fragment of a page."""
    return printable(_environment().get_template("piece.html").render(blocks=list(blocks)))


def render_template(name: str, **values: object) -> str:
    """Return another document, from its template."""
    return printable(_environment().get_template(name).render(policy=POLICY, **values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["minus"] = minus
    environment.globals["is_long"] = is_long
    environment.globals["style"] = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    sheet_style = (TEMPLATES / "sheet.css").read_text(encoding="utf-8")
    environment.globals["sheet_style"] = sheet_style
    return environment


def is_long(cell: str) -> bool:
    """Return whether the text of a cell may wrap."""
    return len(cell) > LONG


def minus(text: str) -> str:
    """Return a number with a typographic minus sign, as wide as the plus sign.

    >>> minus("-0.5 [-1.0, +0.2]"), minus("≈ -1")
    ('−0.5 [−1.0, +0.2]', '≈ −1')
    """
    return re.sub(r"(^|\[|\(|, |≈ )-(?=\d)", r"\1−", text)
