"""Languages of the labeling page.

Texts are written in English where they are used, and ``languages.toml`` has their translations.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from fallow.deployment.site.settings import LANGUAGES

ENGLISH = "en"
LANGUAGE = ContextVar("language", default=ENGLISH)
"""Language of the request, a key of `LANGUAGES`."""
LANGUAGE_COOKIE = "fallow-language"


@cache
def load_translations() -> Mapping[str, Mapping[str, str]]:
    """Return the translations by language of each English text."""
    file = Path(__file__).with_name("languages.toml")
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    order = table["order"]
    return {
        text: dict(zip(order, translations, strict=True))
        for text, translations in table["texts"].items()
    }


def find_text(text: str) -> str:
    """Return a text in the language of the request, with its placeholders."""
    language = LANGUAGE.get()
    if language == ENGLISH:
        return text
    return load_translations()[text][language]


def find_count_text(one: str, many: str, n: int) -> str:
    """Return the text for one or for many. In French, zero is singular."""
    is_one = n == 1 or (n == 0 and LANGUAGE.get() == "fr")
    text = one if is_one else many
    return find_text(text)


def translate(text: str, **values: object) -> str:
    """Return a text in the language of the request, with values for its placeholders."""
    return find_text(text) % values


class Mistake(ValueError):
    """Mistake of an annotator, described in the language of the request."""

    def __init__(self, text: str, **values: object) -> None:
        super().__init__(translate(text, **values))


def text_id(text: str) -> str:
    """Mark a text that is translated where it is shown, and return it unchanged."""
    return text


def choose_language(*wanted: str | None, accepted: str = "") -> str:
    """Return the first known language, else the best of an Accept-Language header, else English.

    >>> (
    ...     choose_language(None, "xx", accepted="it, es;q=0.5, de-CH;q=0.8"),
    ...     choose_language("fr"),
    ... )
    ('de', 'fr')
    """
    for language in wanted:
        if language in LANGUAGES:
            return language
    ranked: list[tuple[float, str]] = []
    for part in accepted.split(","):
        name, _, quality = part.partition(";")
        language = name.strip().partition("-")[0].lower()
        try:
            weight = float(quality.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if language in LANGUAGES and weight > 0:
            ranked.append((-weight, language))
    return min(ranked, key=lambda pair: pair[0], default=(0.0, ENGLISH))[1]
