"""What a result depends on besides its recipe: versions and threads."""

from __future__ import annotations

import platform
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from fallow.experiment.methods import placement_of
from fallow.settings.recipe import Recipe


@cache
def versions() -> dict[str, str]:
    """Versions of the interpreter and of the libraries that compute."""
    libraries = ("torch", "numpy", "scipy", "scikit-learn")
    return {
        "python": platform.python_version(),
        "fallow": _find_version(),
        **{name: version(name) for name in libraries},
    }


def _find_version() -> str:
    """Fallow's own version: of what is installed, else of the source that runs."""
    try:
        return version("fallow")
    except PackageNotFoundError:
        return version_of_source(Path(__file__).parents[3])


def version_of_source(root: Path) -> str:
    """What the source in a folder calls itself."""
    about = tomllib.loads((root / "pyproject.toml").read_text())
    return str(about["project"]["version"])


def versions_of(recipe: Recipe) -> dict[str, str]:
    """`versions`, and those of the device where the recipe names one."""
    placement = placement_of(recipe)
    if placement is None:
        return versions()
    return {**versions(), **placement.describe()}


def threads() -> int:
    return torch.get_num_threads()
