"""The packages of the extra ``privacy``, imported where they are used."""

from __future__ import annotations

import importlib
from types import ModuleType


def need(module: str, purpose: str) -> ModuleType:
    """The imported module, or ValueError that says how to install it and what for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not installed; "
            "install it with: pip install 'fallow[privacy]'"
        ) from error
