"""Texts of the labeling page: times, states, labels, and reasons for a selection."""

from __future__ import annotations

import string
from collections.abc import Sequence
from datetime import UTC, datetime

from fallow.core.wording import count_noun
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.schema import Schema

RESERVED = "gnsuwx"  # guess, not gradable, skip, undo, why, cannot tell
LETTERS = [letter for letter in string.ascii_lowercase if letter not in RESERVED]
KEYS = "123456789" + "".join(LETTERS)
MODELS = {
    "global": "the global model",
    "local": "this site's personalized model",
}
STATES = {
    "open": "not labeled yet",
    "answered": "answered",
    "declined": "cannot tell",
    "conflict": "annotators disagree",
    "expired": "expired without a label",
    "withdrawn": "withdrawn",
}


OBSTACLES = {  # of `REASONS`
    "quality": "Insufficient quality",
    "content": "Wrong content",
}


def hot_keys(classes: Sequence[str]) -> list[str]:
    """Return the keyboard key of each class.

    The key is the class name if all names are single characters, such as digits. Otherwise it is
    the position. Classes after the twenty-ninth have a button only.

    >>> hot_keys(["healthy", "ill"]), hot_keys(["0", "1", "B"])
    (['1', '2'], ['0', '1', 'b'])
    >>> hot_keys([str(number) for number in range(99)])[-1]
    ''
    """
    signs = [name.lower() for name in classes]
    known = {"0"} | set(KEYS)
    are_distinct = len(set(signs)) == len(signs)
    if are_distinct and known.issuperset(signs):
        return signs
    with_key = list(KEYS[: len(signs)])
    without = [""] * (len(signs) - len(with_key))
    return with_key + without


def label_of(schema: Schema, value: float | None, reason: str = "") -> str:
    """Return a label in words, or that and why there is none.

    >>> label_of(None, None), label_of(None, None, "other: upside down")
    ('cannot tell', 'not gradable (upside down)')
    """
    if value is None and not reason:
        return "cannot tell"
    if value is None:
        code, _, text = reason.partition(": ")
        return f"not gradable ({text or OBSTACLES[code].lower()})"
    if schema.classes:
        return schema.classes[int(value)]
    return f"{value:.10g} {schema.unit}".strip()


def local_time(iso: str | None) -> datetime | None:
    """Convert a time in UTC to local time."""
    if not iso:
        return None
    then = datetime.fromisoformat(iso)
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return then.astimezone()


def format_time(iso: str | None) -> str:
    """Format a time in the local time zone.

    >>> format_time(datetime(2025, 11, 24, 1, 5).astimezone().isoformat())
    'Mon 24 Nov 2025, 01:05'
    >>> format_time(datetime(2025, 12, 5, 10, 5).astimezone().isoformat())
    'Fri 5 Dec 2025, 10:05'
    """
    then = local_time(iso)
    if then is None:
        return ""
    return f"{then:%a} {then.day} {then:%b %Y, %H:%M}"


def describe_time_left(deadline: str | None, now: datetime) -> str:
    """Describe the time until a deadline.

    The local clock is only used for display. The coordinator decides when labeling ends.

    >>> now = datetime(2025, 11, 21, tzinfo=UTC)
    >>> (
    ...     describe_time_left("2025-11-24T12:00:00+00:00", now),
    ...     describe_time_left("2025-11-21T00:30:00+00:00", now),
    ... )
    ('3 days left', '30 minutes left')
    >>> describe_time_left("2025-11-20T00:00:00+00:00", now), describe_time_left(None, now)
    ('the deadline has passed, but labels count until the cycle ends', 'no deadline')
    """
    then = local_time(deadline)
    if then is None:
        return "no deadline"
    seconds = (then - now).total_seconds()
    if seconds <= 0:
        return "the deadline has passed, but labels count until the cycle ends"
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        least = 2 * unit  # one day is shown as hours, one hour as minutes
        if name == "minute":
            least = unit
        if seconds >= least:
            return f"{count_noun(int(seconds // unit), name)} left"
    return "less than a minute left"


def cycle_name(cycle: int) -> str:
    """Return the name of a cycle. The initial labeled set precedes all cycles."""
    if cycle < 0:
        return "the initial labeled set"
    return f"cycle {cycle}"


def describe_guess(schema: Schema, by: str, predicted: float, sure: float | None) -> str:
    """Describe a prediction in a sentence. ``by`` names the model."""
    guess = f"predicts “{label_of(schema, predicted)}”"
    if sure is not None:
        guess += f" with {100 * float(sure):.0f} % probability"
    return f"{by[0].upper()}{by[1:]} {guess}."


def list_reasons(schema: Schema, why: Reasons, *, position: int, of: int) -> list[str]:
    """Explain in sentences why an example was selected: rank, prediction and score."""
    reasons = [f"It was selected as number {position + 1} of {of} in its cycle."]
    predicted = why.get("predicted")
    by = MODELS.get(why.get("by", ""), "the model")
    if predicted is None:
        reasons.append(
            "There is no prediction because no model was trained when it was selected."
        )
    else:
        reasons.append(describe_guess(schema, by, float(predicted), why.get("probability")))
    score = why.get("score")
    if score is not None:
        reasons.append(f"The query strategy gave it the score {score:.4g}.")
    return reasons
