"""JSON schemas of models, with the descriptions and ranges of their fields."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

JsonSchema = dict[str, Any]
DIALECT = GenerateJsonSchema.schema_dialect


class Titleless(GenerateJsonSchema):
    """Schemas whose fields have no titles, which would repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def build_schema(kind: Any) -> JsonSchema:  # a type
    """Return the JSON schema of a type.

    >>> build_schema(list[int])
    {'items': {'type': 'integer'}, 'type': 'array'}
    """
    return TypeAdapter(kind).json_schema(schema_generator=Titleless)
