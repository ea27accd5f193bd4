"""Pieces of a page: elements that escape their text, tables, figures, and the page itself.

The page loads nothing: its style and figures stand in it, and its policy forbids the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is markup already; every other text is escaped."""

    __slots__ = ()


def el(name: str, *children: str, **attributes: str) -> Html:
    """An element; children that are not `Html` are escaped.  ``class_`` writes ``class``.

    >>> el("td", "a < b", class_="number")
    '<td class="number">a &lt; b</td>'
    """
    inside = "".join(c if isinstance(c, Html) else escape(c) for c in children)
    extra = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{extra}>{inside}</{name}>")


def together(*parts: Html) -> Html:
    """Parts after one another."""
    return Html("\n".join(parts))


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: int = 1,
    classes: Sequence[str] = (),
) -> Html:
    """A captioned table that scrolls sideways when it is wider than the page.

    The first ``words`` columns are text (left), the others numbers (right); ``classes`` gives a
    CSS class per row.
    """

    def side(column: int) -> str:
        return "word" if column < words else "number"

    head = el(
        "tr",
        *(el("th", name, scope="col", class_=side(i)) for i, name in enumerate(header)),
    )
    body = []
    for k, row in enumerate(rows):
        cells = [
            el(
                "td",
                cell if isinstance(cell, Html) else _minus(cell),
                class_=side(i + 1) + " long" * (len(cell) > 24),
            )
            for i, cell in enumerate(row[1:])
        ]
        body.append(
            el(
                "tr",
                el("th", row[0], scope="row", class_="word"),
                *cells,
                class_=classes[k] if classes else "",
            )
        )
    made = el("table", el("caption", caption), el("thead", head), el("tbody", *body))
    return el("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _minus(text: str) -> str:
    """A true minus sign before a number, as wide as the plus sign above it."""
    return re.sub(r"(^|\[|\(|, )-(?=\d)", r"\1−", text)


def picture(svg: str, caption: str) -> Html:
    """A figure with the sentence that says what to see in it."""
    return el("figure", el("div", Html(svg), class_="scroll"), el("figcaption", caption))


def section(title: str, *parts: Html) -> Html:
    """A titled part of a study."""
    return el("section", el("h3", title), *parts)


CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c1d21; --soft: #5b5e66;
  --rule: #d9dade; --faint: #c4c6cc; --band: #f5f6f8; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e7e8ea;
  --soft: #a3a7af; --rule: #3a3e46; --faint: #565b65; --band: #1f2227; --accent: #6db6e3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--soft); margin: 0 0 1.5rem; }
h2 { font-size: 2rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 0.75rem;
  overflow-wrap: anywhere; }
h3 { font-size: 1.2rem; margin: 3rem 0 0.75rem; padding-top: 0.75rem;
  border-top: 1px solid var(--rule); }
article + article { margin-top: 5rem; padding-top: 2rem; border-top: 3px solid var(--rule); }
p { max-width: 44rem; }
p.lead { font-size: 1.15rem; line-height: 1.5; margin: 0; }
p.facts, p.note, figcaption, .notes { color: var(--soft); font-size: 0.9rem; }
.notes { padding-left: 1.1rem; max-width: 46rem; } .notes li { margin: 0.2rem 0; }
nav ul { padding-left: 1.1rem; } a { color: var(--accent); }
.scroll { overflow-x: auto; max-width: 100%; }
figure { margin: 1rem 0 1.5rem; } figcaption { max-width: 44rem; margin-top: 0.4rem; }
svg { display: block; width: 100%; max-width: 46rem; min-width: 23rem; height: auto;
  font-family: inherit; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 0.5rem 0 1rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; white-space: nowrap; font-weight: 600; padding: 0.5rem 0 0.4rem; }
th, td { padding: 0.35rem 0.8rem 0.35rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: baseline; }
th.number, td.number { text-align: right; white-space: nowrap; padding: 0.35rem 0 0.35rem 1rem; }
th.number { white-space: normal; }
th.word, td.word { text-align: left; }
td.word.long { min-width: 14rem; }
thead th { color: var(--soft); font-weight: 500; vertical-align: bottom; }
tbody th { font-weight: 500; white-space: nowrap; }
tr.reference th, tr.reference td { background: var(--band); font-weight: 600; }
tr.bound th, tr.bound td { color: var(--soft); font-style: italic; }
tr.first td, tr.first th { border-top: 2px solid var(--rule); }
pre { background: var(--band); padding: 0.8rem 1rem; overflow-x: auto; font-size: 0.85rem;
  border-radius: 4px; }
.swatch { display: inline-block; width: 0.65em; height: 0.65em; border-radius: 50%;
  margin-right: 0.5em; }
@media (max-width: 36rem) { main { padding: 1.25rem 0.9rem 3rem; } h2 { font-size: 1.6rem; } }
@media print { main { max-width: none; } section { break-inside: avoid; } }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, *parts: Html, refresh: int | None = None) -> str:
    """The whole document; ``refresh``: seconds after which a browser reads it again."""
    again = Html(f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else "")
    head = Html(
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        f'content="{_POLICY}">\n{again}<meta name="viewport" '
        f'content="width=device-width, initial-scale=1">\n{el("title", title)}\n'
        f"<style>{CSS}</style>\n"
    )
    return (
        f"<!doctype html>\n{el('html', el('head', head), el('body', *parts), lang='en')}\n"
    )
