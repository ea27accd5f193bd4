"""Words from outside, made fit to be shown: bounded, printable, on one line."""

from __future__ import annotations

import re
import unicodedata

SENTENCE = 500
"""Characters of a refusal that leaves a site, or that is taken from one."""

TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Characters that change the direction of the text behind them, and so what a reader takes it for."""


def is_unfit(character: str) -> bool:
    """Whether a character could steer a terminal, break a line or turn a text around.

    >>> is_unfit("\\x1b"), is_unfit("\\u202e"), is_unfit("ü"), is_unfit(" ")
    (True, True, False, False)
    """
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or character in TURNING


def plain(text: object, limit: int = SENTENCE) -> str:
    """``text`` on one line of at most ``most`` characters, without any that is unfit to be shown.

    >>> plain("a\\n b\\x1b[31mc", 99), plain("x" * 99, 9)
    ('a b[31mc', 'xxxxxx...')
    """
    whole = str(text)
    start = whole[: 4 * limit + 4]  # what comes behind is cut off in any case
    one_line = " ".join(start.split())
    shown = "".join(character for character in one_line if not is_unfit(character))
    is_cut = len(shown) > limit or len(whole) > len(start)
    if is_cut:
        return f"{shown[: limit - 3].rstrip()}..."
    return shown


def printable(text: str) -> str:
    """``text`` as it is, lines and all, without the characters that are unfit to be shown."""
    return "".join(
        character for character in text if character in "\n\t" or not is_unfit(character)
    )


def one_line(text: str) -> str:
    """``text`` without a character that is unfit to be shown, its lines and tabs joined by spaces:
    so that a name is one cell of a table, or one heading.

    >>> one_line("a\\n\\n# b\\x1b[31m")
    'a # b[31m'
    """
    shown = printable(text)
    if shown.isprintable():  # nothing to join: spaces in a row stay
        return shown
    return " ".join(shown.split())


TAG = re.compile("<(?=[A-Za-z/!?])")
"""How a tag of HTML begins, or a link in brackets; a number may be below another one."""


def markdown_text(text: str) -> str:
    """``text`` in Markdown, headings and lists and all, without what others' words in it could do: a
    tag of HTML, a link, a formula (which may be a link, too), or an image that is loaded from
    elsewhere when somebody opens the page.

    >>> markdown_text("# ![x](http://x.example/) <b> $y$")
    '# ![x]\\\\(http://x.example/) &lt;b> \\\\$y\\\\$'
    """
    no_tags = TAG.sub("&lt;", text)
    no_links = no_tags.replace("](", "]\\(").replace("]:", "]\\:")
    return printable(no_links.replace("$", "\\$"))


def markdown_cell(text: str) -> str:
    """``text`` as a cell of a table in Markdown, in which it ends neither its cell nor its line."""
    escaped = one_line(text).replace("\\", "\\\\").replace("|", "\\|")
    return markdown_text(escaped)


FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""With what a cell begins that a spreadsheet computes instead of showing it; the last four are the
first ones in full width, which some take for the same."""

BEHIND = re.compile(r"(?<=[;\t\r\n])[^;\t\r\n]+")
"""Separators of a spreadsheet that reads a comma-separated file with semicolons or tabs, as in some
locales, and ignores quotes."""


def cell(value: object) -> object:
    r"""A value as a cell of a CSV file: a text that a spreadsheet would run as a formula is led by an
    apostrophe, which `cell_text` takes away again; so is what stands behind a semicolon in it, where
    some spreadsheets begin another cell.  Numbers stay as they are.

    >>> (
    ...     cell('=HYPERLINK("http://x")'),
    ...     cell("-3.5"),
    ...     cell(-3.5),
    ...     cell("a-b"),
    ...     cell("a;=1+1"),
    ... )
    ('\'=HYPERLINK("http://x")', '-3.5', -3.5, 'a-b', "a;'=1+1")
    """
    if not isinstance(value, str):
        return value
    text = BEHIND.sub(_lead_behind, value)
    if _is_formula(text):
        return f"'{text}"
    return text


def cell_text(text: str) -> str:
    """The text that `cell` wrote.

    >>> texts = ("=1+1", "'=1", "'quoted'", "-2", "a;=1", "a;'=1", "a;-2")
    >>> [cell_text(str(cell(text))) for text in texts] == list(texts)
    True
    """
    if text.startswith("'") and _is_formula(text[1:]):
        text = text[1:]
    return BEHIND.sub(_unlead_behind, text)


QUOTES = "'\" "
"""Characters before a formula after a semicolon that a spreadsheet ignores."""


def _lead_behind(match: re.Match[str]) -> str:
    if _is_formula(match[0], QUOTES):
        return f"'{match[0]}"
    return match[0]


def _unlead_behind(match: re.Match[str]) -> str:
    rest = match[0][1:]
    if match[0].startswith("'") and _is_formula(rest, QUOTES):
        return rest
    return match[0]


def _is_formula(text: str, before: str = "'") -> bool:
    """Whether a spreadsheet might compute a text; ``before``: what may stand in front of it."""
    if text.lstrip(before)[:1] not in tuple(FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
