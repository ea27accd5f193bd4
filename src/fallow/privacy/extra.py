"""Packages of the extra ``privacy``, imported on demand."""

from __future__ import annotations

import importlib
from types import ModuleType

NOISE = "noise at a site"
"""Purpose of OpenDP."""


def need(module: str, purpose: str) -> ModuleType:
    """Import a module, or raise ValueError with the package to install and its purpose."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not "
            "installed; install it with: pip install 'fallow-core[privacy]'"
        ) from error
