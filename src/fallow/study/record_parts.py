"""Validation of records and other files of a study."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, reduce
from operator import or_
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from fallow.core.kinds import PLAIN, describe_kind, show_value
from fallow.core.words import join_words
from fallow.experiment.record import Record
from fallow.storage.plain import plain

CHECKED = (
    "cohort",
    "per_class",
    "per_site",
    "retained",
    "graph",
    "omega",
    "refused",
    "labeled_per_site",
    "labeled_per_class",
    "revealed",
    "versions",
    "pseudo_labels",
    "audit",
    "relayed",
)
"""Fields that have parts.  What a query notes is not among them: it has a form of its own, and
whoever shows it looks at it first."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "DisclosureEntry": ("kind", "verb", "bytes"),
    "Audited": ("score", "low", "high"),
    "Spec": ("name", "fields"),
    "Published": ("table", "setting"),
    "Refusal": ("site", "at", "why"),
    "AbsentSite": ("site", "what", "at"),
    "WaitingState": (
        "key",
        "sites",
        "needed",
        "since",
        "until",
        "can_advance",
        "is_of_all",
    ),
    "LabelCounts": ("asked", "answered"),
    "EndedLabels": ("step", "why"),
    "LiveState": ("state", "sites"),
}
"""Parts that no version left out, by the class of what has them."""
BESIDE = {
    "variance": (
        *("per_site", "accuracy_weighted", "worst_tenth"),
        *("labeled_per_site", "bytes_down"),
    ),
    "per_site": ("round",),
    "graph": ("labeled_per_site", "round"),
}
"""Fields that no version left out where another one is given."""
LARGEST = 2**53
"""No whole number in a record is beyond it."""
HUGE = 1e100
"""A score beyond it, whose square is not finite, is none; NaN and infinity are those of a model that
diverged."""
UNIONS = (Union, types.UnionType)
WIDEST = 80  # letters of a name in a sentence
MANY = 10_000
"""Letters of a setting."""


@dataclass(frozen=True)
class Rule:
    """Additional condition of a field: ``Annotated[str, Rule(is_moment, "a moment")]``."""

    is_kept: Callable[[Any], bool]  # Any: what it is annotated beside
    words: str


def find_wrong(value: object, hint: Any, name: str = "") -> str | None:
    """Return an error for a value of type ``hint``, with its location, or None.

    Undeclared fields come from another version and may be any setting.  ``name`` is the name of the
    value in the message.

    >>> find_wrong({"a": [1, "x"]}, dict[str, list[int]], "counts")
    "counts.a.1 is 'x'; it must be a whole number"
    """
    wrong = _find_wrong(value, hint)
    if wrong is None:
        return None
    if name:
        wrong = wrong.within(name)
    return str(wrong)


def find_wrong_part(row: Mapping[str, object]) -> str | None:
    """Return an error for the fields of a record, with its location, or None.

    >>> find_wrong_part({"cycle": 0, "per_site": {"a": 0.5, "b": None}, "round": 2})
    >>> find_wrong_part({"cycle": 0, "per_site": {"a": "high"}, "round": 2})
    "per_site.a is 'high'; it must be a number or none"
    """
    hints = _hints_of(Record)
    for name in CHECKED:
        value = row.get(name)
        if value is None:
            continue
        wrong = _find_wrong(value, hints[name])
        if wrong is not None:
            return str(wrong.within(name))
    return (
        _find_missing(row)
        or _find_unscored(row)
        or _find_unequal(row)
        or _find_stranger(row)
    )


def _find_missing(row: Mapping[str, object]) -> str | None:
    """Return an error for a field that is missing although another one requires it."""
    for name, others in BESIDE.items():
        if row.get(name) in (None, {}):
            continue
        for other in others:
            if row.get(other) in (None, {}):
                return f"{other} is missing beside {name}"
    return None


def _find_unscored(row: Mapping[str, Any]) -> str | None:
    """Return an error for a spread over sites without any score."""
    if row.get("variance") is None:
        return None
    if all(score is None for score in row["per_site"].values()):
        return "per_site has no score beside variance"
    return None


def _find_unequal(row: Mapping[str, Any]) -> str | None:
    """Return an error for sites with different numbers of classes."""
    counts = row.get("labeled_per_site") or {}
    lengths = {len(of_site) for of_site in counts.values()}
    if len(lengths) > 1:
        words = join_words([str(length) for length in sorted(lengths)])
        return f"labeled_per_site has lists of {words} numbers; all sites have as many"
    return None


def _find_stranger(row: Mapping[str, Any]) -> str | None:
    """Return an error for a site that has no labels in the record."""
    known = row.get("labeled_per_site")
    if not known:
        return None
    named: dict[str, set[str]] = {}
    for name in ("graph", "omega"):
        links = row.get(name) or {}
        named[name] = set(links).union(*links.values())
    for at, entry in enumerate(row.get("revealed") or ()):
        named[f"revealed.{at}.received"] = set(entry.get("received") or ())
    for place, sites in named.items():
        for site in sorted(sites - set(known)):
            return f"{place} names {plain(site, WIDEST)!r}, which labeled_per_site has not"
    return None


@dataclass(frozen=True)
class _Wrong:
    """Invalid part: its path and the error."""

    way: tuple[str | int, ...]
    words: str

    def within(self, name: str | int) -> _Wrong:
        """Return the same part with a path prefixed by ``name``."""
        return _Wrong((name, *self.way), self.words)

    def __str__(self) -> str:
        names = [plain(name, WIDEST) for name in self.way]
        place = ".".join(names) or "it"
        return f"{place} {self.words}"


