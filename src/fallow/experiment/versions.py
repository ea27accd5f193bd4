"""What a result depends on besides its recipe: versions and threads."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

import torch


@cache
def versions() -> dict[str, str]:
    """Versions of the interpreter and of the libraries that compute."""
    libraries = ("fallow", "torch", "numpy", "scipy", "scikit-learn")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


def threads() -> int:
    return torch.get_num_threads()
