"""Checks of fields by their annotations: ranges of numbers and choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

from fallow.core.wording import join_words

BOUNDS: Mapping[str, str] = {
    "ge": "at least",
    "gt": "above",
    "le": "at most",
    "lt": "below",
}
"""Words for bounds, by their names in pydantic."""
WORDS: Mapping[Any, str] = {int: "a whole number", float: "a number", type(None): "None"}
"""Types of numbers, and of none, in messages."""
SCHEMA: Mapping[str, str] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
"""Keywords of JSON schemas for bounds."""


@final
@dataclass(frozen=True)
class Limits:
    """Range of a number in its annotation: ``Annotated[int, Limits(ge=1)]``.

    `check_limits` checks it, and schemas and the list of settings print it.

    Attributes
    ----------
    ge, gt, le, lt : float, optional
        Bounds, by their names in pydantic.
    is_finite : bool
        Whether infinity is excluded.
    meaning : str
        Noun for the number in a message.
    advice : str
        End of the message.

    >>> Limits(ge=1).describe(), Limits(ge=0, lt=1).describe()
    ('at least 1', 'at least 0 and below 1')
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    is_finite: bool = False
    meaning: str = ""
    advice: str = ""

    def contains(self, value: Any) -> bool:
        """Return whether a number is in the range; NaN is in none."""
        if self.is_finite and not math.isfinite(value):
            return False
        return bool(
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
            and value == value
        )

    def describe(self) -> str:
        """Return the range in words."""
        bounds = []
        if self.ge == 0 and self.le is None and self.lt is None:
            bounds.append("0 or more")
        for name, words in BOUNDS.items():
            bound = getattr(self, name)
            if bound is not None and "0 or more" not in bounds:
                bounds.append(f"{words} {bound:g}")
        if self.is_finite:
            bounds.append("finite")
        return " and ".join(bounds)

    def find_fault(self, name: str, value: Any) -> str | None:
        """Explain why a number is out of range, or return None."""
        if self.contains(value):
            return None
        must = "it must be"
        if self.meaning:
            must = f"it is {self.meaning},"
        return f"{name} is {value}; {must} {self.describe()}{self.advice}"

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:  # schemas of pydantic
        schema = dict(handler(core_schema))
        for name, keyword in SCHEMA.items():
            bound = getattr(self, name)
            if bound is not None:
                schema[keyword] = bound
        return schema


@final
@dataclass(frozen=True)
class Conflict:
    """Settings that exclude each other, in the tuple ``CONFLICTS`` of their class.

    `check_limits` checks them after the ranges.

    Attributes
    ----------
    names : tuple of str
        Names of the settings; their values begin the message.
    when : callable
        Whether their values exclude each other.
    reason : str
        End of the message: the reason and the fix.

    >>> both = Conflict(
    ...     ("head", "rounds"), lambda head, rounds: rounds > 1, "; set rounds=1"
    ... )
    >>> both.find_fault({"head": "exact", "rounds": 2})
    "head is 'exact' and rounds is 2; set rounds=1"
    """

    names: tuple[str, ...]
    when: Callable[..., bool]
    reason: str

    def find_fault(self, settings: Mapping[str, Any], prefix: str = "") -> str | None:
        """Explain why these settings exclude each other, or return None."""
        values = [settings[name] for name in self.names]
        if not self.when(*values):
            return None
        facts = []
        for name, value in zip(self.names, values, strict=True):
            shown = repr(value) if isinstance(value, str) else value
            facts.append(f"{prefix}{name} is {shown}")
            if prefix.endswith("'s "):  # the owner is named once
                prefix = "its "
        return join_words(facts) + self.reason


def check_fields(algorithm: Any) -> None:
    """Raise ValueError for a field that is out of its declared range or not a declared choice.

    A misspelled choice must not run as another one.
    """
    check_limits(algorithm, f"{type(algorithm).__name__}'s ")


def check_limits(instance: Any, prefix: str = "") -> None:
    """Raise ValueError for the first field of a dataclass that its declaration excludes.

    It is out of its range or not a declared choice, or it excludes another one (`Conflict`).  A field
    with a range must also be a number, a whole one if it is declared so, or another of the values in
    its annotation, as in ``PositiveFloat | Literal["auto"] | None``.  ``prefix``: before the name of
    the field in the message.
    """
    cls: Any = type(instance)
    for name, (limits, kinds) in list_limits(cls).items():
        value = getattr(instance, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if float not in kinds:
            is_number = is_number and isinstance(value, Integral)
        why = None
        if limits is not None and is_number:
            why = limits.find_fault(f"{prefix}{name}", value)
        elif not any(_is_other(value, kind) for kind in kinds):
            words = join_words([_describe(kind) for kind in kinds], last="or")
            why = f"{prefix}{name} is {value!r}; it must be {words}"
        if why is not None:
            raise ValueError(why)
    for conflict in getattr(cls, "CONFLICTS", ()):
        why = conflict.find_fault(vars(instance), prefix)
        if why is not None:
            raise ValueError(why)


def _is_other(value: Any, kind: Any) -> bool:
    """Return whether a value that is not a number has a type in an annotation.

    Types other than choices and None are left to other checks.
    """
    if kind is type(None):
        return value is None
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return kind not in WORDS


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return join_words([repr(choice) for choice in get_args(kind)], last="or")
    return WORDS[kind]


@cache
def list_limits(cls: Any) -> dict[str, tuple[Limits | None, tuple[Any, ...]]]:
    """Return range and types of each field of a class that has a range or is a choice."""
    ranges: dict[str, tuple[Limits | None, tuple[Any, ...]]] = {}
    hints = get_type_hints(cls, include_extras=True)
    plain = get_type_hints(cls)
    for field in fields(cls):
        limits = find_limits(hints[field.name])
        kinds = tuple(_split(plain[field.name]))
        choices = [kind for kind in kinds if kind is not type(None)]
        is_choice = all(get_origin(kind) is Literal for kind in choices)
        if limits is not None or is_choice:
            ranges[field.name] = limits, kinds
    return ranges


def _split(hint: Any) -> Iterator[Any]:
    """Yield the types of a union, or a single type."""
    if get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _split(part)
    else:
        yield hint


def find_limits(hint: Any) -> Limits | None:
    """Return the range in an annotation, also in one such as ``Annotated[int, ...] | None``."""
    for part in get_args(hint):
        if isinstance(part, Limits):
            return part
        limits = find_limits(part)
        if limits is not None:
            return limits
    return None


PositiveInt = Annotated[int, Limits(ge=1)]
NonNegativeInt = Annotated[int, Limits(ge=0)]
PositiveFloat = Annotated[float, Limits(gt=0)]
NonNegativeFloat = Annotated[float, Limits(ge=0)]
PositiveFinite = Annotated[float, Limits(gt=0, is_finite=True)]
Finite = Annotated[float, Limits(is_finite=True)]
NonNegativeFinite = Annotated[float, Limits(ge=0, is_finite=True)]
Fraction = Annotated[float, Limits(ge=0, le=1)]
