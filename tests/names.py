"""Column names for tests that count comparisons."""

from __future__ import annotations


class CountedName(str):
    """Column name that counts comparisons with other names."""

    comparisons = 0
    __hash__ = str.__hash__

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)
