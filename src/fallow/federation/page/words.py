"""What the page says in plain words: times, states, labels, and why a sample was chosen."""

from __future__ import annotations

import string
from collections.abc import Sequence
from datetime import UTC, datetime

from fallow.core.words import count_noun
from fallow.federation.ledger.questions import Reasons
from fallow.federation.schema import Schema

RESERVED = "guwx"  # guess, undo, why, cannot tell
LETTERS = [letter for letter in string.ascii_lowercase if letter not in RESERVED]
KEYS = "123456789" + "".join(LETTERS)
MODELS = {
    "global": "the model that all sites train together",
    "local": "this site's own model",
}
STATES = {
    "open": "waiting for an answer",
    "answered": "answered",
    "declined": "cannot tell",
    "conflict": "people disagree",
    "expired": "expired without an answer",
    "withdrawn": "withdrawn",
}


def hot_keys(classes: Sequence[str]) -> list[str]:
    """The key of each class: its name where all are single signs, such as digits, else its place;
    classes after the thirty-second have a button only.

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


def label_of(schema: Schema, value: float | None) -> str:
    """A label, or what was said instead of one, as a person reads it."""
    if value is None:
        return "cannot tell"
    if schema.classes:
        return schema.classes[int(value)]
    return f"{value:.10g} {schema.unit}".strip()


def local_time(iso: str | None) -> datetime | None:
    """The local time of a moment in UTC."""
    if not iso:
        return None
    then = datetime.fromisoformat(iso)
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return then.astimezone()


def format_time(iso: str | None) -> str:
    """A moment as a person of this place writes it.

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
    """The time until a deadline.  The clock only tells people: what ends questions is the
    coordinator's word.

    >>> now = datetime(2025, 11, 21, tzinfo=UTC)
    >>> (
    ...     describe_time_left("2025-11-24T12:00:00+00:00", now),
    ...     describe_time_left("2025-11-21T00:30:00+00:00", now),
    ... )
    ('3 days left', '30 minutes left')
    >>> describe_time_left("2025-11-20T00:00:00+00:00", now), describe_time_left(None, now)
    ('the time is up, but answers still count until the cycle is closed', 'no deadline')
    """
    then = local_time(deadline)
    if then is None:
        return "no deadline"
    seconds = (then - now).total_seconds()
    if seconds <= 0:
        return "the time is up, but answers still count until the cycle is closed"
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        least = 2 * unit  # one day left is said as hours, one hour as minutes
        if name == "minute":
            least = unit
        if seconds >= least:
            return f"{count_noun(int(seconds // unit), name)} left"
    return "less than a minute left"


def cycle_name(cycle: int) -> str:
    """The first labels are asked for before any model is trained, and are no cycle."""
    if cycle < 0:
        return "the first labels"
    return f"cycle {cycle}"


def describe_guess(schema: Schema, by: str, predicted: float, sure: float | None) -> str:
    """What a model guesses, as a sentence; ``by``: which model, in words."""
    guess = f"guesses “{label_of(schema, predicted)}”"
    if sure is not None:
        guess += f", {100 * float(sure):.0f} % sure"
    return f"{by[0].upper()}{by[1:]} {guess}."


def list_reasons(schema: Schema, why: Reasons, *, place: int, of: int) -> list[str]:
    """Why a sample was chosen, as sentences: its place, the guess and how sure, the score."""
    reasons = [f"It was chosen as number {place + 1} of {of} in its cycle."]
    predicted = why.get("predicted")
    by = MODELS.get(why.get("by", ""), "the model")
    if predicted is None:
        reasons.append(
            "There is no guess: no model had learned anything when it was chosen."
        )
    else:
        reasons.append(describe_guess(schema, by, float(predicted), why.get("probability")))
    score = why.get("score")
    if score is not None:
        reasons.append(f"The strategy that chooses samples gave it the score {score:.4g}.")
    return reasons
