"""Words from outside, made fit to be shown: bounded, printable, on one line."""

from __future__ import annotations

import unicodedata

SENTENCE = 500
"""Characters of a refusal that leaves a site, or that is taken from one."""

TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
"""Characters that change the direction of the text behind them, and so what a reader takes it for."""


def is_unfit(character: str) -> bool:
    """Whether a character could steer a terminal, break a line or turn a text around.

    >>> is_unfit("\\x1b"), is_unfit("\\u202e"), is_unfit("ü"), is_unfit(" ")
    (True, True, False, False)
    """
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or character in TURNING


def plain(text: object, most: int = SENTENCE) -> str:
    """``text`` on one line of at most ``most`` characters, without any that is unfit to be shown.

    >>> plain("a\\n b\\x1b[31mc", 99), plain("x" * 99, 9)
    ('a b[31mc', 'xxxxxx...')
    """
    whole = str(text)
    start = whole[: 4 * most + 4]  # what comes behind is cut off in any case
    one_line = " ".join(start.split())
    shown = "".join(character for character in one_line if not is_unfit(character))
    is_cut = len(shown) > most or len(whole) > len(start)
    if is_cut:
        return f"{shown[: most - 3].rstrip()}..."
    return shown


def printable(text: str) -> str:
    """``text`` as it is, lines and all, without the characters that are unfit to be shown."""
    return "".join(
        character for character in text if character in "\n\t" or not is_unfit(character)
    )


def markdown_text(text: str) -> str:
    """``text`` in Markdown, headings and lists and all, without what others' words in it could do: a
    tag of HTML, a link, or an image that is loaded from elsewhere when somebody opens the page.

    >>> markdown_text("# ![x](http://x.example/) <b>")
    '# ![x]\\\\(http://x.example/) &lt;b>'
    """
    return text.replace("<", "&lt;").replace("](", "]\\(").replace("]:", "]\\:")


FORMULA = "=+-@\t\r"
"""With what a cell begins that a spreadsheet computes instead of showing it."""


def cell(value: object) -> object:
    """A value as a cell of a CSV file: a text that a spreadsheet would run as a formula is led by an
    apostrophe, which `cell_text` takes away again.  Numbers stay as they are.

    >>> cell('=HYPERLINK("http://x")'), cell("-3.5"), cell(-3.5), cell("a-b")
    ('\\'=HYPERLINK("http://x")', '-3.5', -3.5, 'a-b')
    """
    if isinstance(value, str) and _is_formula(value):
        return f"'{value}"
    return value


def cell_text(text: str) -> str:
    """The text that `cell` wrote.

    >>> [cell_text(cell(text)) for text in ("=1+1", "'=1", "'quoted'", "-2")]
    ['=1+1', "'=1", "'quoted'", '-2']
    """
    if text.startswith("'") and _is_formula(text[1:]):
        return text[1:]
    return text


def _is_formula(text: str) -> bool:
    if text.lstrip("'")[:1] not in tuple(FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
