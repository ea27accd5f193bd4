"""Exports of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def import_when_used(
    package: str, modules: Mapping[str, str], hidden: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package (PEP 562).

    Parameters
    ----------
    package : str
        Full name of the package.
    modules : mapping
        Exported name -> the module that defines it.
    hidden : collection of str
        Names that are not listed.

    Examples
    --------
    >>> import fallow.strategies
    >>> modules = {"Margin": "fallow.strategies.margin"}
    >>> find, list_names = import_when_used("fallow.strategies", modules)
    >>> find("Margin").__name__, list_names()
    ('Margin', ['Margin'])
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

    def list_exports() -> list[str]:
        return sorted({*modules} - {*hidden})

    return find_export, list_exports
