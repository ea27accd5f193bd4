"""JSON schema of an experiment configuration as a TOML file."""

from __future__ import annotations

from typing import Any

from fallow.core.limits import SCHEMA
from fallow.core.training_config import KEYWORDS
from fallow.settings.listing import meaning_of
from fallow.settings.recipe import Recipe
from fallow.storage.validation import JsonSchema, build_schema

COMPONENT = {"anyOf": [{"type": "string"}, {"type": "object"}]}
"""A component is ``"name:field=value"``, or a table with its name and fields."""
SHORT_FORMS = {
    "audit": {"type": "boolean"},
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
    schema = build_schema(Recipe)
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
    found: JsonSchema = definitions.get(reference, setting)
    return found


def _find(schema: JsonSchema, path: tuple[str, ...], definitions: JsonSchema) -> Any:
    """Return a nested setting."""
    for name in path:
        schema = _resolve(schema, definitions)["properties"][name]
    return schema
