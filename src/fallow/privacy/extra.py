"""Packages of the extra ``privacy``, imported on demand."""

from __future__ import annotations

from types import ModuleType

from fallow.core.optional import import_optional

NOISE = "noise at a site"
"""Purpose of OpenDP."""


def need(module: str, purpose: str) -> ModuleType:
    """Import a module, or raise ValueError with the package to install and its purpose."""
    package = module.partition(".")[0]
    return import_optional(module, package, purpose, install="fallow-core[privacy]")
