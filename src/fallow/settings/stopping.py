"""When a run ends before its last cycle, as a sentence that people and programs read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

EXAMPLE = "when another 100 labels bring less than 0.3 points with 90 % confidence"
WHOLE = "([0-9]{1,9})"  # an agreement is written by others: no number without end
NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,20})?)"
SHOWN = 200  # characters of a wrong sentence that are shown
PARTS = (
    ("when another", "'when another'"),
    (WHOLE, "a whole number of labels"),
    ("labels? brings? less than", "'labels bring less than'"),
    (NUMBER, "a number of points, such as 0.3"),
    ("points? with", "'points with'"),
    (NUMBER, "a number of per cent, such as 90"),
    ("% confidence", "'% confidence'"),
)
"""The parts of the sentence in their order, and what each of them is."""


@final
@dataclass(frozen=True)
class StopRule:
    """Stop as soon as ``more`` labels bring less than ``gain`` with this ``confidence``.

    gain: of accuracy in [0, 1], or by how much the mean squared error falls in units of the
    variance; confidence: in [0, 1].
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
    """The rule that a sentence says.  Raises ValueError that names the first part that is wrong.

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
    if more < 1:
        raise ValueError(f"stop is {shown}; it asks about 1 label or more")
    if not 0 < points <= 100:
        raise ValueError(f"stop is {shown}; points are above 0 and at most 100")
    if not 50 <= percent < 100:
        raise ValueError(
            f"stop is {shown}; the confidence is at least 50 % and below 100 %, which no forecast "
            "reaches"
        )
    return StopRule(more, round(points / 100, 12), round(percent / 100, 12))
