"""Training phases by the content of their inputs: identical work is done once.

The phase before the first query is the same for all strategies of one seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.core.types import SiteId, State
from fallow.experiment.versions import threads, versions
from fallow.sites import Site
from fallow.sites.store import Letter
from fallow.storage.errors import Failed
from fallow.storage.files import load_tree, save_tree, sweep

if TYPE_CHECKING:
    from fallow.experiment.world import World

Memory = Mapping[SiteId, Mapping[str, State]]
"""What each site remembered when a phase ended."""

INPUTS = (
    "model",
    "training",
    "plan",
    "rounds",
    "participation",
    "score_rounds",
    "channels_last",
    "dtype",
    "standardise",
    "target_scale",
    "validation",
    "test",
    "flip",
)


@dataclass(frozen=True)
class Phases:
    """A folder of finished phases; ``folder=None`` remembers nothing."""

    folder: Path | None = None

    def key(self, world: World) -> str:
        """A digest of all that the first phase depends on: data, partition, labels, settings."""
        recipe = asdict(world.recipe)
        h = hashlib.sha256(world.fingerprint.encode())
        about = {name: recipe[name] for name in INPUTS}
        about |= {"seed": world.seed, "executor": world.executor, "threads": threads()}
        about |= {"runtime": type(world.carrier).__name__}  # bytes are counted differently
        if world.recipe.privacy.secure_sum:  # totals are rounded, and keys cross
            about |= {"masked": world.recipe.privacy.bound or True}
        h.update(json.dumps([about, versions()], sort_keys=True, default=str).encode())
        for site in world.members.values():
            h.update(site.labelled.numpy().tobytes())
            h.update(site.validation.numpy().tobytes())
        return h.hexdigest()[:32]

    def first(
        self, world: World, train: Callable[[], dict[str, Any]]
    ) -> tuple[dict[str, Any], Memory | None]:
        """The phase as ``train`` makes it, or as another strategy left it with what its sites
        remembered then."""
        key = self.key(world)
        found = self.load(key)
        if found:
            return found["done"], found["memory"]
        done = train()
        self.save(key, done, {name: site.memory for name, site in world.members.items()})
        return done, None

    def load(self, key: str) -> dict[str, Any] | None:
        """The phase, or None when it was never finished; a damaged file counts as not finished."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            phase: dict[str, Any] = load_tree(path, path.parent)
        except Failed:
            return None
        return phase

    def save(self, key: str, done: dict[str, Any], memory: Memory) -> None:
        path = self._path(key)
        if path is not None:
            sweep(path.parent, f"{path.name}.*")
            save_tree(path, {"done": done, "memory": memory})

    def _path(self, key: str) -> Path | None:
        return self.folder / f"{key}.safetensors" if self.folder else None


def restore(members: Mapping[SiteId, Site], memory: Memory) -> None:
    """Give sites what they remembered when a phase ended.  What a relay brought was one object for
    all its receivers, and is again."""
    letters: dict[tuple[int, ...], Letter] = {}
    for name, kept in memory.items():
        members[name].forget()
        brought: dict[str, dict[SiteId, Letter]] = {}
        for what, state in kept.items():
            verb, is_part, sender = what.partition("/")
            if is_part and verb != "own":
                alike = tuple(map(id, state.values()))
                letter = letters.setdefault(alike, Letter(state))
                brought.setdefault(verb, {})[sender] = letter
            else:
                members[name].remember(what, state)
        for verb, found in brought.items():
            members[name].receive(verb, found)
