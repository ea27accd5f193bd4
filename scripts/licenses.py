"""List installed packages with version and declared license.

python scripts/licenses.py > build/licenses.txt
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, PackageMetadata, distributions

UNKNOWN = "unknown"
LONGEST = 60  # characters: some packages put the whole text of their license there


def main() -> None:
    """Print a line for each package, by name."""
    result = {item.metadata["Name"].lower(): item for item in distributions()}
    for name, package in sorted(result.items()):
        sys.stdout.write(f"{name:32} {package.version:16} {license(package)}\n")


def _field(package: PackageMetadata, name: str) -> str:
    """A field of a package's metadata, or nothing."""
    if name not in package:
        return ""
    return package[name]


def license(package: Distribution) -> str:
    """The expression of newer packages, else the classifiers, else the field of older ones."""
    details = package.metadata
    classified = [
        text.rpartition(" :: ")[2]
        for text in details.get_all("Classifier") or []
        if text.startswith("License ::") and text != "License :: OSI Approved"
    ]
    output = (
        _field(details, "License-Expression")
        or ", ".join(classified)
        or _field(details, "License")
    )
    first = (output or UNKNOWN).strip().partition("\n")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST]}..."


if __name__ == "__main__":
    main()
