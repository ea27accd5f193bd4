"""Components that a setting can name, their parameters, and explicit values of all settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from dataclasses import Field as DataclassField
from importlib import import_module
from types import ModuleType
from typing import Any

from fallow.core.build import find, names
from fallow.core.names import NamePolicy, check_name
from fallow.core.training_config import TrainingConfig
from fallow.settings.spec import Spec

PARTS: Mapping[str, tuple[str, ...]] = {
    "partition": ("fallow.data.partition.partitions",),
    "encoder": ("fallow.encoders",),
    "features": ("fallow.models.networks",),
    "model": ("fallow.models.networks",),
    "training": ("fallow.training", "fallow.training.personal"),
    "strategy": ("fallow.strategies",),
}
"""Setting -> packages whose classes it may name."""

NAMED_MEASUREMENTS = "fallow.measurements.named"
"""Package whose classes the setting ``measure`` may name."""

DECIDED = ("shape", "outputs")
"""Fields of a model that are determined by the data."""


def packages_of(part: str) -> tuple[ModuleType, ...]:
    """Return the packages whose classes a setting may name; they import PyTorch."""
    return tuple(map(import_module, PARTS[part]))


def classes_of(part: str) -> dict[str, type[Any]]:
    """Return the classes that a setting can name, by name, in alphabetical order."""
    result: dict[str, type[Any]] = {}
    for package in packages_of(part):
        for name, cls in names(package).items():
            if is_dataclass(cls) or "shape" in inspect.signature(cls).parameters:
                result[name] = cls
    return dict(sorted(result.items()))


def defaults_of(cls: type[Any]) -> dict[str, object]:
    """Return the default of each field, ``...`` for required fields.

    The training configuration of a training algorithm is omitted, because it is a separate setting.
    """
    result: dict[str, object] = {}
    if is_dataclass(cls):
        for field in fields(cls):
            value = _default(field)
            if field.init and not _is_training_config(field.name, value):
                result[field.name] = value
        return result
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in DECIDED:
            continue
        result[name] = parameter.default
        if parameter.default is inspect.Parameter.empty:
            result[name] = ...
    return result


def _is_training_config(name: str, value: object) -> bool:
    return name == "training_config" and isinstance(value, TrainingConfig)


def _default(field: DataclassField[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ...


# -- explicit values, for digests ----------------------------------------------------------------


def resolve_settings(
    settings: object, policy: NamePolicy, outside: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the fields of a dataclass as JSON values, without those in ``outside``.

    Each component (`Spec`) has all its parameters with the current defaults, so that a version with
    other defaults has another digest.  A class that ``policy`` does not allow is not imported and has
    only its explicit parameters.
    """
    assert is_dataclass(settings)  # noqa: S101 - required of callers
    resolved = {}
    for field in fields(settings):
        if field.name not in outside:
            value = getattr(settings, field.name)
            resolved[field.name] = _plain(value, policy, part=field.name)
    return resolved


def _plain(value: object, policy: NamePolicy, part: str = "") -> object:
    """Convert ``value`` to JSON values; ``part`` is the setting that contains a `Spec`."""
    if isinstance(value, Spec):
        return {"name": value.name, "fields": _fields(value, policy, part)}
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__qualname__, **resolve_settings(value, policy)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, policy) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry, policy) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # classes, functions and similar objects: their public name, never their address
    if hasattr(value, "__qualname__"):
        return _public_name(value)
    return _public_name(type(value))


def _public_name(named: Any) -> str:  # a class or a function
    """Return package and qualified name, without the module that defines it.

    >>> from collections import Counter
    >>> _public_name(Counter), _public_name(Mapping)
    ('collections.Counter', 'collections.Mapping')
    """
    package = str(named.__module__).partition(".")[0]
    return f"{package}.{named.__qualname__}"


def _fields(spec: Spec, policy: NamePolicy, part: str) -> dict[str, object]:
    """Return the parameters of a component, with defaults unless ``policy`` forbids its import.

    Finding the defaults of a custom class runs its code, and the digest is needed before anyone
    has approved that code.  Unknown classes are reported where they are used.
    """
    values = {name: _plain(value, policy) for name, value in spec.fields.items()}
    try:
        check_name(spec.name, policy)  # before any import
        cls = find(packages_of(part), spec.name, policy)
    except ValueError:
        return values
    return _defaults(cls, policy) | values


def _defaults(cls: type, policy: NamePolicy) -> dict[str, object]:
    """Return the defaults of a class as JSON values, without required fields."""
    outcome: dict[str, object] = {}
    if not is_dataclass(cls):  # a network: constructor parameters
        for parameter in inspect.signature(cls).parameters.values():
            if parameter.default is not inspect.Parameter.empty:
                outcome[parameter.name] = _plain(parameter.default, policy)
        return outcome
    for field in fields(cls):
        if field.default is not MISSING:
            outcome[field.name] = _plain(field.default, policy)
        elif field.default_factory is not MISSING:
            outcome[field.name] = _plain(field.default_factory(), policy)
    return outcome
