"""Components that a setting can name, read from a file instead of from their classes.

The classes import PyTorch, which takes seconds.  Errors, lists and completion need only names and
parameters.  ``scripts/index.py`` writes the file from the classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fallow.core.build import explain_unknown
from fallow.core.extensions import explain_missing, find_extension, fold_name
from fallow.core.names import CLASS_KINDS
from fallow.core.suggestions import refuse_settings
from fallow.core.training_config import KEYWORDS
from fallow.settings.classes import PARTS

FILE = Path(__file__).with_name("components.json")
REQUIRED = "required"
"""Default of a parameter without a default."""
SAME: Mapping[str, str] = {"features": "model"}
"""Setting -> the setting that names the same classes."""


@dataclass(frozen=True)
class Parameter:
    """Parameter of a component: type, default and meaning in words."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Component:
    """Component that a setting can name.

    Attributes
    ----------
    part : str
        Setting that names it, such as "partition".
    name, aliases : str, tuple of str
        Names in settings.
    source : str
        Module and name of its class.
    summary : str
        First sentence of its documentation.
    parameters : tuple of Parameter
        Parameters in the order of declaration.
    algorithm : mapping or None
        Other fields of `fallow.settings.fields.AlgorithmRow`, for query strategies and training
        algorithms.
    """

    part: str
    name: str
    aliases: tuple[str, ...]
    source: str
    summary: str
    parameters: tuple[Parameter, ...]
    algorithm: Mapping[str, Any] | None

    @property
    def class_name(self) -> str:
        """Name of the class."""
        return self.source.rpartition(".")[2]

    @property
    def words(self) -> tuple[str, ...]:
        """All names, without the differences that are ignored."""
        return tuple(map(fold_name, (self.name, self.class_name, *self.aliases)))


@cache
def list_components() -> tuple[Component, ...]:
    """Return all components, by setting and class name.

    >>> [component.name for component in list_components()][:3]
    ['class-windows', 'counts', 'dirichlet']
    """
    components = []
    for row in json.loads(FILE.read_text(encoding="utf-8")):
        parameters = tuple(Parameter(**parameter) for parameter in row.pop("parameters"))
        aliases = tuple(row.pop("aliases"))
        components.append(Component(parameters=parameters, aliases=aliases, **row))
    return tuple(components)


def components_of(part: str) -> list[Component]:
    """Return the components that a setting can name, by class name."""
    wanted = SAME.get(part, part)
    return [component for component in list_components() if component.part == wanted]


def find_component(part: str, name: str) -> Component | None:
    """Return the component with a name or an alias, or None.

    >>> find_component("strategy", "least_confidence").class_name
    'LeastConfidence'
    """
    for component in components_of(part):
        if fold_name(name) in component.words:
            return component
    return None


def has_parameter(name: str) -> bool:
    """Return whether any component has a parameter of this name."""
    return any(
        name == parameter.name
        for component in list_components()
        for parameter in component.parameters
    )


def parameters_of(part: str, name: str) -> tuple[str, ...]:
    """Return the names of the parameters of a component of Fallow.

    The result is empty for an unknown name, and for a custom class, which is not imported.

    >>> parameters_of("partition", "exact-dirichlet")
    ('alpha', 'sizes')
    """
    component = find_component(part, name)
    if component is None:
        return ()
    return tuple(parameter.name for parameter in component.parameters)


def check_component(part: str, name: str, fields: Mapping[str, object]) -> None:
    """Raise ValueError for an unknown component, and for an unknown parameter of one.

    The classes of extensions and custom classes (``module:Class``) are not checked.

    >>> check_component("partition", "dirichlt", {})
    Traceback (most recent call last):
        ...
    ValueError: 'dirichlt' is not one of the partitions; did you mean 'dirichlet'?
    """
    if ":" in name:
        return
    component = find_component(part, name)
    if component is None:
        _check_extension(part, name)
        return
    known = [parameter.name for parameter in component.parameters]
    if part == "training":
        known += [*KEYWORDS, "training_config"]
    refuse_settings(name, fields, known)


def _check_extension(part: str, name: str) -> None:
    """Raise ValueError if no installed distribution has a component of this name."""
    package = PARTS[part][0]  # as in error messages
    kind = CLASS_KINDS[package]
    if find_extension(kind, name) is not None:
        return
    missing = explain_missing(kind, name)
    if missing is not None:
        raise ValueError(missing)
    written = []
    for component in components_of(part):
        written += [component.name, *component.aliases]
    other = {"strategy": "training", "training": "strategy"}.get(part)
    is_swapped = other is not None and find_component(other, name) is not None
    raise ValueError(explain_unknown(package, name, written, is_swapped=is_swapped))
