"""Settings by other names: parameters of components (``partition.alpha``), short names (``lr``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from fallow.core.kinds import describe_kind
from fallow.core.names import spell_class
from fallow.core.suggestions import nearest
from fallow.core.training_config import KEYWORDS
from fallow.core.wording import join_words
from fallow.settings.classes import (
    PARTS,
    classes_of,
    comments_of,
    defaults_of,
    fields_of,
    first_line,
)
from fallow.settings.config import ExperimentConfig
from fallow.settings.listing import (
    Setting,
    describe_value,
    find_settings,
    list_settings,
)
from fallow.settings.spec import Spec

GIVEN = "must be given"


@dataclass(frozen=True)
class NamedClass:
    """Component that a setting can name."""

    name: Annotated[str, Field(description="name in settings")]
    summary: Annotated[str, Field(description="description")]
    fields: Annotated[Mapping[str, str], Field(description="parameters with defaults")]


def describe_classes(part: str) -> list[NamedClass]:
    """Return the components that a setting can name, sorted by name.

    >>> [partition.name for partition in describe_classes("partition")][:3]
    ['class-windows', 'counts', 'dirichlet']
    """
    classes = []
    for cls in classes_of(part).values():
        fields = {name: describe_default(value) for name, value in defaults_of(cls).items()}
        summary = first_line(cls).replace("``", "`")
        classes.append(NamedClass(spell_class(cls), summary, fields))
    return sorted(classes, key=lambda one: one.name)


def describe_default(value: object) -> str:
    """Return the default of a parameter as ``name:parameter=value`` takes it.

    ``none`` is a word there: ``ahfal:balance=none``.
    """
    if value is ...:
        return GIVEN
    if value is None:
        return "null"
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
            type=describe_kind(hints[name]),
            default=describe_default(value),
            meaning=meanings.get(name, "see its class"),
            source=f"{spell_class(cls)} ({cls.__module__}.{cls.__name__})",
        )
        settings.append(setting)
    return settings


def find_all(name: str) -> list[Setting]:
    """Return the settings and the component parameters with a name, or settings with that meaning.

    Raises ValueError, with the closest name, if there are none.

    >>> [setting.last_part for setting in find_all("batch size")]
    ['batch_size', 'batch_size']
    """
    all_fields = class_fields()
    of_classes = [
        all_field
        for all_field in all_fields
        if name in (all_field.name, all_field.last_part)
    ]
    named = find_settings(name) + of_classes
    if named:
        return named
    settings = list_settings()
    words = re.compile(rf"\b{re.escape(name.replace('_', ' '))}\b", re.IGNORECASE)
    with_meaning = [one for one in settings if words.search(one.meaning)]
    if with_meaning:
        return with_meaning
    known = {one.name for one in settings}
    known |= {one.last_part for one in settings + all_fields}
    hint = nearest(name, sorted(known), "'fallow settings' lists them")
    raise ValueError(f"{name} is not a setting{hint}")


SECOND = "local_training_config."
"""The training configuration of a query's local model. Short names refer to
`training_config`, so its settings have none.
"""


def expand(config: ExperimentConfig, settings: Mapping[str, str]) -> dict[str, str]:
    """Replace short names of settings by full names, in the same order.

    Parameters of a component that ``settings`` name are recognized too.  Raises ValueError if a short
    name is ambiguous.

    >>> expand(ExperimentConfig("a"), {"lr": "0.1", "alpha": "1.0"})
    {'training_config.optimizer.lr': '0.1', 'partition.alpha': '1.0'}
    """
    named = {}
    for part in PARTS:
        spec: Spec | None = getattr(config, part)
        if spec is not None:
            named[part] = spec.name
    full: dict[str, str] = {}
    for key, text in settings.items():
        if key in PARTS:
            named[key] = text.partition(":")[0]
        name = full_name(key, named)
        if full.get(name, text) != text:
            raise ValueError(f"{name} is {full[name]} and {text}, as {key}; give it once")
        full[name] = text
    return full


def full_name(key: str, named: Mapping[str, str]) -> str:
    """Return the full name of a setting, or the name itself if it is unknown.

    ``named`` maps each setting to the class it names.  Raises ValueError if the name is ambiguous.
    """
    settings = [setting.name for setting in list_settings()]
    tops = {name.partition(".")[0] for name in settings}
    if key.partition(".")[0] in tops | {"name"}:
        return key
    meant = []
    if key in KEYWORDS:
        meant.append(".".join(("training_config", *KEYWORDS[key])))
    for name in settings:
        is_second = name.startswith(SECOND) or name in meant
        if name.endswith(f".{key}") and not is_second:
            meant.append(name)
    for part, cls in named.items():
        if key in fields_of(part, cls):
            meant.append(f"{part}.{key}")
    if len(meant) > 1:
        raise ValueError(f"{key} may be {join_words(meant, last='or')}; write one of them")
    if meant:
        return meant[0]
    return key
