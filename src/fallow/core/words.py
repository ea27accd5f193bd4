"""Numbers and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def join_words(names: Sequence[str], *, last: str = "and") -> str:
    """Names as a sentence lists them; ``last`` is the word before the last one.

    >>> join_words(["a", "b", "c"]), join_words(["a", "b"], last="or")
    ('a, b and c', 'a or b')
    """
    return f" {last} ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def count_noun(number: int, name: str) -> str:
    """A number with its noun.

    >>> count_noun(1, "seed"), count_noun(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


SOME = 6
"""So many names are listed; of more, the rest is counted."""


def join_some(names: Sequence[str]) -> str:
    """Names as a sentence lists them when they may be many.

    >>> join_some("abcdefgh")
    'a, b, c, d, e and 3 others'
    """
    rest = len(names) - SOME
    return join_words([*names[: SOME - 1], f"{rest + 1} others"] if rest > 0 else names)


def size(amount: float) -> str:
    """Bytes for a reader, in powers of ten.

    >>> size(48), size(311_784), size(3.12e6)
    ('48 B', '311.8 kB', '3.1 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def rough_duration(seconds: float) -> str:
    """Seconds that were only guessed, with no digit more than a guess has.

    >>> rough_duration(3.2), rough_duration(18.7), rough_duration(154), rough_duration(7380)
    ('5 s', '20 s', '3 min', '2 h')
    >>> rough_duration(5700)
    '1 h 40 min'
    """
    if seconds < 57.5:  # what rounds to less than a minute
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(10 * round(minutes / 10), 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def duration(seconds: float) -> str:
    """Seconds for a reader.

    >>> duration(3.21), duration(75), duration(7380)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
