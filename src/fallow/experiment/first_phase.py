"""The training phase before the first query, which all strategies of one seed share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from fallow.core.types import SiteId
from fallow.experiment.environment import Simulation
from fallow.experiment.finished import TrainedPhase
from fallow.experiment.phases import Memory, Phases
from fallow.experiment.versions import threads, versions_of
from fallow.settings.recipe import Recipe
from fallow.sites import LocalSite
from fallow.sites.store import RelayedMessage

INPUTS = (
    "encoder",
    "model",
    "head",
    "training",
    "training_config",
    "rounds",
    "participation",
    "score_rounds",
    "channels_last",
    "dtype",
    "device",
    "precision",
    "standardize",
    "target_scale",
    "validation",
    "test",
    "flip",
)


def describe_training(recipe: Recipe) -> dict[str, object]:
    """The settings that decide how the first phase trains, by name: two recipes that agree in them
    share it where they also share rows, first labels, seed and executor.

    >>> describe_training(Recipe("a", rounds=7))["rounds"]
    7
    """
    settings = asdict(recipe)
    details = {name: settings[name] for name in INPUTS}

    if recipe.privacy.secure_sum:  # totals are rounded, and keys cross
        details["masked"] = recipe.privacy.bound or True
    return details


def phase_key(world: Simulation) -> str:
    """A digest of all that the first phase depends on: data, partition, labels, settings."""
    training = describe_training(world.recipe)
    training["seed"] = world.seed
    training["executor"] = world.executor
    training["threads"] = threads()
    training["runtime"] = type(world.carrier).__name__  # bytes are counted differently

    h = hashlib.sha256(world.fingerprint.encode())
    h.update(
        json.dumps(
            [training, versions_of(world.recipe)], sort_keys=True, default=str
        ).encode()
    )
    for site in world.members.values():
        h.update(site.labeled.numpy().tobytes())
        h.update(site.validation.numpy().tobytes())
    return h.hexdigest()[:32]


def first_phase(
    world: Simulation, phases: Phases, train: Callable[[], TrainedPhase]
) -> tuple[TrainedPhase, Memory | None]:
    """The phase as ``train`` makes it, or as another strategy left it with what its sites
    remembered then.

    Where sites add noise to what they send in training, each run draws and pays for its own; where
    statistics wait for new labels, each run decides by itself.
    """
    if world.recipe.delta is not None or "contribution" in world.methods:
        return train(), None
    key = phase_key(world)
    result = phases.load(key)
    if result:
        return result["done"], result["memory"]
    done = train()
    memory = {name: site.memory for name, site in world.members.items()}
    phases.save(key, done, memory)
    return done, None


def restore(members: Mapping[SiteId, LocalSite], memory: Memory) -> None:
    """Give sites what they remembered when a phase ended.  What a relay brought was one object for
    all its receivers, and is again."""
    letters: dict[tuple[int, ...], RelayedMessage] = {}
    for name, kept in memory.items():
        members[name].forget()
        brought: dict[str, dict[SiteId, RelayedMessage]] = {}
        for what, state in kept.items():
            verb, is_part, sender = what.partition("/")
            if is_part and verb != "own":
                alike = tuple(map(id, state.values()))
                letter = letters.setdefault(alike, RelayedMessage(state))
                brought.setdefault(verb, {})[sender] = letter
            else:
                members[name].remember(what, state)
        for verb, result in brought.items():
            members[name].receive(verb, result)
