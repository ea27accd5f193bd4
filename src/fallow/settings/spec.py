"""Parts of a recipe that are named in words: a class with its fields, a published table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Spec:
    """A class of the library (or ``module:Class``) by name, with the fields that differ.

    >>> Spec.parse("ahfal:tau=15:toggle=never")
    Spec(name='ahfal', fields={'tau': 15, 'toggle': 'never'})
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        """``name``, ``name:field=value:...`` or ``module:Class:field=value``."""
        head, *rest = text.strip().split(":")
        if rest and "=" not in rest[0]:
            head, rest = f"{head}:{rest[0]}", rest[1:]
        if bad := [part for part in rest if "=" not in part]:
            raise ValueError(f"{bad[0]!r} in {text!r} is not of the form field=value")
        return Spec(head, {k: literal(v) for k, v in (part.split("=", 1) for part in rest)})

    def __str__(self) -> str:
        shown = {
            k: v if isinstance(v, str) else json.dumps(v) for k, v in self.fields.items()
        }
        return ":".join([self.name, *(f"{k}={v}" for k, v in shown.items())])


def literal(text: str) -> Any:
    """A value from the command line: JSON where it is JSON, else the text itself.

    >>> literal("0.1"), literal("true"), literal("stacked")
    (0.1, True, 'stacked')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@dataclass(frozen=True)
class Published:
    """Which published numbers stand beside the measured ones: names maps queries to rows."""

    table: str
    setting: str
    names: Mapping[str, str] = field(default_factory=dict)
