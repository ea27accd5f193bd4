"""Names of the hashed features of a text column."""

from __future__ import annotations

from collections.abc import Sequence

WORDS = 2048
CHARACTERS = 2048
BUCKETS = WORDS + CHARACTERS
"""Features of a text column: hashed words, then hashed character n-grams."""
MARK = "~"


def name_buckets(column: str) -> tuple[str, ...]:
    """Return the names of the features of a text column.

    >>> name_buckets("note")[:2], len(name_buckets("note"))
    (('note~0', 'note~1'), 4096)
    """
    return tuple(f"{column}{MARK}{bucket}" for bucket in range(BUCKETS))


def find_text_columns(features: Sequence[str]) -> tuple[str, ...]:
    """Return the text columns among the feature names of a table, in their order.

    >>> find_text_columns(["age", *name_buckets("note")])
    ('note',)
    """
    last = f"{MARK}{BUCKETS - 1}"
    return tuple(name.removesuffix(last) for name in features if name.endswith(last))
