"""Texts of the labeling page: times, states, labels, and reasons for a selection."""

from __future__ import annotations

import string
from collections.abc import Sequence
from datetime import UTC, datetime

from fallow.deployment.annotator_statistics import AnnotatorAgreement
from fallow.deployment.labeling_page.languages import (
    find_count_text,
    find_text,
    text_id,
    translate,
)
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.no_label import name_no_label
from fallow.deployment.schema import Schema

RESERVED = "gnosuwx"  # guess, not gradable, none of these, skip, undo, why, cannot tell
FREE_LETTERS = [letter for letter in string.ascii_lowercase if letter not in RESERVED]
KEYS = "123456789" + "".join(FREE_LETTERS)
MODELS = {
    "global": text_id("The global model"),
    "local": text_id("This site's personalized model"),
    "without": text_id("The model without this label"),
}
STATES = {
    "open": text_id("not labeled yet"),
    "answered": text_id("answered"),
    "declined": text_id("answered without a label"),
    "conflict": text_id("annotators disagree"),
    "expired": text_id("expired without a label"),
    "withdrawn": text_id("withdrawn"),
}
ANSWERS = (text_id("no"), text_id("yes"), text_id("unknown"))
"""Answers to one of several labels, by digit (`fallow.core.multilabel`)."""
ENTRIES = {
    "taken back": text_id("removed %(label)s"),
    "resolved": text_id("%(label)s (decided)"),
    "imported": text_id("%(label)s (imported)"),
    "confirmed": text_id("%(label)s (confirmed on a sheet)"),
}


