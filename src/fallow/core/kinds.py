"""Descriptions of declared types and of values, for error messages."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    get_args,
    get_origin,
    get_type_hints,
)

from fallow.core.limits import BOUNDS, Limits
from fallow.core.wording import join_words

PLAIN: Mapping[str, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "NoneType": "none",
    "Spec": "a name, followed by parameters such as name:parameter=value",
}
"""Names of plain types."""
PLURAL: Mapping[str, str] = {
    "int": "whole numbers",
    "float": "numbers",
    "str": "texts",
}
LISTS = (tuple, list, Sequence)
TABLES = (dict, Mapping)
UNIONS = (typing.Union, types.UnionType)
WRAPPERS = (Required, NotRequired)
LARGEST = 2**53
"""Largest whole number in a record."""
LONGEST = 80  # maximum characters of a quoted value


def describe_kind(hint: Any) -> str:  # a type, or a type form such as int | None
    """Describe a value of this type, with its article.

    >>> describe_kind(int), describe_kind(float | None)
    ('a whole number', 'a number or none')
    >>> describe_kind(tuple[int, ...]), describe_kind(Literal["a", "b"])
    ('a list of whole numbers', "'a' or 'b'")
    >>> describe_kind(tuple[float, float]), describe_kind(dict[str, int])
    ('a list of 2: a number and a number', 'a table of names and values')
    """
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin in WRAPPERS:
        return describe_kind(parts[0])
    if origin is Annotated:
        return _describe_annotated(parts[0], parts[1:])
    if origin is Literal:
        return join_words([repr(part) for part in parts], last="or")
    if origin in UNIONS:
        return _join_options([describe_kind(part) for part in parts])
    if origin is tuple and parts[-1] is not Ellipsis:
        of_each = [describe_kind(part) for part in parts]
        return f"a list of {len(parts)}: {join_words(of_each)}"
    if origin in LISTS:
        return f"a list of {_describe_many(parts[0])}"
    if origin in TABLES or is_typed_dict(hint):
        return "a table of names and values"
    name = getattr(hint, "__name__", str(hint))
    return PLAIN.get(name, f"a {name}")


def _join_options(options: Sequence[str]) -> str:
    """Join descriptions by "or", after a comma if one of them has several parts."""
    if any(part in option for option in options for part in (", ", " such as ")):
        return ", or ".join(options)
    return join_words(options, last="or")


def _describe_annotated(kind: Any, conditions: Sequence[Any]) -> str:
    """Describe a type with conditions, which are those of pydantic or have their own ``words``.

    >>> _describe_annotated(float, [Limits(gt=0, is_finite=True)])
    'a number above 0 and finite'
    >>> _describe_annotated(float, [Limits(is_finite=True)])
    'a finite number'
    """
    words = describe_kind(kind)
    bounds: list[str] = []
    for condition in conditions:
        words = getattr(condition, "words", words)
        for part in (condition, *getattr(condition, "metadata", ())):
            bounds += _describe_bounds(part)
    if not bounds:
        return words
    if bounds == ["finite"]:
        return words.replace("a ", "a finite ", 1)
    if "or more" in bounds[0] or bounds[0].startswith("at least"):
        words += ","
    return f"{words} {' and '.join(bounds)}"


def _describe_bounds(condition: object) -> list[str]:
    """Describe the bounds of a number; those of all numbers that can be stored are left out."""
    if isinstance(condition, Limits):
        return [condition.describe()]
    bounds: dict[str, Any] = {}
    for name in BOUNDS:
        bound = getattr(condition, name, None)
        if bound is not None and abs(bound) != LARGEST:
            bounds[name] = bound
    if not bounds:
        return []
    return [Limits(**bounds).describe()]


def _describe_many(hint: Any) -> str:
    """Describe values of this type, in the plural."""
    if get_origin(hint) in (Annotated, *WRAPPERS):
        return _describe_many(get_args(hint)[0])
    if get_origin(hint) in UNIONS:
        return join_words([_describe_many(part) for part in get_args(hint)], last="or")
    if is_dataclass(hint):
        return f"tables of {join_words([field.name for field in fields(hint)])}"
    if is_typed_dict(hint):
        return "tables of names and values"
    name = getattr(hint, "__name__", "")
    return PLURAL.get(name, describe_kind(hint))


def is_of_kind(value: object, hint: Any) -> bool:
    """Return whether a value matches the declared type ``hint``.

    Only numbers, strings, Booleans, None and lists of them are checked.  Values of other types are
    accepted, because their classes check them, and so are choices between words.

    >>> is_of_kind("three", int | None), is_of_kind([3, 2], tuple[int, ...])
    (False, True)
    """
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin is Annotated:
        return is_of_kind(value, parts[0])
    if origin in UNIONS:
        return any(is_of_kind(value, part) for part in parts)
    if origin in LISTS:
        if not isinstance(value, list | tuple):
            return not isinstance(value, str | bool | int | float)
        is_fixed = origin is tuple and parts[-1] is not Ellipsis
        if is_fixed:
            return True
        return all(is_of_kind(item, parts[0]) for item in value)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    if hint is types.NoneType:
        return value is None
    return True


def takes_numbers(hint: Any) -> bool:
    """Return whether a type consists of numbers, of lists of them and of None.

    >>> (
    ...     takes_numbers(float | None),
    ...     takes_numbers(tuple[int, ...]),
    ...     takes_numbers(int | str),
    ... )
    (True, True, False)
    """
    if get_origin(hint) in (*UNIONS, *LISTS):
        parts = [part for part in get_args(hint) if part not in (types.NoneType, ...)]
        return bool(parts) and all(takes_numbers(part) for part in parts)
    return hint in (int, float)


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a class, cached because this takes a millisecond."""
    return get_type_hints(kind)


