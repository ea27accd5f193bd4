"""Every setting of a recipe with its value, also where it was left at its default."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass

from fallow.core.build import Packages, find
from fallow.core.names import NamePolicy, check_name
from fallow.settings.spec import Spec


def resolve_settings(
    settings: object, policy: NamePolicy, outside: tuple[str, ...] = ()
) -> dict[str, object]:
    """The fields of a dataclass as plain values that JSON can hold, without those of ``outside``.

    A class that is named in words (`Spec`) has all its fields, with the defaults of today: a
    later version with other defaults gives something else, and so another digest.  A class that
    ``policy`` does not let resolve is not imported, and has the fields that were given.
    """
    assert is_dataclass(settings)  # noqa: S101 - what a caller is held to
    resolved = {}
    for field in fields(settings):
        if field.name not in outside:
            value = getattr(settings, field.name)
            resolved[field.name] = _plain(value, policy, part=field.name)
    return resolved


def _plain(value: object, policy: NamePolicy, part: str = "") -> object:
    """``value`` as JSON can hold it.  part: the setting in which it stands, for a `Spec`."""
    if isinstance(value, Spec):
        return {"name": value.name, "fields": _fields(value, policy, part)}
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__qualname__, **resolve_settings(value, policy)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, policy) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each, policy) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # a class or a function, and what else has no plain form: its name, never its address
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _fields(spec: Spec, policy: NamePolicy, part: str) -> dict[str, object]:
    """The given fields over the defaults of the class; a class that is not found is complained
    about where it is needed.

    A class of others that ``policy`` does not allow has the given fields alone: to know its
    defaults is to run its code, and a digest is wanted before anybody has agreed to that.
    """
    given = {name: _plain(value, policy) for name, value in spec.fields.items()}
    try:
        check_name(spec.name, policy)  # before anything is imported
        cls = find(_packages(part), spec.name, policy)
    except ValueError:
        return given
    return _defaults(cls, policy) | given


def _packages(part: str) -> Packages:
    """Where a part of a recipe looks its class up; imported here, for all of them take a second."""
    from fallow import encoders, models, strategies, training
    from fallow.data.partition import partitions
    from fallow.training import personal

    packages: dict[str, Packages] = {
        "encoder": encoders,
        "features": models,
        "model": models,
        "partition": partitions,
        "strategy": strategies,
        "training": (training, personal),
    }
    return packages[part]


def _defaults(cls: type, policy: NamePolicy) -> dict[str, object]:
    """Field -> default of a class, as JSON can hold it; fields that must be given are left out."""
    outcome: dict[str, object] = {}
    if not is_dataclass(cls):  # a network: the parameters of its constructor
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
