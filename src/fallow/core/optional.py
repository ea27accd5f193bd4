"""Import of optional packages on demand."""

from __future__ import annotations

import importlib
import shlex
from types import ModuleType


def import_optional(module: str, package: str, purpose: str) -> ModuleType:
    """Import a module, or raise ValueError with the package to install and its purpose."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs the package {package}, which is not installed; "
            f"install it, for example with: pip install {shlex.quote(package)}"
        ) from error