def _find_wrong(value: object, hint: Any) -> _Wrong | None:
    """Return the first part of a value that does not have its declared type."""
    if hint in (str, int) and type(value) is hint and _is_plain(value, hint):
        return None  # most parts of an exchange, which records have most of
    kind, may_be_none = _without_none(hint)
    if value is None and may_be_none:
        return None
    if kind in (Any, object):
        return _find_unfit_setting(value)
    if is_typeddict(kind) or is_dataclass(kind):
        return _find_wrong_in_table(value, kind)
    origin = get_origin(kind)
    if origin is Annotated:
        return _find_broken_rule(value, kind)
    if origin in (dict, Mapping) and isinstance(value, dict):
        of_parts = get_args(kind)[1]
        if _are_plain(value.values(), of_parts):
            return None
        return _find_wrong_among(value.items(), of_parts)
    if origin in (list, tuple) and isinstance(value, list):
        of_parts = get_args(kind)[0]
        if _are_plain(value, of_parts):
            return None
        return _find_wrong_among(enumerate(value), of_parts)
    if origin in UNIONS and any(
        _find_wrong(value, part) is None for part in get_args(kind)
    ):
        return None
    # another version may have had other words
    if origin is Literal and isinstance(value, str):
        return None
    if origin is None and _is_plain(value, kind):
        return None
    return _Wrong((), f"is {show_value(value)}; it must be {_describe(hint)}")


def _find_broken_rule(value: object, hint: Any) -> _Wrong | None:
    """Return the error of a value whose type has an additional condition."""
    kind, rule = get_args(hint)
    if _find_wrong(value, kind) is None and rule.is_kept(value):
        return None
    return _Wrong((), f"is {show_value(value)}; it must be {rule.words}")


def _find_unfit_setting(value: object) -> _Wrong | None:
    """Return the first invalid part of a setting of arbitrary type."""
    if isinstance(value, dict):
        return _find_wrong_among(value.items(), object)
    if isinstance(value, list):
        return _find_wrong_among(enumerate(value), object)
    if isinstance(value, str) and len(value) > MANY:
        return _Wrong((), f"has {len(value):,} letters; it must have {MANY:,} or fewer")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        is_number = value in (math.inf, -math.inf) or abs(value) <= HUGE
        if not is_number:
            return _Wrong((), f"is {show_value(value)}; it must be a number")
    return None


def _find_wrong_among(
    parts: Iterable[tuple[str | int, object]], hint: Any
) -> _Wrong | None:
    """Return the first of several values that does not have the declared type."""
    for name, part in parts:
        wrong = _find_wrong(part, hint)
        if wrong is not None:
            return wrong.within(name)
    return None


def _find_wrong_in_table(value: object, kind: type) -> _Wrong | None:
    """Return the first invalid field of a typed dictionary."""
    if not isinstance(value, dict):
        return _Wrong((), f"is {show_value(value)}; it must be {_describe(kind)}")
    for name in NEEDED.get(kind.__name__, ()):
        if name not in value:
            return _Wrong((name,), "is missing")
    hints = _hints_of(kind)
    for name, part in value.items():
        wrong = _find_wrong(part, hints.get(name, object))
        if wrong is not None:
            return wrong.within(name)
    return None


@cache
def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return the type of a field without None, and whether None is allowed."""
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    if get_origin(hint) not in UNIONS:
        return hint, False
    some = [part for part in get_args(hint) if part is not types.NoneType]
    may_be_none = len(some) < len(get_args(hint))
    return reduce(or_, some), may_be_none


def _describe(hint: Any) -> str:
    """Describe a declared type, with its article."""
    kind, may_be_none = _without_none(hint)
    origin = get_origin(kind)
    words = "a table of names and values"
    if origin in (list, tuple):
        words = "a list"
    elif origin is Annotated:
        words = get_args(kind)[1].words
    elif origin is Literal or origin in UNIONS:
        words = describe_kind(kind)
    elif origin is None and not is_typeddict(kind) and not is_dataclass(kind):
        words = PLAIN[kind.__name__]
    if may_be_none:
        return f"{words} or none"
    return words


def _are_plain(values: Collection[object], hint: Any) -> bool:
    """Return whether all values are strings or moderate numbers, ten times faster than one by one."""
    kind, may_be_none = _without_none(hint)
    types_there = set(map(type, values))
    if may_be_none:
        types_there.discard(types.NoneType)
    if kind is str:
        return types_there <= {str}
    if kind is int and types_there <= {int}:
        numbers: list[Any] = [value for value in values if value is not None]
        return max(map(abs, numbers), default=0) <= LARGEST
    if kind is float and types_there <= {float}:
        numbers = [value for value in values if value is not None]
        # NaN at the head is the largest, and equal to nothing; elsewhere it is passed over
        return max(map(abs, numbers), default=0) <= HUGE
    return False


def _is_plain(value: object, kind: type) -> bool:
    """Return whether a value is a string, a Boolean or a usable number."""
    if kind in (str, bool):
        return isinstance(value, kind)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= LARGEST
    if not isinstance(value, float):
        return False
    if not math.isfinite(value):
        return kind is float
    return abs(value) <= HUGE


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    """Return the declared type of each field, cached because it is slow."""
    return get_type_hints(kind, include_extras=True)
