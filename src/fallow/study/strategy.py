"""The name of a strategy, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fallow.settings.spec import Spec

TRAINING = ("training", "plan", "trainer", "rounds")
"""Settings that say how models are trained."""


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
    def trains_otherwise(self) -> bool:
        """Whether its models are trained in another way than those of the study: then its scores
        say little about what it picks."""
        return bool(self.trainer)

    @property
    def trainer(self) -> tuple[str, ...]:
        """The settings that say how its models are trained."""
        return tuple(s for s in self.settings if s.split("=")[0].split(".")[0] in TRAINING)

    @property
    def training(self) -> str:
        """The training method that it names for itself, as `fold_name`; empty if it names none."""
        named = (s.partition("=")[2] for s in self.settings if s.startswith("training="))
        return fold_name(next(named, "").partition(":")[0])

    @property
    def chooser(self) -> tuple[str, ...]:
        """What it is apart from how its models are trained."""
        return (
            self.query.partition("@")[0],
            *(s for s in self.settings if s not in self.trainer),
        )

    @property
    def key(self) -> str:
        """The name of its class without case, dash and underscore."""
        return fold_name(self.spec.name)


def fold_name(name: str) -> str:
    """A class name as `fallow.core.build` compares it.

    >>> fold_name("Core-Set") == fold_name("core_set") == fold_name("CoreSet")
    True
    """
    return re.sub("[-_]", "", name).lower()
