"""Every setting of a recipe with its value, also where it was left at its default."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fallow.core.build import Packages, find
from fallow.core.names import NamePolicy, check_name
from fallow.settings.spec import Spec


def resolve_settings(
    settings: Any, policy: NamePolicy, outside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The fields of a dataclass as plain values that JSON can hold, without those of ``outside``.

    A class that is named in words (`Spec`) has all its fields, with the defaults of today: a
    later version with other defaults gives something else, and so another digest.  A class that
    ``policy`` does not let resolve is not imported, and has the fields that were given.
    """
    return {
        field.name: _plain(getattr(settings, field.name), policy, field.name)
        for field in fields(settings)
        if field.name not in outside
    }


def _plain(value: Any, policy: NamePolicy, part: str = "") -> Any:
    if isinstance(value, Spec):
        return {"name": value.name, "fields": _fields(value, policy, part)}
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__qualname__, **resolve_settings(value, policy)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each, policy) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each, policy) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # a class or a function, and what else has no plain form: its name, never its address
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _fields(spec: Spec, policy: NamePolicy, part: str) -> dict[str, Any]:
    """The given fields over the defaults of the class; a class that is not found is complained
    about where it is needed.

    Fields that a class lists as ``LATER`` it did not always have: left at their default they are no
    part of a digest, so that studies of before stay the same studies.

    A class of others that ``policy`` does not allow has the given fields alone: to know its
    defaults is to run its code, and a digest is wanted before anybody has agreed to that.
    """
    try:
        check_name(spec.name, policy)  # before anything is imported
        cls = find(_packages(part), spec.name, policy)
    except ValueError:
        return dict(_plain(spec.fields, policy))
    later = getattr(cls, "LATER", ())
    defaults = _defaults(cls, policy)
    known = {name: value for name, value in defaults.items() if name not in later}
    return {**known, **_plain(spec.fields, policy)}


def _packages(part: str) -> Packages:
    """Where a part of a recipe looks its class up; imported here, for all of them take a second."""
    from fallow import encoders, models, queries, training
    from fallow.data.partition import partitions
    from fallow.training import personal

    packages: dict[str, Packages] = {
        "encoder": encoders,
        "features": models,
        "model": models,
        "partition": partitions,
        "query": queries,
        "training": (training, personal),
    }
    return packages[part]


def _defaults(cls: type[Any], policy: NamePolicy) -> dict[str, Any]:
    if not is_dataclass(cls):
        parameters = inspect.signature(cls).parameters.values()
        given = {each.name: each.default for each in parameters}
        return {
            k: _plain(v, policy)
            for k, v in given.items()
            if v is not inspect.Parameter.empty
        }
    found = {}
    for field in fields(cls):
        if field.default is not MISSING:
            found[field.name] = _plain(field.default, policy)
        elif field.default_factory is not MISSING:
            found[field.name] = _plain(field.default_factory(), policy)
    return found
