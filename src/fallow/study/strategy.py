"""Parsing of the specification of a query strategy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fallow.settings.spec import Spec

TRAINING = ("training", "training_config", "trainer", "rounds")
"""Settings that determine how models are trained."""


@dataclass(frozen=True)
class ParsedStrategy:
    """Query strategy of a study: class, parameters, and settings that it overrides."""

    strategy: str
    spec: Spec
    settings: tuple[str, ...]  # "key=value", as written after each @

    @staticmethod
    def parse(strategy: str) -> ParsedStrategy:
        """Parse ``name:field=value@setting=value``; other text is a name.

        >>> ParsedStrategy.parse("entropy:model=global@training=kcfu").settings
        ('training=kcfu',)
        """
        name, *settings = strategy.split("@")
        try:
            return ParsedStrategy(strategy, Spec.parse(name), tuple(settings))
        except ValueError:
            return ParsedStrategy(strategy, Spec(strategy), ())

    @property
    def trains_otherwise(self) -> bool:
        """Whether the strategy overrides training settings, which affect its scores."""
        return bool(self.trainer)

    @property
    def trainer(self) -> tuple[str, ...]:
        """Overridden settings of training."""
        result = []
        for setting in self.settings:
            key = setting.partition("=")[0]
            if key.partition(".")[0] in TRAINING:
                result.append(setting)
        return tuple(result)

    @property
    def training(self) -> str:
        """Overridden training algorithm, after `fold_name`, or ""."""
        for setting in self.settings:
            key, _, value = setting.partition("=")
            if key == "training":
                return fold_name(value.partition(":")[0])
        return ""

    @property
    def selection(self) -> tuple[str, ...]:
        """Specification without training settings."""
        others = [setting for setting in self.settings if setting not in self.trainer]
        return (self.strategy.partition("@")[0], *others)

    @property
    def key(self) -> str:
        """Class name without case, hyphens and underscores."""
        return fold_name(self.spec.name)


def fold_name(name: str) -> str:
    """Normalize a class name as `fallow.core.build` does.

    >>> fold_name("Core-Set") == fold_name("core_set") == fold_name("CoreSet")
    True
    """
    return re.sub("[-_]", "", name).lower()
