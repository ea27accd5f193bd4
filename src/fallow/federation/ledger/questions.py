"""Questions to people and what they answered: the rules, apart from where both are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypedDict

from fallow.core.types import SiteId

QuestionState = Literal["open", "answered", "declined", "conflict", "expired", "withdrawn"]
EntryKind = Literal["answer", "taken back", "resolved", "imported"]


class Reasons(TypedDict, total=False):
    """Why people are asked for a row: what the site knew when it asked, as far as there is any.

    predicted: a class id or a number.  probability: of that class.  by: whose model predicted it,
    "global" or "local".  score: what the query gave the row.
    """

    predicted: float
    probability: float
    by: str
    score: float


@dataclass(frozen=True)
class LabelAnswer:
    """What one person said, a line of a question's history.

    ``value``: a class id or a number; None: cannot tell.
    """

    who: str
    value: float | None
    at: str  # ISO 8601, UTC; only ever shown
    kind: EntryKind = "answer"


@dataclass(frozen=True)
class Question:
    """A row that people are asked for.

    ``place``: 0 was chosen first, ``of`` so many.  ``answers``: the current answer of each person.
    """

    row: int
    cycle: int
    place: int
    of: int
    why: Reasons
    state: QuestionState
    answers: tuple[LabelAnswer, ...]
    asked_at: str
    deadline: str | None

    @property
    def value(self) -> float | None:
        """What was agreed on; None where nothing is, and where people cannot tell."""
        if self.state != "answered":
            return None
        return self.answers[-1].value


@dataclass(frozen=True)
class LabelProgress:
    """How far the labels of a cycle are.  What is neither answered nor declined, in conflict or
    open has expired or was withdrawn."""

    asked: int = 0
    answered: int = 0
    declined: int = 0
    conflicts: int = 0
    open: int = 0


def decide_state(answers: Sequence[LabelAnswer], people: int) -> QuestionState:
    """What the current answers of different people, oldest first, make of a question.

    Two that differ are a conflict, until somebody resolves it; ``people`` that agree, or one
    resolution, settle it.

    >>> a, b, c = (
    ...     LabelAnswer("ann", 1.0, ""),
    ...     LabelAnswer("bob", 1.0, ""),
    ...     LabelAnswer("cy", 0.0, ""),
    ... )
    >>> (
    ...     decide_state([a], 1),
    ...     decide_state([a], 2),
    ...     decide_state([a, b], 2),
    ...     decide_state([a, b, c], 2),
    ... )
    ('answered', 'open', 'answered', 'conflict')
    >>> decide_state([c, LabelAnswer("ann", None, "", "resolved")], 2)
    'conflict'
    >>> decide_state([LabelAnswer("ann", None, "", "resolved")], 2)
    'declined'
    """
    if len({answer.value for answer in answers}) > 1:
        return "conflict"
    is_resolved = any(given.kind == "resolved" for given in answers)
    if len(answers) < people and not is_resolved:
        return "open"
    if answers[0].value is None:
        return "declined"
    return "answered"


def check_value(value: float | None, classes: int, *, row: int, site: SiteId) -> None:
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
