"""Parameters of the components that a configuration names, as settings: ``partition.alpha``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from fallow.core.names import spell_class
from fallow.core.terms import nearest
from fallow.settings.classes import (
    PARTS,
    classes_of,
    comments_of,
    defaults_of,
    first_line,
)
from fallow.settings.listing import (
    Setting,
    describe_type,
    describe_value,
    find_settings,
    list_settings,
)

GIVEN = "must be given"


@dataclass(frozen=True)
class NamedClass:
    """Component that a setting can name."""

    name: Annotated[str, Field(description="name in settings")]
    what: Annotated[str, Field(description="description")]
    fields: Annotated[Mapping[str, str], Field(description="parameters with defaults")]


def describe_classes(part: str) -> list[NamedClass]:
    """Return the components that a setting can name, sorted by name.

    >>> [partition.name for partition in describe_classes("partition")][:3]
    ['class-windows', 'counts', 'dirichlet']
    """
    classes = []
    for cls in classes_of(part).values():
        fields = {name: describe_default(value) for name, value in defaults_of(cls).items()}
        classes.append(NamedClass(spell_class(cls), first_line(cls), fields))
    return sorted(classes, key=lambda one: one.name)


def describe_default(value: object) -> str:
    """Return the default of a field as text."""
    if value is ...:
        return GIVEN
    return describe_value(value)


def class_fields() -> list[Setting]:
    """Return all parameters of all components."""
    outcome = []
    for part in PARTS:
        if part == "features":  # same classes as model
            continue
        for cls in classes_of(part).values():
            outcome += _fields_of_class(part, cls)
    return outcome


def _fields_of_class(part: str, cls: type[Any]) -> list[Setting]:
    meanings: Mapping[str, str] = {}
    if is_dataclass(cls):
        hints = get_type_hints(cls, include_extras=True)
        meanings = comments_of(cls)
    else:
        hints = get_type_hints(cls.__init__)
    settings = []
    for name, value in defaults_of(cls).items():
        setting = Setting(
            name=f"{part}.{name}",
            type=describe_type(hints[name]),
            default=describe_default(value),
            meaning=meanings.get(name, "see its class"),
            source=f"{spell_class(cls)} ({cls.__module__}.{cls.__name__})",
        )
        settings.append(setting)
    return settings


def find_all(name: str) -> list[Setting]:
    """Return the settings and the component parameters with a name.

    Raises ValueError, with the closest name, if there are none.
    """
    all_fields = class_fields()
    of_classes = [
        all_field
        for all_field in all_fields
        if name in (all_field.name, all_field.last_part)
    ]
    try:
        return find_settings(name) + of_classes
    except ValueError:
        if of_classes:
            return of_classes
    settings = list_settings()
    known = {one.name for one in settings}
    known |= {one.last_part for one in settings + all_fields}
    hint = nearest(name, sorted(known), "'fallow settings' lists them")
    raise ValueError(f"{name} is not a setting{hint}")
