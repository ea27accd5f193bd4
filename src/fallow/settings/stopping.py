"""Stopping criterion of a run, as a sentence and as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

EXAMPLE = "when another 100 labels bring less than 0.3 points with 90 % confidence"
WHOLE = "([0-9]{1,9})"  # limits the length of untrusted numbers
NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,20})?)"
SHOWN = 200  # characters of an invalid sentence in a message
PARTS = (
    ("when another", "'when another'"),
    (WHOLE, "a whole number of labels"),
    ("labels? brings? less than", "'labels bring less than'"),
    (NUMBER, "a number of points, such as 0.3"),
    ("points? with", "'points with'"),
    (NUMBER, "a number of percent, such as 90"),
    ("% confidence", "'% confidence'"),
)
"""Parts of the sentence in order, with their descriptions."""


@final
@dataclass(frozen=True)
class StopRule:
    """Stop once ``more`` labels improve the score by less than ``gain``.

    Attributes
    ----------
    more : int
        Number of additional labels.
    gain : float
        Gain in accuracy (0 to 1), or reduction of the mean squared error in units of the variance
        of the targets.
    confidence : float
        Confidence level (0 to 1).
    """

    more: int
    gain: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"when another {self.more} labels bring less than {100 * self.gain:g} points with "
            f"{100 * self.confidence:g} % confidence"
        )


def parse_stop(text: str) -> StopRule:
    """Parse a stopping criterion.  Raises ValueError that names the first incorrect part.

    >>> parse_stop(
    ...     "when another 100 labels bring less than 0.3 points with 90 % confidence"
    ... )
    StopRule(more=100, gain=0.003, confidence=0.9)
    """
    numbers: list[str] = []
    shown = f"{text!r:.{SHOWN}}"
    left = " ".join(text.split())
    for pattern, what in PARTS:
        stop = re.match(rf"{pattern.replace(' ', ' ?')}(?= |$|%)", left, re.IGNORECASE)
        if stop is None:
            there = f"where {left[:40]!r} stands" if left else "at its end"
            raise ValueError(
                f"stop is {shown}, and {what} is missing {there}; write it so: {EXAMPLE!r}"
            )
        numbers += stop.groups()
        left = left[stop.end() :].lstrip()
    if left:
        raise ValueError(
            f"stop is {shown}, and ends with {left[:40]!r}; write it so: {EXAMPLE!r}"
        )
    more = int(numbers[0])
    points = float(numbers[1])
    percent = float(numbers[2])
    conditions = {
        "it asks about 1 label or more": more >= 1,
        "points are above 0 and at most 100": 0 < points <= 100,
        "the confidence is at least 50 % and below 100 %, which no forecast reaches": (
            50 <= percent < 100
        ),
    }
    for condition, is_met in conditions.items():
        if not is_met:
            raise ValueError(f"stop is {shown}; {condition}")
    return StopRule(more, round(points / 100, 12), round(percent / 100, 12))
