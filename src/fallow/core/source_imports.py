"""Import of reviewed code from its source, never from compiled files that can hide other code.

Python runs a file in ``__pycache__`` if its time and size, or its hash, fit the source. All three
can be forged, so neither they nor a digest of the source say what a compiled file does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
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
        self.reviewed: dict[Path, set[Path]] = {}
        """Files below the folder of a package that has no part in another distribution."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin:
            file = _locate(Path(spec.origin))
            folders = [folder for folder in file.parents if folder in self.reviewed]
            if folders and file not in self.reviewed[folders[0]]:
                raise ImportError(
                    f"{fullname} would be loaded from {file}, which is not among the files that "
                    "were reviewed; remove this file"
                )
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = SourceLoader(spec.loader.name, spec.loader.path)
            spec.cached = None
        return spec


FINDER = SourceFinder()


def _locate(file: Path) -> Path:
    """Return where a file stands, which may be a link to a copy that others share."""
    return file.parent.resolve() / file.name


def import_from_source(files: Mapping[str, Path]) -> None:
    """Load the modules of a distribution from their source from now on in this process.

    Parameters
    ----------
    files : mapping of str to Path
        Its files, by their names below the folder of installed packages.  No other file below its
        packages is loaded, except below a namespace package, which others share.
    """
    for name in files:
        package = Path(name).parts[0].removesuffix(".py")
        FINDER.packages.add(package)
        if {f"{package}.py", f"{package}/__init__.py"} & files.keys():
            file = _locate(files[name])
            folder = file.parents[len(Path(name).parts) - 2] if "/" in name else file
            FINDER.reviewed.setdefault(folder, set()).add(file)
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
