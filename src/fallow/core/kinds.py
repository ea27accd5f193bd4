"""Descriptions of declared types and of wrong values, for error messages."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fallow.core.words import join_words

PLAIN: Mapping[str, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "NoneType": "none",
    "Spec": "a name, and behind it fields such as name:field=value",
}
"""Names of plain types."""
PLURAL: Mapping[str, str] = {
    "int": "whole numbers",
    "float": "numbers",
    "str": "texts",
}
LISTS = (tuple, list, Sequence)
LONGEST = 80  # maximum characters of a quoted value


def describe_kind(hint: Any) -> str:  # a type, or a type form such as int | None
    """Describe a value of this type, with its article.

    >>> describe_kind(int), describe_kind(float | None)
    ('a whole number', 'a number or none')
    >>> describe_kind(tuple[int, ...]), describe_kind(Literal["a", "b"])
    ('a list of whole numbers', "'a' or 'b'")
    >>> describe_kind(tuple[float, float])
    'a list of 2: a number and a number'
    """
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin is Literal:
        return join_words([repr(part) for part in parts], last="or")
    if origin in (typing.Union, types.UnionType):
        return join_words([describe_kind(part) for part in parts], last="or")
    if origin is tuple and parts[-1] is not Ellipsis:
        of_each = [describe_kind(part) for part in parts]
        return f"a list of {len(parts)}: {join_words(of_each)}"
    if origin in LISTS:
        return f"a list of {_describe_many(parts[0])}"
    name = getattr(hint, "__name__", str(hint))
    return PLAIN.get(name, f"a {name}")


def _describe_many(hint: Any) -> str:
    """Describe values of this type, in the plural."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return join_words([_describe_many(part) for part in get_args(hint)], last="or")
    if is_dataclass(hint):
        return f"tables of {join_words([field.name for field in fields(hint)])}"
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
    if origin in (typing.Union, types.UnionType):
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


def refuse_truth(value: object, hint: Any, place: str) -> None:
    """Raise ValueError for a Boolean where a number or a string is declared.

    Nested values, as in TOML, are checked too: Python treats True as 1, and so does type
    validation.  hint: the declared type; place: name of the value in the message.

    >>> refuse_truth(True, bool | int, "drop_rows")
    >>> refuse_truth([1, True], tuple[int, ...], "milestones")
    Traceback (most recent call last):
    ValueError: milestones.1 is True; it must be a whole number
    """
    if isinstance(value, bool):
        if not is_of_kind(value, hint):
            raise ValueError(f"{place} is {value}; it must be {describe_kind(hint)}")
    elif isinstance(value, Mapping):
        part = _drop_none(hint)
        if is_dataclass(part):
            _refuse_truth_in_parts(value, get_type_hints(part), place)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            refuse_truth(item, _element_at(hint, at), f"{place}.{at}")


def _refuse_truth_in_parts(
    parts: Mapping[Any, object], hints: Mapping[str, Any], place: str
) -> None:
    for name, value in parts.items():
        if name in hints:
            refuse_truth(value, hints[name], f"{place}.{name}")


def _element_at(hint: Any, at: int) -> Any:
    """Return the declared type of an element of a list; Any for other types."""
    parts = get_args(hint)
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
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


class Found(typing.TypedDict):
    """The part of an error of pydantic that is used here."""

    type: str
    loc: tuple[int | str, ...]
    msg: str
    input: Any  # the rejected value


def describe_wrong_value(kind: type, found: Sequence[Found], whole: str = "") -> str:
    """Describe the first value that pydantic rejected, in a sentence.

    kind: the validated dataclass; found: `ValidationError.errors()`; whole: prefix of the names of
    fields.
    """
    first = found[0]
    is_absent = first["type"] in ("missing", "missing_argument")
    is_extra = first["type"] == "unexpected_keyword_argument"
    names, hint = _follow(kind, first["loc"])
    place = ".".join([*filter(None, [whole]), *names])
    if is_extra:
        return f"{place}.{first['loc'][-1]} is not a setting"
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("value_error", "assertion_error"):
        last = place.rpartition(".")[2]
        if not place or said.startswith((place, last)):
            return said
        return f"{place}: {said}"
    if is_absent and (not names or first["loc"][-1] == names[-1]):
        return f"{place or first['loc'][-1]} is missing; it must be {describe_kind(hint)}"
    value = show_value(first["input"])
    if is_dataclass(hint) and getattr(hint, "__name__", "") not in PLAIN:
        parts = [field.name for field in fields(hint)]
        return (
            f"{place} is {value}; it has parts, which are set one by one: "
            f"{join_words([f'{place}.{part}' for part in parts])}"
        )
    return f"{place} is {value}; it must be {describe_kind(hint)}"


def _follow(kind: Any, loc: Sequence[int | str]) -> tuple[list[str], Any]:
    """Return the names on the way to a value and its declared type.

    For a union, and a list of fixed length, the path of pydantic continues with a branch or a
    position: the result ends there.
    """
    names: list[str] = []
    hint = kind
    for step in loc:
        hint = _drop_none(hint)
        is_list = get_origin(hint) in LISTS
        if is_dataclass(hint):
            known = get_type_hints(hint)
            if step not in known:
                break
            hint = known[step]
        elif is_list and isinstance(step, int) and get_args(hint)[-1] is Ellipsis:
            hint = get_args(hint)[0]
        else:
            break
        names.append(str(step))
    return names, hint


def _drop_none(hint: Any) -> Any:
    """Return the class in ``X | None``, if X is a dataclass; any other type unchanged."""
    for option in get_args(hint):
        if is_dataclass(option) and get_origin(hint) in (typing.Union, types.UnionType):
            return option
    return hint
