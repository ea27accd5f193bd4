"""Descriptions of values that validation rejects, for error messages."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from fallow.core.kinds import (
    LISTS,
    PLAIN,
    TABLES,
    describe_kind,
    drop_none,
    is_typed_dict,
    show_name,
    show_value,
)
from fallow.core.suggestions import nearest
from fallow.core.wording import join_words

ABSENT = ("missing", "missing_argument")
EXTRA = ("unexpected_keyword_argument", "extra_forbidden")


class BrokenRule(ValueError):
    """A value of the right type does not fulfill a condition that the type describes."""


def describe_wrong_value(
    kind: Any, errors: Sequence[Mapping[str, Any]], whole: str = ""
) -> str:
    """Describe the first value that pydantic rejected, in a sentence.

    kind: the validated type; errors: `ValidationError.errors()`; whole: prefix of the names of fields.
    """
    first = errors[0]
    loc = first["loc"]
    if first["type"] == "json_invalid":
        return f"{whole or 'it'} has a text that is not valid Unicode"
    names, hint = _follow(kind, loc)
    path = ".".join([*filter(None, [whole]), *names])
    if first["type"] in EXTRA:
        owner = drop_none(hint)
        known = fields_of(owner) or {}
        word = "field"
        if is_dataclass(owner):
            word = "setting"
        name = show_name(loc[-1])
        return f"{_join(path, name)} is not a {word}{nearest(name, list(known))}"
    cause = first.get("ctx", {}).get("error")
    if first["type"] == "value_error" and not isinstance(cause, BrokenRule):
        message = first["msg"].removeprefix("Value error, ")
        last = path.rpartition(".")[2]
        if not path or message.startswith((path, last)):
            return str(message)
        return f"{path}: {message}"
    if first["type"] in ABSENT and (not names or loc[-1] == names[-1]):
        return f"{path or loc[-1]} is missing; it must be {describe_kind(hint)}"
    value = show_value(first["input"])
    if is_dataclass(hint) and getattr(hint, "__name__", "") not in PLAIN:
        parts = [_join(path, field.name) for field in fields(hint)]
        return f"{path} is {value}; its settings are set one by one: {join_words(parts)}"
    if isinstance(first["input"], int) and abs(first["input"]) > sys.float_info.max:
        value = "beyond all numbers"
    return f"{path or 'it'} is {value}; it must be {describe_kind(hint)}"


def _join(path: str, name: str) -> str:
    """Return the name of a part."""
    return ".".join(filter(None, (path, name)))


def _follow(kind: Any, loc: Sequence[int | str]) -> tuple[list[str], Any]:
    """Return the names on the way to a value and its declared type.

    For a union, and a list of fixed length, the path of pydantic continues with a branch or a
    position: the result ends there.
    """
    names: list[str] = []
    hint = kind
    for step in loc:
        inner = drop_none(hint)
        parts = get_args(inner)
        known = fields_of(inner)
        is_list = get_origin(inner) in LISTS
        if known is not None and step in known:
            hint = known[str(step)]
        elif get_origin(inner) in TABLES and isinstance(step, str):
            hint = parts[1]
        elif is_list and isinstance(step, int) and (len(parts) == 1 or parts[1] is ...):
            hint = parts[0]
        else:
            return names, hint
        names.append(show_name(step))
    return names, hint


def fields_of(hint: Any) -> Mapping[str, Any] | None:
    """Return the declared types of the fields of a class, or None for types without fields."""
    if is_dataclass(hint) or is_typed_dict(hint):
        return get_type_hints(hint, include_extras=True)
    return None
