"""From values to a page: the templates, and what they may call."""

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
"""The page loads nothing: its style, figures and files stand in it."""

LONG = 24
"""Cells of more characters may break."""


@dataclass(frozen=True)
class Part:
    """A titled part of an article."""

    title: str
    id: str
    blocks: Blocks


@dataclass(frozen=True)
class Article:
    """A study, or what several studies show together.  ``id`` starts every id in it."""

    id: str
    name: str
    title: str = ""
    lead: str = ""
    facts: Sequence[str] = ()
    warnings: Sequence[str] = ()
    parts: Sequence[Part] = ()


@dataclass(frozen=True)
class Page:
    """The whole document; ``refresh``: seconds after which a browser reads it again."""

    title: str
    articles: Sequence[Article] = field(default_factory=tuple)
    refresh: int | None = None


def parts_of(key: str, found: Iterable[tuple[str, Blocks]]) -> list[Part]:
    """The parts that have anything to show, each with an id of its own below ``key``."""
    parts: list[Part] = []
    for title, blocks in found:
        if not blocks:
            continue
        name = f"{key}-{slug(title)}"
        taken = sum(part.id.startswith(name) for part in parts)
        if taken:
            name = f"{name}-{taken + 1}"
        parts.append(Part(title, name, blocks))
    return parts


def render_page(page: Page) -> str:
    """The document as text, without what turns names in it around or steers a terminal."""
    return printable(
        _environment().get_template("page.html").render(page=page, policy=POLICY)
    )


def render_blocks(blocks: Iterable[Block]) -> str:
    """Blocks alone, as a piece of a page."""
    return printable(_environment().get_template("piece.html").render(blocks=list(blocks)))


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
    return environment


def is_long(cell: str) -> bool:
    """Whether the text of a cell may break."""
    return len(cell) > LONG


def minus(text: str) -> str:
    """A true minus sign before a number, as wide as the plus sign above it.

    >>> minus("-0.5 [-1.0, +0.2]"), minus("≈ -1")
    ('−0.5 [−1.0, +0.2]', '≈ −1')
    """
    return re.sub(r"(^|\[|\(|, |≈ )-(?=\d)", r"\1−", text)
