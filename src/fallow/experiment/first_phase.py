"""Initial training, shared by all query strategies with the same seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from fallow.core.types import SiteId
from fallow.experiment.environment import Simulation
from fallow.experiment.finished import Memory, Phases, TrainedPhase
from fallow.experiment.methods import threads, versions_of
from fallow.settings.recipe import Recipe
from fallow.sites import LocalSite
from fallow.sites.store import PeerMessage

INPUTS = (
    "encoder",
    "model",
    "head",
    "training",
    "training_config",
    "rounds",
    "participation",
    "score_rounds",
    "metrics",
    "coverage",
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
    """Return the settings that affect the initial training, by name.

    Configurations with equal settings, data, initial labels, seed and executor share it.

    >>> describe_training(Recipe("a", rounds=7))["rounds"]
    7
    """
    settings = asdict(recipe)
    details = {name: settings[name] for name in INPUTS}

    if recipe.privacy.secure_sum:  # totals are rounded, and keys cross
        details["masked"] = recipe.privacy.bound or True
    return details


def phase_key(world: Simulation) -> str:
    """Return a digest of all inputs of the initial training: data, partition, labels, settings."""
    training = describe_training(world.recipe)
    training["seed"] = world.seed
    training["executor"] = world.executor
    training["threads"] = threads()
    training["runtime"] = type(world.channel).__name__  # bytes are counted differently

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
    """Run the initial training, or load it with the memory of the sites.

    It is not shared if sites add noise in training, since each run pays for its own noise.  If
    statistics wait for new labels, each run decides independently.
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
    """Restore the memory of the sites after a training phase.

    An object relayed to several sites is shared by them again.
    """
    messages: dict[tuple[int, ...], PeerMessage] = {}
    for name, kept in memory.items():
        members[name].forget()
        brought: dict[str, dict[SiteId, PeerMessage]] = {}
        for what, state in kept.items():
            verb, is_part, sender = what.partition("/")
            if is_part and verb != "own":
                alike = tuple(map(id, state.values()))
                letter = messages.setdefault(alike, PeerMessage(state))
                brought.setdefault(verb, {})[sender] = letter
            else:
                members[name].remember(what, state)
        for verb, result in brought.items():
            members[name].receive(verb, result)