def hot_keys(classes: Sequence[str], *, is_guided: bool = False) -> list[str]:
    """Return the keyboard key of each class.

    The key is the class name if all names are single characters, such as digits. Otherwise it is
    the position. Classes after the twenty-eighth have a button only.

    If predictions are shown (``is_guided``), digits stand for the likeliest classes of an example,
    and classes have letters in all examples. A habit of pressing 1 then labels no example that
    shows no prediction.

    >>> hot_keys(["healthy", "ill"], is_guided=True)
    ['a', 'b']
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
    keys = FREE_LETTERS if is_guided else KEYS
    with_key = list(keys[: len(signs)])
    without = [""] * (len(signs) - len(with_key))
    return with_key + without


def label_of(schema: Schema, value: float | None, reason: str = "") -> str:
    """Return a label in words, or an answer that is no label.

    >>> label_of(None, None), label_of(None, None, "other: upside down")
    ('cannot tell', 'not gradable (upside down)')
    """
    if value is None:
        return name_no_label(reason, find_text)
    if schema.outcomes:
        words = schema.words(value)
        return words.replace(";", "; ") if schema.labels else words
    return f"{localize(f'{value:.10g}')} {schema.unit}".strip()


def name_digits() -> list[str]:
    """Return the names of the answers to one of several labels, by digit."""
    return [translate(text) for text in ANSWERS]


def localize(number: str) -> str:
    """Return a formatted number with the separators of the language of the request."""
    return number.translate({ord(","): translate(","), ord("."): translate(".")})


def format_count(n: int) -> str:
    """Format a count with a separator of thousands.

    >>> format_count(12345)
    '12,345'
    """
    return localize(f"{n:,}")


def capitalize(name: str) -> str:
    """Return a name with a capital letter, in the language of the request."""
    text = find_text(name)
    return text[0].upper() + text[1:]


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
    pattern = translate("%%a {day} %%b %%Y, %%H:%%M")
    return then.strftime(pattern).format(day=then.day)


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
        return translate("no deadline")
    seconds = int((then - now).total_seconds())
    if seconds <= 0:
        return translate("the deadline has passed, but labels count until the cycle ends")
    days, hours, minutes = seconds // 86400, seconds // 3600, seconds // 60
    if days >= 2:
        return translate("%(n)s days left", n=days)
    if hours >= 2:
        return translate("%(n)s hours left", n=hours)
    if minutes >= 1:
        text = find_count_text("%(n)s minute left", "%(n)s minutes left", minutes)
        return text % {"n": minutes}
    return translate("less than a minute left")


def describe_guess(schema: Schema, by: str, predicted: float, sure: float | None) -> str:
    """Describe a prediction in a sentence. ``by`` is a key of `MODELS`."""
    values = {
        "model": translate(MODELS.get(by, text_id("The model"))),
        "label": label_of(schema, predicted),
    }
    if sure is None:
        return translate("%(model)s predicts “%(label)s”.", **values)
    return translate(
        "%(model)s predicts “%(label)s” with %(percent)s %% probability.",
        percent=f"{100 * float(sure):.0f}",
        **values,
    )


def list_reasons(
    schema: Schema, why: Reasons, *, position: int, of: int, is_hidden: bool = False
) -> list[str]:
    """Explain in sentences why an example was selected: rank, prediction and score.

    ``is_hidden``: the annotator sees the prediction after labeling only.
    """
    if why.get("by") == "without":
        return [describe_guess(schema, "without", float(why["predicted"]), None)]
    reasons = [
        translate(
            "It was selected as number %(position)s of %(total)s in its cycle.",
            position=position + 1,
            total=of,
        )
    ]
    predicted = why.get("predicted")
    if is_hidden:
        reasons.append(translate("The prediction is shown once you have chosen a label."))
    elif predicted is None and not why.get("is_again", False):
        reasons.append(
            translate(
                "There is no prediction because no model was trained when it was selected."
            )
        )
    elif predicted is not None:
        by = why.get("by", "")
        reasons.append(describe_guess(schema, by, float(predicted), why.get("probability")))
    score = why.get("score")
    if score is not None:
        reasons.append(
            translate(
                "The query strategy gave it the score %(score)s.",
                score=localize(f"{score:.4g}"),
            )
        )
    return reasons


def describe_agreement(agreement: AnnotatorAgreement) -> str:
    """Describe the agreement of annotators, or return "" without several annotations.

    >>> describe_agreement(AnnotatorAgreement(examples=1, alpha=0.5))
    "Agreement of annotators on 1 example: Krippendorff's alpha 0.50."
    """
    n = agreement.examples
    if not n:
        return ""
    if agreement.alpha is None:
        measured = translate("no coefficient, because all labels are equal")
    else:
        name = translate("Krippendorff's alpha")
        measured = f"{name} {_format_alpha(agreement.alpha)}"
    by_label = [
        f"{label} {_format_alpha(alpha)}"
        for label, alpha in agreement.by_label.items()
        if alpha is not None
    ]
    if by_label:
        measured += f" ({', '.join(by_label)})"
    text = find_count_text(
        "Agreement of annotators on %(n)s example: %(values)s.",
        "Agreement of annotators on %(n)s examples: %(values)s.",
        n,
    )
    return text % {"n": n, "values": measured}


def _format_alpha(alpha: float) -> str:
    return localize(f"{alpha:.2f}")


def describe_confirmed(n: int, label: str) -> str:
    """Describe the outcome of a sheet.

    >>> describe_confirmed(2, "ill")
    'Saved: “ill” for 2 examples.'
    """
    text = find_count_text(
        "Saved: “%(label)s” for %(n)s example.", "Saved: “%(label)s” for %(n)s examples.", n
    )
    return text % {"n": n, "label": label}


def list_script_texts() -> dict[str, str]:
    """Return the texts that the script of the page shows."""
    return {
        "elsewhere": translate(
            "You have labeled this example in another window. Reload this page to see the label."
        ),
        "expired": translate(
            "The cycle has ended and this labeling task has expired. New labels are not saved."
        ),
        "withdrawn": translate("This example has been withdrawn."),
        "other": translate(
            "Another annotator has labeled this example. You can still choose your own label."
        ),
        "stopped": translate(
            "The labeling page has stopped or was restarted. Saved labels are safe. Open the "
            "address that 'fallow label' prints."
        ),
    }
