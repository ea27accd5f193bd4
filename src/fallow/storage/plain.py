"""Safe display of untrusted text: limited, printable, on one line, or in CSV files."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

SENTENCE = 500
"""Maximum number of characters of an error message that a site sends or accepts."""

UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters without a width, which hide text, or reverse the text that follows (Unicode's
Default_Ignorable_Code_Point), and the blank Braille pattern, which has no dots."""

JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""Characters of `UNSEEN` that scripts from Arabic to Mongolian and pictographs need."""


def is_unfit(character: str, before: str = "") -> bool:
    """Return whether a character could control a terminal, break a line, hide or reverse a text.

    ``before`` is the character before it, after which a joiner may be part of a word.

    >>> (
    ...     is_unfit("\\x1b"),
    ...     is_unfit("\\u202e"),
    ...     is_unfit("\\u200b"),
    ...     is_unfit("ü"),
    ...     is_unfit(" "),
    ... )
    (True, True, True, False, False)
    >>> (
    ...     is_unfit("\\u200c", "\\u06cc"),
    ...     is_unfit("\\u200c", "a"),
    ...     is_unfit("\\ufe0f", "\\ufe0f"),
    ... )
    (False, True, True)
    """
    if character in JOINERS and before:
        kind = unicodedata.category(before)
        is_script = "\u0600" <= before < "\u2000" and kind[0] in "LM"
        is_picture = before >= "\u00a0" and kind[0] == "S"
        is_sequence = before == "\ufe0f" and character == "\u200d"  # of pictographs
        return not (is_script or is_picture or is_sequence)
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or UNSEEN.match(character) is not None


def remove_unfit(text: str, keep: str = "") -> str:
    """Return ``text`` without unfit characters, except those in ``keep``."""
    shown: list[str] = []
    before = ""
    for character in text:
        if character in keep or not is_unfit(character, before):
            shown.append(character)
            before = character
    return "".join(shown)


def plain(text: object, limit: int = SENTENCE) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, without unprintable ones.

    >>> plain("a\\n b\\x1b[31mc", 99), plain("x" * 99, 9)
    ('a b[31mc', 'xxxxxx...')
    """
    whole = str(text)
    start = whole[: 4 * limit + 4]  # the rest is cut off in any case
    one_line = " ".join(start.split())
    shown = remove_unfit(one_line)
    is_cut = len(shown) > limit or len(whole) > len(start)
    if is_cut:
        return f"{shown[: limit - 3].rstrip()}..."
    return shown


def printable(text: str) -> str:
    """Return ``text`` with its lines, without unprintable characters."""
    return remove_unfit(text, keep="\n\t")


def one_line(text: str) -> str:
    """Return ``text`` on one line, as a table cell or a heading, without unprintable characters.

    >>> one_line("a\\n\\n# b\\x1b[31m")
    'a # b[31m'
    """
    shown = printable(text)
    if shown.isprintable():  # nothing to join: consecutive spaces remain
        return shown
    return " ".join(shown.split())


TAG = re.compile("<(?=[A-Za-z/!?])")
"""Start of an HTML tag or of a link in brackets; a comparison of numbers is not one."""


def markdown_text(text: str) -> str:
    """Escape ``text`` for Markdown, so that untrusted parts have no effect.

    Headings and lists are kept. HTML tags, links, formulas (which may contain links) and images,
    which would be loaded when the page is opened, are escaped.

    >>> markdown_text("# ![x](http://x.example/) <b> $y$")
    '# ![x]\\\\(http://x.example/) &lt;b> \\\\$y\\\\$'
    """
    no_tags = TAG.sub("&lt;", text)
    no_links = no_tags.replace("](", "]\\(").replace("]:", "]\\:")
    return printable(no_links.replace("$", "\\$"))


def markdown_cell(text: str) -> str:
    """Escape ``text`` as one cell of a Markdown table."""
    escaped = one_line(text).replace("\\", "\\\\").replace("|", "\\|")
    return markdown_text(escaped)


FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""Start of a cell that a spreadsheet evaluates as a formula; the last four are full-width
characters, which some programs treat alike."""

BEHIND = re.compile(r"(?<=[;\t\r\n])[^;\t\r\n]+")
"""Separators of spreadsheets that read a comma-separated file with semicolons or tabs and ignore
quotes."""


def cell(value: object) -> object:
    r"""Escape a value as a cell of a CSV file; numbers are unchanged.

    A text that a spreadsheet would evaluate as a formula is preceded by an apostrophe, which
    `cell_text` removes. The same applies after a semicolon in the text, where some spreadsheets
    start a new cell.

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
    """Return the original text of a cell that `cell` wrote.

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
    """Return whether a spreadsheet might evaluate a text; ``before``: characters that may precede
    it."""
    if text.lstrip(before)[:1] not in tuple(FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def csv_content(names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Return a table of plain values as CSV (UTF-8, with a header, line ends of RFC 4180).

    ``names``: column names. ``rows``: one value per column, None for an empty cell. `cell` escapes
    text that a spreadsheet would execute as a formula.

    >>> csv_content(["id", "score"], [["=1+1", 0.5], ["b", None]])
    b"id,score\\r\\n'=1+1,0.5\\r\\nb,\\r\\n"
    """
    return join_csv([names, *rows], cell, "\r\n").encode()


def join_csv(
    lines: Iterable[Sequence[object]], escape: Callable[[object], object], line_end: str
) -> str:
    """Return lines of cells as CSV; ``escape`` is applied to each cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=line_end)
    for line in lines:
        writer.writerow([escape(value) for value in line])
    return text.getvalue()
