"""Exports of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_when_used(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Parameters
    ----------
    package : str
        Full name of the package.
    modules : mapping
        Exported name -> the module that defines it.

    Examples
    --------
    >>> import fallow.strategies
    >>> find = import_when_used("fallow.strategies", {"Margin": "fallow.strategies.margin"})
    >>> find("Margin").__name__
    'Margin'
    >>> find("Margins")
    Traceback (most recent call last):
    AttributeError: module 'fallow.strategies' has no attribute 'Margins'
    """

    def find_export(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find_export