@cache
def conditions_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a class with their conditions, such as ranges."""
    return get_type_hints(kind, include_extras=True)


def refuse_conversion(value: object, hint: Any, path: str) -> None:
    """Raise ValueError for a Boolean or a string where another type is declared.

    Nested values, as in TOML, are checked too: Python treats True as 1, and type validation reads
    the string "0.1" as a number.  hint: the declared type; path: name of the value in the message.

    >>> refuse_conversion(True, bool | int, "drop_rows")
    >>> refuse_conversion([1, True], tuple[int, ...], "milestones")
    Traceback (most recent call last):
    ValueError: milestones.1 is True; it must be a whole number
    >>> refuse_conversion("3", int | None, "rows")
    Traceback (most recent call last):
    ValueError: rows is '3'; it must be a whole number or none
    """
    if isinstance(value, bool | str):
        if not is_of_kind(value, hint):
            raise ValueError(
                f"{path} is {show_value(value)}; it must be {describe_kind(hint)}"
            )
    elif isinstance(value, Mapping):
        part = drop_none(hint)
        if isinstance(part, type) and is_dataclass(part):
            _refuse_conversion_in_parts(value, conditions_of(part), path)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            refuse_conversion(item, _element_at(hint, at), f"{path}.{at}")


def _refuse_conversion_in_parts(
    parts: Mapping[Any, object], hints: Mapping[str, Any], path: str
) -> None:
    for name, value in parts.items():
        if name in hints:
            refuse_conversion(value, hints[name], f"{path}.{name}")


def _element_at(hint: Any, at: int) -> Any:
    """Return the declared type of an element of a list; Any for other types."""
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin in UNIONS:
        lists = [part for part in parts if get_origin(part) in LISTS]
        if not lists:
            return Any
        return _element_at(lists[0], at)
    if origin not in LISTS:
        return Any
    is_fixed = origin is tuple and parts[-1] is not Ellipsis
    if not is_fixed:
        return parts[0]
    if at < len(parts):
        return parts[at]
    return Any


def literal(text: str) -> Any:
    """Parse a value from the command line as JSON if possible, and as a string otherwise.

    >>> literal("0.1"), literal("true"), literal("stacked")
    (0.1, True, 'stacked')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def show_value(value: object) -> str:
    """Quote a value, truncated if it is long.

    >>> show_value("three"), show_value(None)
    ("'three'", 'none')
    """
    if value is None:
        return "none"
    text = repr(value)
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}..."
    return text


def show_name(name: object) -> str:
    """Return a name for a sentence: printable, on one line, truncated if it is long."""
    shown = "".join(character for character in str(name) if character.isprintable())
    if len(shown) > LONGEST:
        return f"{shown[: LONGEST - 3]}..."
    return shown


def is_typed_dict(hint: Any) -> bool:
    """Return whether a type is a typed dictionary, also one of ``typing_extensions``."""
    return dict in getattr(hint, "__bases__", ())


def drop_none(hint: Any) -> Any:
    """Return X for ``X | None``, without annotations; other unions unchanged.

    Of several options, the dataclass counts.
    """
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated or origin in WRAPPERS:
        return drop_none(parts[0])
    if origin not in UNIONS:
        return hint
    options = [part for part in parts if part is not types.NoneType]
    for option in options:
        if is_dataclass(option) or len(options) == 1:
            return drop_none(option)
    return hint
