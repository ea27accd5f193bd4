"""Custom classes, under the names that experiment configurations use during a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

Classes = Mapping[str, Callable[..., Any]]
"""``"module:Class"`` -> the class itself, or the function that makes a model."""

NOBODYS: Classes = MappingProxyType({})

# Experiment configurations name classes, and a class in a notebook cannot be imported by name.  The
# caller of a study therefore registers its classes while the study runs, in a context variable
# instead of a global table: studies in different threads do not share classes.
_LENT: ContextVar[Classes] = ContextVar("own classes", default=NOBODYS)


@contextmanager
def lend(classes: Classes) -> Iterator[None]:
    """Register classes for `own_class` in this context, in addition to earlier ones.

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
    """Return the class registered under ``name``, or None.

    Only a simulation registers classes: at a site of a federation this is None for every name.
    """
    return _LENT.get().get(name)
