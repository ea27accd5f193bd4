"""The names of strategies: taken apart, and as a reader wants them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fallow.lab.records import BOUND, is_bound
from fallow.lab.spec import Spec

COMPAT = "fallow.compat:"
"""What the name of a strategy starts with when it does what a public code does."""


@dataclass(frozen=True)
class Strategy:
    """A query of a study: its class and fields, and the settings it changes for itself."""

    query: str
    spec: Spec
    settings: tuple[str, ...]  # "key=value", as written after each @

    @staticmethod
    def parse(query: str) -> Strategy:
        """``name:field=value@setting=value``; a text of another form is a name as a whole.

        >>> Strategy.parse("entropy:model=global@training=kcfu").settings
        ('training=kcfu',)
        """
        name, *settings = query.split("@")
        try:
            return Strategy(query, Spec.parse(name), tuple(settings))
        except ValueError:
            return Strategy(query, Spec(query), ())

    @property
    def is_code(self) -> bool:
        """Whether it does what a public code does, not what the paper says."""
        return self.spec.name.startswith(COMPAT)

    @property
    def trains_otherwise(self) -> bool:
        """Whether its models are trained in another way than those of the study: then its scores
        say little about what it picks."""
        return any(s.split("=")[0].split(".")[0] in ("training", "plan") for s in self.settings)

    @property
    def key(self) -> str:
        """The name of its class without case, dash and underscore."""
        return folded(self.spec.name)


def folded(name: str) -> str:
    """A class name as `fallow.core.build` compares it.

    >>> folded("Core-Set") == folded("core_set") == folded("CoreSet")
    True
    """
    return re.sub("[-_]", "", name).lower()


def faithful(code: str, names: Iterable[str]) -> str | None:
    """The name among ``names`` of the paper's form of a class of `fallow.compat`.

    Such a class is called as the paper's, with a word before it: the longest end of ``code`` (of
    four letters or more) that begins a name decides.

    >>> faithful("PlainNoise", ["noise-stability", "logo"])
    'noise-stability'
    """
    end = folded(code)
    known = {folded(name): name for name in names}
    for start in range(len(end) - 3):
        for name, written in known.items():
            if name.startswith(end[start:]):
                return written
    return None


def label(query: str, names: Mapping[str, str]) -> str:
    """A strategy in a reader's words; ``names`` are the published ones.

    >>> label("ksas@training=kcfu", {"ksas": "KAFAL"}), label("fallow.compat:PlainLoGo", {})
    ('KAFAL + kcfu', 'PlainLoGo (code)')
    """
    if query in names:
        return names[query]
    if is_bound(query):
        return query.removeprefix(BOUND).replace("-", " ")
    name, *settings = query.split("@")
    shown = names.get(name, name)
    if shown.startswith(COMPAT):
        shown = shown.removeprefix(COMPAT) + " (code)"
    for setting in settings:
        key, _, value = setting.partition("=")
        shown += f" + {value if key == 'training' and value else setting}"
    return shown
