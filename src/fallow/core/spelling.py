"""Names of classes on the command line and in TOML, and their summaries."""

from __future__ import annotations

import inspect
import re
from typing import Any


def spell_class(cls: type[Any]) -> str:
    """Return the name of a class on the command line, like its title if the letters are the same.

    >>> class LeastConfidence: ...
    >>> spell_class(LeastConfidence)
    'least-confidence'
    """
    name = cls.__name__
    title = str(getattr(getattr(cls, "contract", None), "title", ""))
    slug = title.lower().replace(" ", "-")
    if slug.replace("-", "") == name.lower():
        return slug
    if fed := re.fullmatch("(Fed[A-Z][a-z]+)([A-Z][a-zA-Z]+)", name):
        return "-".join(fed.groups()).lower()
    is_words = re.fullmatch("([A-Z][a-z]{2,})+", name) and not name.startswith("Fed")
    if is_words:
        return re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower()
    return name.lower()


def summarize(value: Any) -> str:
    """Return the first paragraph of the docstring of a class or function, in one line.

    >>> summarize(summarize)
    'Return the first paragraph of the docstring of a class or function, in one line.'
    """
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return re.sub(r"\s+", " ", paragraph).replace("``", "`")
