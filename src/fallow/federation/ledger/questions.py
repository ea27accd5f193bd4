"""Questions to people and what they answered: the rules, apart from where both are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from fallow.core.types import SiteId

QuestionState = Literal["open", "answered", "declined", "conflict", "expired", "withdrawn"]
Kind = Literal["answer", "taken back", "resolved", "imported"]


@dataclass(frozen=True)
class Given:
    """One line of a question's history.  ``value``: a class id or a number; None: cannot tell."""

    who: str
    value: float | None
    at: str  # ISO 8601, UTC; only ever shown
    kind: Kind = "answer"


@dataclass(frozen=True)
class Question:
    """A row that people are asked for.

    ``place``: 0 was chosen first, ``of`` so many.  ``why``: what the site knew when it asked:
    "predicted" (class id or number), "probability", "score", "by" ("global" or "local"), each only
    where there is one.  ``answers``: the current answer of each person.
    """

    row: int
    cycle: int
    place: int
    of: int
    why: Mapping[str, Any]
    state: QuestionState
    answers: tuple[Given, ...]
    asked_at: str
    deadline: str | None

    @property
    def value(self) -> float | None:
        """What was agreed on; None where nothing is, and where people cannot tell."""
        return self.answers[-1].value if self.state == "answered" else None


@dataclass(frozen=True)
class Progress:
    """How far the labels of a cycle are.  What is neither answered nor declined, in conflict or
    open has expired or was withdrawn."""

    asked: int = 0
    answered: int = 0
    declined: int = 0
    conflicts: int = 0
    open: int = 0


def settled(answers: Sequence[Given], people: int) -> QuestionState:
    """What the current answers of different people, oldest first, make of a question.

    Two that differ are a conflict, until somebody resolves it; ``people`` that agree, or one
    resolution, settle it.

    >>> a, b, c = Given("ann", 1.0, ""), Given("bob", 1.0, ""), Given("cy", 0.0, "")
    >>> settled([a], 1), settled([a], 2), settled([a, b], 2), settled([a, b, c], 2)
    ('answered', 'open', 'answered', 'conflict')
    >>> settled([c, Given("ann", None, "", "resolved")], 2)
    'conflict'
    >>> settled([Given("ann", None, "", "resolved")], 2)
    'declined'
    """
    if len({given.value for given in answers}) > 1:
        return "conflict"
    if len(answers) < people and all(given.kind != "resolved" for given in answers):
        return "open"
    return "declined" if answers[0].value is None else "answered"


def check_value(value: float | None, classes: int, row: int, site: SiteId) -> None:
    """Raise ValueError unless the value can be the label of a row."""
    if value is None:
        return
    if not math.isfinite(value):
        raise ValueError(
            f"the label {value} of row {row} at site {site} is not a finite number"
        )
    if classes and not (float(value).is_integer() and 0 <= value < classes):
        raise ValueError(
            f"the label {value:g} of row {row} at site {site} is no class: classes are 0 to "
            f"{classes - 1}"
        )


def now() -> str:
    """The time to show beside what happened: ISO 8601, UTC, whole seconds.  Nothing is decided by
    it, because a clock may be set back."""
    return datetime.now(UTC).isoformat(timespec="seconds")
