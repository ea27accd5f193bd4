"""Names that papers use for strategies, and published results, passed as values.

Modules that name a strategy or print published results receive them as arguments.  They do not
depend on any paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from fallow.settings.spec import Spec
from fallow.settings.variants import ParsedStrategy
from fallow.study.published import PublishedTables


class StrategyWords(Protocol):
    """Function that names a strategy, or returns None for an unknown one.

    ``training`` is the training algorithm of the study, after `fold_name`.  ``brief`` omits the
    settings of the paper.
    """

    def __call__(
        self, strategy: ParsedStrategy, training: str, *, brief: bool
    ) -> str | None: ...


FieldWords = Callable[[str, str, object], str | None]
"""Function that describes a parameter of an algorithm, by the name of the algorithm after
`fold_name`, the name of the parameter and its value; None shows it as written.
"""


@dataclass(frozen=True)
class Labels:
    """Display names of strategies in a paper, if they differ from the specification."""

    strategy: StrategyWords | None = None
    field: FieldWords | None = None


@dataclass(frozen=True, order=True)
class Code:
    """Class that reproduces published code that differs from its paper.

    Attributes
    ----------
    of : str
        Query strategy of the paper.
    """

    name: str
    home: str  # the module that exports it
    of: str

    @property
    def word(self) -> str:
        """Name of the class in studies."""
        return f"{self.home}:{self.name}"

    def load(self) -> type[Any]:
        """Import the class."""
        loaded: type[Any] = getattr(import_module(self.home), self.name)
        return loaded


@dataclass(frozen=True)
class PaperResults:
    """Names and published results of several papers."""

    labels: tuple[Labels, ...] = ()
    codes: Mapping[str, Code] = field(default_factory=dict)  # by name in studies
    published: PublishedTables = PublishedTables()

    def code(self, spec: Spec) -> Code | None:
        """Return the published code that a strategy reproduces, or None."""
        return self.codes.get(spec.name)

    def strategy_words(
        self, strategy: ParsedStrategy, training: str, *, brief: bool
    ) -> str | None:
        """Return the name of a strategy in the first paper that has one."""
        naming = filter(None, (labels.strategy for labels in self.labels))
        names = (name(strategy, training, brief=brief) for name in naming)
        return next((name for name in names if name is not None), None)

    def field_words(self, method: str, name: str, value: object) -> str | None:
        """Return the description of a parameter in the first paper that has one."""
        naming = filter(None, (labels.field for labels in self.labels))
        texts = (describe(method, name, value) for describe in naming)
        return next((text for text in texts if text is not None), None)
