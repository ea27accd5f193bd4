"""Numbers and lists in sentences, and shared sections of docstrings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence


def compose(text: str) -> str:
    """Return a text in the composed form of Unicode (NFC), in which equal texts look equal.

    >>> len("u\u0308"), len(compose("u\u0308"))
    (2, 1)
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def join_words(names: Sequence[str], *, last: str = "and") -> str:
    """Join names in a sentence; ``last`` is the word before the last one.

    >>> join_words(["a", "b", "c"]), join_words(["a", "b"], last="or"), join_words([])
    ('a, b and c', 'a or b', '')
    """
    if not names:
        return ""
    *others, end = names
    if not others:
        return end
    return f"{', '.join(others)} {last} {end}"


def count_noun(number: int, name: str) -> str:
    """Format a number with its noun.

    >>> count_noun(1, "seed"), count_noun(2, "seed")
    ('1 seed', '2 seeds')
    """
    if number == 1:
        return f"{number} {name}"
    return f"{number} {name}s"


SMALL = 5
"""Positive counts of examples below this one are not shown to people."""


def show_count(count: int) -> str:
    """Format a number of examples; from 1 to 4 it is "<5", as statistical offices write it.

    >>> show_count(0), show_count(4), show_count(1234)
    ('0', '<5', '1,234')
    """
    if is_small(count):
        return f"<{SMALL}"
    return f"{count:,}"


def show_part(part: int, whole: int) -> str:
    """Format how many of a known number of examples; a small part is a range.

    >>> show_part(3, 120), show_part(3, 4), show_part(0, 4), show_part(1, 1)
    ('<5 of 120', '1 to 4 of 4', '0 of 4', '1 of 1')
    """
    if is_small(part) and 1 < whole < SMALL:
        return f"1 to {whole} of {whole}"
    if whole == 1:
        return f"{part} of 1"
    return f"{show_count(part)} of {whole}"


def round_up(count: int) -> int:
    """Return a number of examples for a picture, in which small ones look equal.

    >>> [round_up(count) for count in (0, 1, 4, 6)]
    [0, 5, 5, 6]
    """
    if is_small(count):
        return SMALL
    return count


def is_small(count: float) -> bool:
    """Return whether a number of examples, and a score over these, is not shown."""
    return 0 < count < SMALL


def join_disclosures(disclosures: Mapping[str, str]) -> str:
    """Join different disclosures; "nothing" is omitted beside others.

    disclosures: client function -> what its reply discloses.

    >>> join_disclosures(
    ...     {"count": "labels per class", "take": "nothing", "again": "labels per class"}
    ... )
    'labels per class'
    >>> join_disclosures({"take": "nothing"})
    'nothing'
    """
    different = list(dict.fromkeys(disclosures.values()))
    some = [disclosure for disclosure in different if disclosure != "nothing"]
    return "; ".join(some or different)


def was_or_were(number: int) -> str:
    """Return the form of "to be" for a number of things.

    >>> was_or_were(1), was_or_were(2)
    ('was', 'were')
    """
    if number == 1:
        return "was"
    return "were"


SOME = 6
"""Number of names that are listed before the rest is counted."""


def join_some(names: Sequence[str]) -> str:
    """Join names in a sentence, and count those beyond the limit.

    >>> join_some("abcdefgh")
    'a, b, c, d, e and 3 others'
    """
    if len(names) <= SOME:
        return join_words(names)
    shown = list(names[: SOME - 1])
    rest = len(names) - len(shown)
    return join_words([*shown, f"{rest} others"])


def size(amount: float) -> str:
    """Format bytes in powers of ten.

    >>> size(48), size(311_784), size(3.12e6)
    ('48 B', '311.8 kB', '3.1 MB')
    """
    if amount < 1000:
        return f"{amount:.0f} B"
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 1000:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def rough_duration(seconds: float) -> str:
    """Format an estimated duration, without spurious precision.

    >>> rough_duration(3.2), rough_duration(18.7), rough_duration(154), rough_duration(7380)
    ('5 s', '20 s', '3 min', '2 h')
    >>> rough_duration(5700)
    '1 h 40 min'
    """
    if seconds < 57.5:  # rounds to less than a minute
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(10 * round(minutes / 10), 60)
    if rest == 0:
        return f"{hours} h"
    return f"{hours} h {rest} min"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(3.21), duration(75), duration(7380)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


HEADING = "    Parameters\n    ----------\n"
NEXT = re.compile(
    r"^    (?:Attributes|Returns|Raises|Notes|References|Examples)\n", re.MULTILINE
)
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
