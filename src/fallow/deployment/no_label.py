"""Answers of annotators that are no label, and their words on the labeling page and in files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

OTHER = "other"
"""Code before a reason in words: ``other: upside down``."""
NOT_GRADABLE = "not gradable (%(reason)s)"
IN_A_FILE = re.compile(r"not gradable \((.+)\)", re.IGNORECASE)
LONGEST_REASON = 500  # characters


@final
@dataclass(frozen=True)
class NoLabel:
    """An answer that is no label. The example is not trained on and not selected again.

    Attributes
    ----------
    code : str
        Code that the ledger stores beside the answer.
    name : str
        Words of the answer, or the reason for which the example is not gradable.
    key : str
        Keyboard key on the labeling page; "" for a reason.
    """

    code: str
    name: str
    key: str = ""


CANNOT_TELL = NoLabel("", "cannot tell", key="x")
NONE_OF_THESE = NoLabel("none", "none of these", key="o")
OBSTACLES = (
    NoLabel("quality", "insufficient quality"),
    NoLabel("content", "wrong content"),
)
"""Reasons for which an example is not gradable, besides those in words."""
NO_LABELS = (CANNOT_TELL, NONE_OF_THESE, *OBSTACLES)
BY_CODE = {answer.code: answer for answer in NO_LABELS}


def name_no_label(reason: str, translate: Callable[[str], str] = str) -> str:
    """Return an answer that is no label in words.

    >>> name_no_label(""), name_no_label("none"), name_no_label("other: upside down")
    ('cannot tell', 'none of these', 'not gradable (upside down)')
    """
    code, _, text = reason.partition(": ")
    if code == OTHER:
        return translate(NOT_GRADABLE) % {"reason": text}
    answer = BY_CODE[code]
    name = translate(answer.name)
    if answer in OBSTACLES:
        return translate(NOT_GRADABLE) % {"reason": name}
    return name


def read_no_label(text: str) -> str | None:
    """Return the reason that `name_no_label` has written, or None for another text.

    >>> read_no_label("Cannot tell"), read_no_label("not gradable (wrong content)")
    ('', 'content')
    >>> read_no_label("not gradable (upside down)"), read_no_label("ill")
    ('other: upside down', None)
    """
    for answer in NO_LABELS:
        if text.casefold() == name_no_label(answer.code):
            return answer.code
    match = IN_A_FILE.fullmatch(text)
    if match is None or len(match[1]) > LONGEST_REASON:
        return None
    return f"{OTHER}: {match[1]}"
