"""Runs a module as on a machine that has PyTorch, NumPy, SciPy and scikit-learn and nothing else:
no other package is found, and Fallow is not installed.  `python tests/bare.py MODULE ARGUMENTS`.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType

LEFT_OUT = {
    "PIL",
    "cryptography",
    "fallow",  # as a distribution: its source is on the path
    "fastapi",
    "flwr",
    "jinja2",
    "matplotlib",
    "pandas",
    "pyarrow",
    "pydantic",
    "pydantic_core",
    "rich",
    "safetensors",
    "statsmodels",
    "tomlkit",
    "typer",
    "yaml",
}


class Few(DistributionFinder):
    """Finds what a path holds, without what is left out."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top in LEFT_OUT and top != "fallow":
            return None
        return PathFinder.find_spec(name, path, target)

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[Distribution]:
        if context.name in LEFT_OUT:
            return []
        return PathFinder.find_distributions(context)


if __name__ == "__main__":
    first = [finder for finder in sys.meta_path if finder is not PathFinder]
    kept = [finder for finder in first if "editable" not in str(finder)]
    sys.meta_path[:] = [*kept, Few()]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
