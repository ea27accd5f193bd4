"""Rules for labeling tasks and labels, independent of their storage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypedDict

from fallow.core.types import SiteId

TaskState = Literal["open", "answered", "declined", "conflict", "expired", "withdrawn"]
EntryKind = Literal["answer", "taken back", "resolved", "imported"]
REASONS = ("quality", "content", "other")
"""Reasons for which an example is not gradable. Text follows "other" after a colon. An answer
without a label and without a reason means "cannot tell"."""


class Reasons(TypedDict, total=False):
    """Reasons for selecting a row, as known at the time of the selection.

    ``predicted`` is a class ID or a number, and ``probability`` is that of the class. ``by`` names
    the predicting model, "global" or "local". ``score`` is the query score.
    """

    predicted: float
    probability: float
    by: str
    score: float


@dataclass(frozen=True)
class LabelAnswer:
    """One label of one annotator, a line in the history of a labeling task.

    ``value`` is a class ID or a number, or None for "cannot tell" and "not gradable". ``reason``
    is one of `REASONS` if the example is not gradable.
    """

    who: str
    value: float | None
    at: str  # ISO 8601 in UTC, for display only
    kind: EntryKind = "answer"
    reason: str = ""


@dataclass(frozen=True)
class LabelingTask:
    """A labeling task.

    ``position`` is the rank of the row in the selection, from 0, and ``of`` the number selected.
    ``answers`` are the current labels of the annotators.
    """

    row: int
    cycle: int
    position: int
    of: int
    why: Reasons
    state: TaskState
    answers: tuple[LabelAnswer, ...]
    asked_at: str
    deadline: str | None

    @property
    def value(self) -> float | None:
        """Return the agreed label, or None without agreement or if annotators cannot tell."""
        if self.state != "answered":
            return None
        return self.answers[-1].value


@dataclass(frozen=True)
class LabelProgress:
    """Labeling progress of a cycle.

    Tasks that are not answered, declined, in conflict or open have expired or were withdrawn.
    """

    asked: int = 0
    answered: int = 0
    declined: int = 0
    conflicts: int = 0
    open: int = 0


def decide_state(answers: Sequence[LabelAnswer], n_annotators: int) -> TaskState:
    """Return the state of a labeling task from the current labels, oldest first.

    Two different labels are a conflict until it is resolved. A task is settled by
    ``n_annotators`` equal labels or by one decision.

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
    is_resolved = any(entry.kind == "resolved" for entry in answers)
    if len(answers) < n_annotators and not is_resolved:
        return "open"
    if answers[0].value is None:
        return "declined"
    return "answered"


def check_value(value: float | None, classes: int, *, row: int, site: SiteId) -> None:
    """Raise ValueError unless the value is a valid label of the row."""
    if value is None:
        return
    if not math.isfinite(value):
        raise ValueError(
            f"the label {value} of row {row} at site {site} is not a finite number"
        )
    if classes and not (float(value).is_integer() and 0 <= value < classes):
        raise ValueError(
            f"the label {value:g} of row {row} at site {site} is not a class: "
            f"classes are 0 to {classes - 1}"
        )


def check_reason(reason: str, value: float | None) -> None:
    """Raise ValueError unless a reason is known and belongs to an answer without a label.

    >>> check_reason("other: a photograph of a form", None)
    """
    if reason == "":
        return
    code, _, text = reason.partition(": ")
    is_complete = code in REASONS and (code == "other") == bool(text)
    if value is not None or not is_complete:
        raise ValueError(
            f"{reason!r} is not a reason for an example without a label: use one of "
            f"{', '.join(REASONS)}, with a text after 'other: '"
        )


def now() -> str:
    """Return the current time as ISO 8601 in UTC, in whole seconds.

    The time is for display only and decides nothing, because a clock may be set back.
    """
    return datetime.now(UTC).isoformat(timespec="seconds")
