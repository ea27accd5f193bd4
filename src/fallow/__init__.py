"""Federated active learning: many sites, few labels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fallow._face import WHERE
from fallow._version import __version__

__all__ = ["__version__", *sorted(WHERE)]


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module 'fallow' has no attribute {name!r}")
    found = getattr(import_module(WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *WHERE})
