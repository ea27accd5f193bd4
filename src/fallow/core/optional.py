"""Packages that are imported where they are used."""

from __future__ import annotations

import importlib
import shlex
from types import ModuleType


def import_optional(module: str, package: str, purpose: str) -> ModuleType:
    """The imported module, or ValueError that says which package to install and what for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs the package {package}, which is not installed; "
            f"install it, for example with: pip install {shlex.quote(package)}"
        ) from error
