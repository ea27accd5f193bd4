"""What papers say of strategies, as values: whoever names a strategy, or prints a number of a paper
beside a measured one, is given them and knows no paper itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fallow.core.build import find
from fallow.settings.spec import Spec
from fallow.study.published import PublishedTables
from fallow.study.strategy import Strategy


class StrategyWords(Protocol):
    """Names a strategy, or returns None for one that it does not know.

    ``training`` is the training method of the study, `fold_name`; ``brief`` leaves out the settings
    with which the strategy is the paper's.
    """

    def __call__(self, strategy: Strategy, training: str, *, brief: bool) -> str | None: ...


class FieldWords(Protocol):
    """Says a field of a method in words, or returns None where it is said as it is typed.

    ``method``: the name of the method, `fold_name`.
    """

    def __call__(self, method: str, field: str, value: object) -> str | None: ...


@dataclass(frozen=True)
class Labels:
    """How the readers of a paper call strategies, where that is not what is typed."""

    strategy: StrategyWords | None = None
    field: FieldWords | None = None


@dataclass(frozen=True, order=True)
class Code:
    """A class that does what a public code does, where that is not what its paper says.

    ``of``: the strategy of the paper; ``aliases``: other words by which studies name the class.
    """

    name: str
    home: str  # the module that exports it
    of: str
    aliases: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All words by which studies may name it."""
        return (f"{self.home}:{self.name}", *self.aliases)

    @property
    def word(self) -> str:
        """The word by which lists show it: short, and the same wherever the class lives."""
        return next(iter(self.aliases), self.words[0])

    def load(self) -> type[Any]:
        """The class itself."""
        return find((), f"{self.home}:{self.name}")


@dataclass(frozen=True)
class Known:
    """What several papers say together."""

    labels: tuple[Labels, ...] = ()
    codes: Mapping[str, Code] = field(default_factory=dict)  # by each of its words
    published: PublishedTables = PublishedTables()

    def code(self, spec: Spec) -> Code | None:
        """What public code a strategy reproduces; None where it follows its paper."""
        return self.codes.get(spec.name)

    def strategy_words(
        self, strategy: Strategy, training: str, *, brief: bool
    ) -> str | None:
        """What the first paper that knows the strategy calls it."""
        for labels in self.labels:
            if labels.strategy is None:
                continue
            output = labels.strategy(strategy, training, brief=brief)
            if output is not None:
                return output
        return None

    def field_words(self, method: str, name: str, value: object) -> str | None:
        """What the first paper that knows the field says of it."""
        for labels in self.labels:
            if labels.field is None:
                continue
            output = labels.field(method, name, value)
            if output is not None:
                return output
        return None
