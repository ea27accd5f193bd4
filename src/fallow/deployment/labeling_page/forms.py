"""Parse and validate form fields, names and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from fastapi import Request

from fallow.core.load_options import DecimalMark
from fallow.core.multilabel import MOST_LABELS, UNKNOWN
from fallow.data.loaders.marks import GROUPED, mark_in
from fallow.deployment.labeling_page.languages import Mistake
from fallow.deployment.no_label import CANNOT_TELL, LONGEST_REASON, OTHER, NoLabel
from fallow.deployment.schema import LARGEST, Schema

FIELDS = MOST_LABELS + 8  # largest number of fields in a form
DIGITS = ("0", "1", str(UNKNOWN))  # answers to one of several labels
LONGEST = 65536  # largest size of a form in bytes
LONGEST_NAME = 60  # characters
WITHOUT = "cannot"  # field with the code of an answer that is no label
YES = "yes"  # form value of "cannot tell"


async def form(request: Request) -> dict[str, str]:
    """Return the fields of a URL-encoded form.

    Raises ValueError if it is too long or malformed.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST:
            raise Mistake("the form is too long: nothing was changed")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS
        )
    except ValueError:
        raise Mistake(
            "the form cannot be read: nothing was changed; load it again"
        ) from None
    return dict(pairs)


def field(form: Mapping[str, str], name: str) -> str:
    """Return a required field of a form."""
    if name not in form:
        raise Mistake(
            "the form has no field '%(name)s': nothing was changed; load the page again",
            name=name,
        )
    return form[name]


def row_of(text: str, rows: int) -> int:
    """Return the row number in a form or an address."""
    row = whole_number(text)
    if row is None or row >= rows:
        raise Mistake(
            "there is no example %(row)s at this site: nothing was changed",
            row=f"{text!r:.40}",
        )
    return row


def rows_of(text: str, rows: int) -> list[int]:
    """Return the row numbers in a form, separated by commas.

    >>> rows_of("3,1", 5)
    [3, 1]
    """
    return [row_of(one, rows) for one in text.split(",")]


