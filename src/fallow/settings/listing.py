"""All settings: name, type, default, description, and the JSON schema of a configuration.

>>> from fallow.settings.listing import find_settings
>>> [setting.name for setting in find_settings("lr")]
['training_config.optimizer.lr', 'local_training_config.optimizer.lr']
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from fallow.core.kinds import describe_kind
from fallow.core.limits import SCHEMA
from fallow.core.training_config import KEYWORDS
from fallow.settings.config import ExperimentConfig
from fallow.settings.descriptions import meaning_of
from fallow.settings.spec import Published, Spec
from fallow.storage.validation import JsonSchema, build_schema

SKIPPED = ("name",)
"""Settings that are not listed: the name of a configuration is that of its file."""

DEFAULTS = {
    "partition": "natural with sites in the data, otherwise iid",
    "training": "closed-form",
    "training_config.stages": "by model family",
    "training_config.batch_size": "by model family",
    "training_config.optimizer.lr": "by model family",
}
"""Defaults of functions, files and commands that differ from those of `ExperimentConfig`."""


@dataclass(frozen=True)
class Setting:
    """Description of a setting."""

    name: Annotated[
        str,
        Field(description="name as in --set, with dots for nested settings"),
    ]
    type: Annotated[str, Field(description="type in words")]
    default: Annotated[
        str,
        Field(description="default; `none`, or `null` of a parameter, if there is none"),
    ]
    meaning: Annotated[str, Field(description="description")]
    source: Annotated[
        str, Field(description="class that declares it, or name of the component")
    ]

    @property
    def last_part(self) -> str:
        """Last part of the name: ``lr`` for ``training_config.optimizer.lr``."""
        return self.name.rpartition(".")[2]


@cache
def list_settings() -> tuple[Setting, ...]:
    """Return all settings in the order of declaration, the data first, nested ones included."""
    settings = _walk(ExperimentConfig(""), prefix="")
    return tuple(sorted(settings, key=lambda setting: setting.name != "data"))


def find_settings(name: str) -> list[Setting]:
    """Return the settings with a name, in a group, or with a name that ends in it."""
    settings = list_settings()
    for is_meant in (_is_named, _is_within, _ends_with):
        result = [setting for setting in settings if is_meant(setting, name)]
        if result:
            return result
    return []


def _is_named(setting: Setting, name: str) -> bool:
    return setting.name == name


def _is_within(setting: Setting, name: str) -> bool:
    return setting.name.startswith(f"{name}.")


def _ends_with(setting: Setting, name: str) -> bool:
    return setting.name.endswith(f".{name}")


def _walk(defaults: object, prefix: str) -> Iterator[Setting]:
    """Yield the settings of a dataclass and of nested dataclasses.

    ``defaults`` is an instance of the dataclass.
    """
    assert is_dataclass(defaults)  # noqa: S101 - all configurations are
    kind = type(defaults)
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(defaults):
        if not prefix and field.name in SKIPPED:
            continue
        name = f"{prefix}{field.name}"
        value = getattr(defaults, field.name)
        is_part = is_dataclass(value) and not isinstance(value, Spec | Published)
        if is_part:
            yield from _walk(value, f"{name}.")
            continue
        yield Setting(
            name=name,
            type=describe_kind(hints[field.name]),
            default=DEFAULTS.get(name, describe_value(value)),
            meaning=meaning_of(name),
            source=f"{kind.__module__}.{kind.__name__}",
        )


def describe_value(value: object) -> str:
    """Return a default as ``--set`` takes it; an empty text is named.

    >>> describe_value(0.1), describe_value(None), describe_value(("a", "b"))
    ('0.1', 'none', '["a", "b"]')
    >>> describe_value("auto"), describe_value("")
    ('auto', 'empty')
    """
    if value is None:
        return "none"
    if isinstance(value, Spec | str):
        return str(value) or "empty"
    text: str = json.dumps(value, default=asdict)  # stages are dataclasses
    return text


COMPONENT = {"anyOf": [{"type": "string"}, {"type": "object"}]}
"""A component is ``"name:parameter=value"``, or a table with its name and `fields`."""
SHORT_FORMS = {
    "bounds": {"type": "boolean"},
    "training_config.stages": {"type": "integer", "minimum": 0},
}
"""Other forms of a setting in a file."""
FORM = ("anyOf", "items", "type", *SCHEMA.values())
"""Parts of a schema that are about the form of a value."""
SECOND = "local_training_config"
BASE = {"type": "string", "description": "Experiment configuration that this one changes."}


def configuration_schema() -> JsonSchema:
    """Return the JSON schema of a file."""
    schema = build_schema(ExperimentConfig)
    definitions = schema["$defs"]
    definitions["Spec"] = COMPONENT
    schema["description"] = "Experiment configuration, as in a .toml file."
    del schema["required"]
    _describe(schema, "", definitions)
    properties = schema["properties"]
    properties["name"] = {"type": "string", "description": "Name of the study."}
    properties["base"] = BASE
    for keyword, path in KEYWORDS.items():
        properties[keyword] = _find(schema, ("training_config", *path), definitions)
    return schema


def _describe(part: JsonSchema, prefix: str, definitions: JsonSchema) -> None:
    """Add descriptions and short forms to all settings of a part, in place."""
    part["additionalProperties"] = False
    for name, setting in part["properties"].items():
        path = f"{prefix}{name}"
        nested = _resolve(setting, definitions)
        if "properties" in nested and name != "published":
            if name == SECOND:  # has the definitions of training_config
                continue
            nested["description"] = meaning_of(path)
            _describe(nested, f"{path}.", definitions)
            continue
        setting["description"] = meaning_of(path)
        form = SHORT_FORMS.get(path)
        if form is not None:
            usual = {key: setting.pop(key) for key in FORM if key in setting}
            setting["anyOf"] = [*usual.get("anyOf", [usual]), form]


def _resolve(setting: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """Return the definition that a setting refers to, or the setting."""
    reference = str(setting.get("$ref", "")).rpartition("/")[2]
    schema: JsonSchema = definitions.get(reference, setting)
    return schema


def _find(schema: JsonSchema, path: tuple[str, ...], definitions: JsonSchema) -> Any:
    """Return a nested setting."""
    for name in path:
        schema = _resolve(schema, definitions)["properties"][name]
    return schema
