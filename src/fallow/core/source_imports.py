"""Import of reviewed code from its source, never from compiled files that can hide other code.

Python runs a file in ``__pycache__`` if its time and size, or its hash, fit the source. All three
can be forged, so neither they nor a digest of the source say what a compiled file does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import final


@final
class SourceLoader(SourceFileLoader):
    """Loader that compiles the source at every import."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


@final
class SourceFinder(MetaPathFinder):
    """Finder of the modules of some packages, which are loaded from their source."""

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = SourceLoader(spec.loader.name, spec.loader.path)
            spec.cached = None
        return spec


FINDER = SourceFinder()


def import_from_source(packages: set[str]) -> None:
    """Load the modules of these packages from their source from now on in this process."""
    FINDER.packages |= packages
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
