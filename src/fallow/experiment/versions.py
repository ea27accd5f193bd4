"""Versions and threads that affect the results."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

import torch

from fallow.experiment.methods import placement_of
from fallow.settings.recipe import Recipe


@cache
def versions() -> dict[str, str]:
    """Return the versions of the interpreter and of numerical libraries."""
    libraries = ("fallow", "torch", "numpy", "scipy", "scikit-learn")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


def versions_of(recipe: Recipe) -> dict[str, str]:
    """Return `versions`, and those of the device if the configuration names one."""
    placement = placement_of(recipe)
    if placement is None:
        return versions()
    return {**versions(), **placement.describe()}


def threads() -> int:
    return torch.get_num_threads()
