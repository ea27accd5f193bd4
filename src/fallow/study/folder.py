"""The file that makes a folder a study, checked without imports that take seconds."""

from __future__ import annotations

from pathlib import Path

MANIFEST = "study.json"


def check_study(folder: Path) -> Path:
    """Return a study folder; raise ValueError for another."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(
            f"{folder} is not a study: it has no {MANIFEST}; give the directory that "
            "'fallow compare --out' wrote"
        )
    return folder


def check_studies(folders: list[Path]) -> list[Path]:
    """Return study folders; raise ValueError for another."""
    return [check_study(folder) for folder in folders]
