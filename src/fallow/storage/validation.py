"""Validation of plain values by their declared types, with error sentences.

>>> find_error(dict[str, list[int]], {"a": [1, "x"]}, "counts")
"counts.a.1 is 'x'; it must be a whole number"
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import GenerateJsonSchema

from fallow.core.kinds import LARGEST
from fallow.core.wrong_values import BrokenRule, describe_wrong_value

HUGE = 1e100
"""Largest number whose square is finite. NaN and infinity of a diverged model are larger."""
STRICT = ConfigDict(strict=True, extra="forbid")
"""Configuration of models: no conversions, and no undeclared fields."""


@dataclass(frozen=True)
class Rule:
    """Additional condition of a type: ``Annotated[str, Rule(is_moment, "a moment")]``.

    Attributes
    ----------
    is_kept
        Whether a value of the type fulfills the condition.
    words
        Description of a valid value, with its article.
    """

    is_kept: Callable[[Any], bool]  # Any: the annotated type
    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> Any:  # a schema of pydantic
        return AfterValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def _check(self, value: Any) -> Any:
        if not self.is_kept(value):
            raise BrokenRule(self.words)
        return value


def is_usable(number: float) -> bool:
    """Return whether a number has a finite square, or is NaN or infinite."""
    return not HUGE < abs(number) < float("inf")


Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[float, Rule(is_usable, "a number")]


def _read_endless(value: object) -> object:
    return math.inf if value is None else value


Endless = Annotated[
    float, BeforeValidator(_read_endless, json_schema_input_type=float | None)
]
"""Number that may be infinite, which results in JSON have as null."""


def find_error(kind: Any, value: object, name: str = "") -> str | None:
    """Return an error sentence for a plain value that is not of a type, or None.

    kind: a type, such as a typed dictionary with `STRICT`; name: name of the value in the sentence.
    """
    try:
        adapter_of(kind).validate_python(value, strict=True)
    except ValidationError as error:
        return describe_wrong_value(kind, error.errors(include_url=False), whole=name)
    return None


def find_error_in_json(kind: Any, value: object, name: str = "") -> str | None:
    """Validate like `find_error`, for types that only JSON represents as lists and tables."""
    try:
        adapter_of(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return describe_wrong_value(kind, error.errors(include_url=False), whole=name)
    return None


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type, cached because its creation takes milliseconds."""
    return TypeAdapter(kind)


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
