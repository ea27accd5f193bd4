"""A person's own classes, under the names by which recipes call them while a study runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

Classes = Mapping[str, Callable[..., Any]]
"""``"module:Class"`` -> the class itself, or the function that makes a model."""

NOBODYS: Classes = MappingProxyType({})

# Recipes name classes in words, and a class from a notebook cannot be imported by its name.  So
# whoever starts a study lends its classes for as long as it runs.  A context variable and no
# global table: two studies in two threads do not see each other's classes, and nothing stays.
_LENT: ContextVar[Classes] = ContextVar("own classes", default=NOBODYS)


@contextmanager
def lend(classes: Classes) -> Iterator[None]:
    """A context in which `own_class` finds these classes, beside those lent before.

    >>> with lend({"__main__:Mine": dict}):
    ...     own_class("__main__:Mine")
    <class 'dict'>
    >>> own_class("__main__:Mine") is None
    True
    """
    token = _LENT.set({**_LENT.get(), **classes})
    try:
        yield
    finally:
        _LENT.reset(token)


def own_class(name: str) -> Any:
    """The class lent under ``name``; None where nobody lent one.

    Only a simulation lends classes: at a real site this is None for every name.
    """
    return _LENT.get().get(name)