def whole_number(text: str) -> int | None:
    """Parse a nonnegative integer of at most nine digits, or return None.

    >>> whole_number("12"), whole_number("-1"), whole_number("1" * 5000), whole_number("²")
    (12, None, None, None)
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return None
    return int(text)


def value_of(
    form: Mapping[str, str], schema: Schema, decimal: DecimalMark = "auto"
) -> float | None:
    """Return the label in a form: a class ID or a number, or None for an answer that is no label.

    ``decimal`` is the decimal mark of the site's data.
    """
    if WITHOUT in form:
        return None
    if schema.labels:
        return _answers_of(form, schema)
    text = field(form, "value")
    if not schema.classes:
        return number_of(text, decimal)
    number = whole_number(text)
    if number is None or number >= len(schema.classes):
        raise Mistake(
            "'%(value)s' is not a class of this study: nothing was saved", value=text
        )
    return float(number)


def _answers_of(form: Mapping[str, str], schema: Schema) -> float:
    """Return the answers to several labels: a digit for each, or a list, as a decision sends it."""
    if "value" in form:
        text = field(form, "value")
    else:
        digits = [field(form, f"answer-{at}") for at in range(len(schema.labels))]
        wrong = [digit for digit in digits if digit not in DIGITS]
        if wrong:
            raise Mistake(
                "'%(value)s' is not an answer: nothing was saved", value=wrong[0][:80]
            )
        pairs = zip(schema.labels, digits, strict=True)
        text = ";".join(
            f"{label}={digit}" for label, digit in pairs if digit != str(UNKNOWN)
        )
    if not text:
        raise Mistake(
            "Answer one label at least, or choose 'Cannot tell'. Nothing was saved."
        )
    try:
        return schema.value(text, with_hint=False)
    except ValueError as error:
        raise Mistake(
            "'%(value)s' is not an answer: nothing was saved", value=text[:80]
        ) from error


def code_of(form: Mapping[str, str], offered: Sequence[NoLabel]) -> str:
    """Return the code of an answer that is no label, or "" for a label.

    Raises ValueError for an answer that is not offered, and without a text for another reason.

    >>> code_of({"cannot": "other", "why": " shows  a form "}, [])
    'other: shows a form'
    >>> code_of({"cannot": "other: shows a form"}, [])
    'other: shows a form'
    """
    code, _, why = form.get(WITHOUT, YES).partition(": ")
    if code == YES:
        return CANNOT_TELL.code
    if code == OTHER:
        line = _line_of({"why": why, **form})
        return f"{OTHER}: {line}"
    if code not in [answer.code for answer in offered]:
        raise Mistake(
            "%(reason)s is not a known reason: nothing was saved", reason=f"{code!r:.40}"
        )
    return code


def _line_of(form: Mapping[str, str]) -> str:
    """Return the free text of a reason. Raises ValueError if it is empty or too long."""
    why = " ".join(form.get("why", "").split())
    if not why or len(why) > LONGEST_REASON:
        raise Mistake("Give a reason of at most %(n)s characters.", n=LONGEST_REASON)
    return why


def reason_of(form: Mapping[str, str]) -> str:
    """Return the reason for a withdrawal.

    Raises ValueError if it is empty or if the withdrawal was not confirmed.
    """
    why = _line_of(form)
    if form.get("sure") != "yes":
        raise Mistake("Tick the box to confirm the withdrawal of this example.")
    return why


def name_of(text: str) -> str:
    """Return an annotator's name as it is stored with labels.

    >>> name_of("  Ann   Lee ")
    'Ann Lee'
    """
    name = " ".join(text.split())
    begins_well = name[:1].isalnum()
    if not begins_well or not name.isprintable() or len(name) > LONGEST_NAME:
        raise Mistake(
            "%(name)s is not a valid name: start with a letter or a digit, and use at most "
            "%(n)s characters",
            name=repr(text),
            n=LONGEST_NAME,
        )
    return name


def number_of(text: str, decimal: DecimalMark = "auto") -> float:
    """Parse a number with a decimal point or a decimal comma.

    Three digits after the mark may be a fraction or thousands.  They are a fraction after the decimal
    mark of the site's data, and ValueError is raised after another one.

    >>> number_of("1,5"), number_of("−2.25"), number_of(" 1e3 "), number_of("3,215", ",")
    (1.5, -2.25, 1000.0, 3.215)
    """
    plain = text.strip().replace("\u2212", "-")
    if plain.count(",") + plain.count(".") > 1:
        raise Mistake(
            "'%(value)s' is ambiguous: write one decimal point or comma, and no thousands "
            "separator",
            value=text.strip(),
        )
    mark = mark_in(plain)
    if mark != decimal and GROUPED[mark].fullmatch(plain):
        raise Mistake(
            "'%(value)s' may be a fraction or have a thousands separator: type %(fraction)s or "
            "%(whole)s",
            value=text.strip(),
            fraction=f"{plain}0",
            whole=plain.replace(mark, ""),
        )
    try:
        value = float(plain.replace(",", "."))
    except ValueError:
        raise Mistake(
            "'%(value)s' is not a number: type one such as 12.5", value=text.strip()
        ) from None
    if "_" in plain or not abs(value) <= LARGEST:
        raise Mistake(
            "'%(value)s' is not a finite number: type one such as 12.5", value=text.strip()
        )
    return value


def write_number(value: float) -> str:
    """Return a number as `number_of` parses it at every site.

    >>> write_number(2.5), write_number(1000.0), write_number(3.125)
    ('2.5', '1000', '3.1250')
    """
    text = repr(value).removesuffix(".0")
    return f"{text}0" if GROUPED["."].fullmatch(text) else text
