"""Rules for labeling tasks and labels, independent of their storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Literal, Protocol, TypedDict, TypeVar

import torch

from fallow.core.multilabel import UNKNOWN, join_digits, read_digits
from fallow.deployment.answer_plan import Rule

TaskState = Literal["open", "answered", "declined", "conflict", "expired", "withdrawn"]
EntryKind = Literal["answer", "confirmed", "taken back", "resolved", "imported", "earlier"]
"""Kinds of entries. "confirmed" is the prediction that an annotator confirmed with others at once.
"earlier" is the label that a check compares with a new one; it has no author."""


class Reasons(TypedDict, total=False):
    """Reasons for selecting a row, as known at the time of the selection.

    ``predicted`` is a class ID or a number, and ``probability`` is that of the class. ``by`` names
    the predicting model, "global", "local" or, in a check, "without" the label. ``score`` is the
    query score. ``likeliest`` are class IDs and probabilities that annotators see before they label,
    the likeliest first. ``is_blind``: annotators see no prediction before they label.
    ``is_again``: an annotator confirmed the label on a sheet, and labels the example again.
    """

    predicted: float
    probability: float
    by: str
    score: float
    likeliest: list[tuple[int, float]]
    is_blind: bool
    is_again: bool


@dataclass(frozen=True)
class LabelAnswer:
    """One label of one annotator, a line in the history of a labeling task.

    ``value`` is a class ID or a number, or None for an answer that is no label. ``reason`` is the
    code of that answer (`NoLabel`).
    """

    annotator: str
    value: float | None
    at: str  # ISO 8601 in UTC, for display only
    kind: EntryKind = "answer"
    reason: str = ""


@dataclass(frozen=True)
class LabelingTask:
    """A labeling task.

    ``position`` is the rank of the row in the selection, from 0, and ``of`` the number selected.
    ``answers`` are the current labels of the annotators, in the order of their first labels.
    ``needed`` is the planned number of annotations. ``value`` is the label, or None without one, if
    annotators gave none, and if the site decides at the end of labeling. ``is_check``: the row has
    a suspicious label, which is compared with a new one.
    """

    row: int
    cycle: int
    position: int
    of: int
    reasons: Reasons
    state: TaskState
    answers: tuple[LabelAnswer, ...]
    asked_at: str
    deadline: str | None
    needed: int = 1
    value: float | None = None
    is_check: bool = False


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


def decide_state(
    answers: Sequence[LabelAnswer],
    needed: int,
    rule: Rule = "majority",
    n_labels: int = 0,
) -> tuple[TaskState, float | None]:
    """Return the state of a labeling task and its label, from the current labels in order.

    A task is open until it has ``needed`` labels, or one decision. Labels that differ are a conflict
    unless ``rule`` decides them. A single label that another annotator contradicts, and a decision
    that a later label contradicts, are always conflicts. With the rule "dawid-skene" the label is
    None until the end of labeling. Each of ``n_labels`` several labels is decided by itself, and an
    unknown answer to it contradicts no other one.

    >>> a, b, c = (
    ...     LabelAnswer("ann", 1.0, ""),
    ...     LabelAnswer("bob", 1.0, ""),
    ...     LabelAnswer("cy", 0.0, ""),
    ... )
    >>> decide_state([a], 1), decide_state([a], 2), decide_state([a, b], 2)
    (('answered', 1.0), ('open', None), ('answered', 1.0))
    >>> decide_state([a, c], 1), decide_state([a, c], 2), decide_state([a, c], 3)
    (('conflict', None), ('conflict', None), ('open', None))
    >>> decide_state([c, a, b], 3), decide_state([c, a, b], 3, "first")
    (('answered', 1.0), ('answered', 0.0))
    >>> decide_state([a, c], 2, "median"), decide_state([a, c], 2, "dawid-skene")
    (('answered', 0.5), ('answered', None))
    >>> decide_state([c, LabelAnswer("ann", None, "", "resolved")], 2)
    ('conflict', None)
    >>> decide_state([LabelAnswer("ann", None, "", "resolved")], 2)
    ('declined', None)
    >>> some, rest = LabelAnswer("ann", 7.0, ""), LabelAnswer("bob", 5.0, "")  # 1 ?, ? 1
    >>> decide_state([some, rest], 2, n_labels=2)
    ('answered', 4.0)
    """
    is_resolved = any(entry.kind == "resolved" for entry in answers)
    if len(answers) < needed and not is_resolved:
        return "open", None
    values = [answer.value for answer in answers]
    if len(set(values)) == 1:
        return _settle(values[0])
    if needed > 1 and not is_resolved:
        return _apply_rule(values, rule, n_labels)
    known = [value for value in values if value is not None]
    if n_labels and len(known) == len(values):
        return _decide_labels(known, n_labels)
    return "conflict", None


def _settle(value: float | None) -> tuple[TaskState, float | None]:
    if value is None:
        return "declined", None
    return "answered", value


def _apply_rule(
    values: Sequence[float | None], rule: Rule, n_labels: int
) -> tuple[TaskState, float | None]:
    """Decide labels that differ. None is an answer that is no label."""
    numbers = [value for value in values if value is not None]
    is_declined = rule == "first" and values[0] is None
    if n_labels and 2 * len(numbers) > len(values) and not is_declined:
        return _decide_labels(numbers, n_labels, rule)
    if rule == "first":
        return _settle(values[0])
    value, times = Counter(values).most_common(1)[0]
    if 2 * times > len(values) and (rule == "majority" or value is None):
        return _settle(value)
    if rule == "majority" or 2 * len(numbers) <= len(values):
        return "conflict", None
    if rule == "median":
        return "answered", median(numbers)
    return "answered", None


def find_digits(
    values: Sequence[float], n_labels: int, rule: Rule | None = None
) -> list[int | None]:
    """Return the decided answer to each of several labels, None where annotators disagree.

    rule: decides answers that differ; None: nothing does.

    >>> find_digits([1.0, 4.0, 4.0], 2), find_digits([1.0, 4.0, 4.0], 2, "majority")
    ([1, None], [1, 1])
    """
    digits = read_digits(torch.tensor(values, dtype=torch.float64), n_labels)  # (n, L)
    return [_decide_digit(own, rule) for own in digits.T.tolist()]


def _decide_digit(digits: Sequence[int], rule: Rule | None) -> int | None:
    known = [digit for digit in digits if digit != UNKNOWN]
    if not known:
        return UNKNOWN
    digit, times = Counter(known).most_common(1)[0]
    if rule == "first":
        return known[0]
    is_decided = times == len(known) or (rule == "majority" and 2 * times > len(known))
    return digit if is_decided else None


def _decide_labels(
    values: Sequence[float], n_labels: int, rule: Rule | None = None
) -> tuple[TaskState, float | None]:
    digits = find_digits(values, n_labels, rule)
    decided = [digit for digit in digits if digit is not None]
    if len(decided) < len(digits):
        return "conflict", None
    return "answered", float(join_digits(decided))


class _Stored(Protocol):
    """A labeling task, or a line of the table of labeling tasks."""

    @property
    def state(self) -> str: ...

    @property
    def cycle(self) -> int: ...


Stored = TypeVar("Stored", bound=_Stored)


def require_open(newest: Stored | None, what: str) -> Stored:
    """Return the newest labeling task of an example; ValueError if it accepts no labels."""
    if newest is None:
        raise ValueError(
            f"{what} has no labeling task: only selected examples can be labeled"
        )
    if newest.state == "expired":
        raise ValueError(
            f"the labeling task of {what} expired at the end of cycle {newest.cycle}: nothing was "
            "changed; it can be labeled if it is selected again"
        )
    if newest.state == "withdrawn":
        raise ValueError(f"{what} was withdrawn and accepts no more labels")
    return newest


def now() -> str:
    """Return the current time as ISO 8601 in UTC, in whole seconds.

    The time is for display only and decides nothing, because a clock may be set back.
    """
    return datetime.now(UTC).isoformat(timespec="seconds")
