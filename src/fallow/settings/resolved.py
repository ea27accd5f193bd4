"""Explicit values of all settings, defaults included."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fallow.core.build import Packages, find
from fallow.core.names import NamePolicy, check_name
from fallow.settings.spec import Spec


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
    named = value if hasattr(value, "__qualname__") else type(value)
    return _public_name(named)


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
        cls = find(_packages(part), spec.name, policy)
    except ValueError:
        return values
    return _defaults(cls, policy) | values


def _packages(part: str) -> Packages:
    """Return the packages that contain the classes of a setting, imported on demand."""
    from fallow import encoders, strategies, training
    from fallow.data.partition import partitions
    from fallow.models import networks
    from fallow.training import personal

    packages: dict[str, Packages] = {
        "encoder": encoders,
        "features": networks,
        "model": networks,
        "partition": partitions,
        "strategy": strategies,
        "training": (training, personal),
    }
    return packages[part]


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
