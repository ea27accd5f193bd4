"""Cache of training phases, by a digest of their inputs.

The initial training is the same for all query strategies with one seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from fallow.core.types import SiteId, State
from fallow.experiment.finished import TrainedPhase
from fallow.storage.errors import Failed
from fallow.storage.files import load_tree, save_tree, sweep

Memory = Mapping[SiteId, Mapping[str, State]]
"""Memory of each site at the end of a cycle."""


class SharedPhase(TypedDict):
    """Stored training phase."""

    done: TrainedPhase
    memory: Memory


@dataclass(frozen=True)
class Phases:
    """Folder of finished training phases; ``folder=None`` stores nothing."""

    folder: Path | None = None

    def load(self, key: str) -> SharedPhase | None:
        """Load a phase, or return None if it is missing or damaged."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            phase: SharedPhase = load_tree(path, path.parent)
        except Failed:
            return None
        return phase

    def save(self, key: str, done: TrainedPhase, memory: Memory) -> None:
        path = self._path(key)
        if path is not None:
            sweep(path.parent, f"{path.name}.*")
            save_tree(path, SharedPhase(done=done, memory=memory))

    def _path(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{key}.safetensors"
