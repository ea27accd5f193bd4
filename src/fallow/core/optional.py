"""Import of optional packages on demand."""

from __future__ import annotations

import importlib
import shlex
from importlib.util import find_spec
from types import ModuleType

OF_STUDIES = ("matplotlib", "pandas")
"""Packages of studies and reports, which ``fallow`` installs and ``fallow-core`` does not."""
NOISE = "noise at a site"
"""Purpose of OpenDP."""


def check_full_install(purpose: str) -> None:
    """Raise ValueError, naming the purpose, if a package of `OF_STUDIES` is not installed.

    Nothing is imported.
    """
    for package in OF_STUDIES:
        if find_spec(package) is None:
            raise ValueError(
                f"{purpose} needs the package {package}, which fallow-core does not "
                "install; install it with: pip install fallow"
            )


def import_optional(
    module: str, package: str, purpose: str, install: str = ""
) -> ModuleType:
    """Import a module, or raise ValueError with the package to install and its purpose.

    ``install``: requirement that installs the package, if its name differs.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        how = "it with" if install else "it, for example with"
        raise ValueError(
            f"{purpose} needs the package {package}, which is not installed; "
            f"install {how}: pip install {shlex.quote(install or package)}"
        ) from error


def import_privacy(module: str, purpose: str) -> ModuleType:
    """Import a module of the extra ``privacy``; see `import_optional`."""
    package = module.partition(".")[0]
    return import_optional(module, package, purpose, install="fallow-core[privacy]")
