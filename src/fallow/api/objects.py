"""Objects, names and TOML: one and the same thing to a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from fallow.core.training_config import TrainingConfig
from fallow.encoders.module import Network, encoder_class
from fallow.settings.spec import Spec, name_of
from fallow.study.record_parts import LARGEST

PARTS = ("partition", "model", "training", "query", "features", "encoder")
"""The settings of a recipe that name a class."""


@dataclass
class Collected:
    """Settings in words, and the classes that only this program knows.

    A recipe holds words, so that a study can be written down and read again.  A class of the
    user's own has no word that leads to it from elsewhere, so it is kept beside them, and lent
    (`fallow.core.own`) while the study runs.
    """

    classes: dict[str, type[Any]] = field(default_factory=dict)

    def spec(self, given: object, what: str) -> Spec:
        """What names ``given``; its class is kept where it is not Fallow's own."""
        if what == "encoder" and _is_network(given):
            given = encoder_class(cast(Network, given))
        if isinstance(given, torch.nn.Module):
            raise ValueError(
                f"{what} is a module with weights, and every run draws its own; give its class, "
                f"such as model={type(given).__name__}, or functools.partial with its settings"
            )
        if isinstance(given, Mapping):
            name = given.get("name")
            if name is None:
                raise ValueError(
                    f"{what} is {dict(given)!r}, which has no name; give name="
                )
            fields = dict(given)
            del fields["name"]
            return Spec(str(name), fields)
        spec = Spec.of(given)
        cls = _class_of(given)
        if cls is not None and ":" in spec.name:
            known = self.classes.setdefault(spec.name, cls)
            if known is not cls:
                raise ValueError(
                    f"two different classes are called {cls.__name__}; rename one of them"
                )
        return spec

    def text(self, given: object, what: str = "query") -> str:
        """`spec` as the text that calls it in a study and on the command line."""
        if isinstance(given, str):
            return given
        spec = self.spec(given, what)
        text = str(spec)
        back = Spec.parse(text)
        if back.name != spec.name or _as_lists(back.fields) != _as_lists(spec.fields):
            raise ValueError(
                f"{given!r} has a setting that cannot be written as field=value ({text}); use "
                "numbers, words and lists of them"
            )
        return text

    def setting(self, name: str, value: Any) -> Any:
        """The value of a recipe's setting as TOML would have it."""
        if name in PARTS and value is not None:
            spec = self.spec(value, name)
            return {"name": spec.name, "fields": dict(spec.fields)}
        if name in ("training_config", "local_training_config") and isinstance(
            value, TrainingConfig
        ):
            return value.to_dict()
        if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        return plain(value)


def _is_network(given: object) -> bool:
    """Whether rows are encoded by calling this object, and not by what it describes."""
    if isinstance(given, torch.nn.Module) or inspect.isfunction(given):
        return True
    is_named = isinstance(given, str | Spec | type | partial | Mapping)
    return not is_named and not is_dataclass(given) and callable(given)


def _class_of(given: object) -> type[Any] | None:
    if isinstance(given, str | Spec):
        return None
    if isinstance(given, partial):
        given = given.func
        if not isinstance(given, type):
            return None
    if isinstance(given, type):
        return given
    return type(given)


def _as_lists(value: Any) -> Any:
    """Tuples as lists: a text has one kind of sequence."""
    if isinstance(value, Mapping):
        return {key: _as_lists(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_lists(part) for part in value]
    return value


def read_seed(given: object, what: str = "seed") -> int:
    """A seed as a Python number; ValueError for what is none.

    >>> read_seed(np.int64(3))
    3
    """
    found = plain(given)
    is_whole = isinstance(found, int) and not isinstance(found, bool)
    if not is_whole or not 0 <= found <= LARGEST:
        raise ValueError(f"{what} is {given!r}; give a whole number, 0 or more")
    return int(found)


def plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's, also inside lists and mappings.

    >>> plain(np.int64(3)), plain([np.float64(0.5)]), plain("all")
    (3, [0.5], 'all')
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(part) for part in value)
    return value


__all__ = ["PARTS", "Collected", "name_of", "plain"]
