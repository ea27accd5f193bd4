"""The name of a strategy, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fallow.settings.spec import Spec

TRAINING = ("training", "training_config", "trainer", "rounds")
"""Settings that say how models are trained."""


@dataclass(frozen=True)
class Strategy:
    """A query of a study: its class and fields, and the settings it changes for itself."""

    strategy: str
    spec: Spec
    settings: tuple[str, ...]  # "key=value", as written after each @

    @staticmethod
    def parse(strategy: str) -> Strategy:
        """``name:field=value@setting=value``; a text of another form is a name as a whole.

        >>> Strategy.parse("entropy:model=global@training=kcfu").settings
        ('training=kcfu',)
        """
        name, *settings = strategy.split("@")
        try:
            return Strategy(strategy, Spec.parse(name), tuple(settings))
        except ValueError:
            return Strategy(strategy, Spec(strategy), ())

    @property
    def trains_otherwise(self) -> bool:
        """Whether its models are trained in another way than those of the study: then its scores
        say little about what it picks."""
        return bool(self.trainer)

    @property
    def trainer(self) -> tuple[str, ...]:
        """The settings that say how its models are trained."""
        result = []
        for setting in self.settings:
            key = setting.partition("=")[0]
            if key.partition(".")[0] in TRAINING:
                result.append(setting)
        return tuple(result)

    @property
    def training(self) -> str:
        """The training method that it names for itself, as `fold_name`; empty if it names none."""
        for setting in self.settings:
            key, _, value = setting.partition("=")
            if key == "training":
                return fold_name(value.partition(":")[0])
        return ""

    @property
    def selection(self) -> tuple[str, ...]:
        """What it is apart from how its models are trained."""
        others = [setting for setting in self.settings if setting not in self.trainer]
        return (self.strategy.partition("@")[0], *others)

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
