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
from fallow.settings.config import ExperimentConfig
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
    "measure",
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


def describe_training(config: ExperimentConfig) -> dict[str, object]:
    """Return the settings that affect the initial training, by name.

    Configurations with equal settings, data, initial labels, seed and executor share it.

    >>> describe_training(ExperimentConfig("a", rounds=7))["rounds"]
    7
    """
    settings = asdict(config)
    details = {name: settings[name] for name in INPUTS}

    if config.privacy.secure_sum:  # totals are rounded, and keys cross
        details["masked"] = config.privacy.bound or True
    return details


def phase_key(simulation: Simulation) -> str:
    """Return a digest of all inputs of the initial training: data, partition, labels, settings."""
    training = describe_training(simulation.config)
    training["seed"] = simulation.seed
    training["executor"] = simulation.executor
    training["threads"] = threads()
    training["runtime"] = type(simulation.channel).__name__  # bytes are counted differently

    h = hashlib.sha256(simulation.fingerprint.encode())
    h.update(
        json.dumps(
            [training, versions_of(simulation.config)], sort_keys=True, default=str
        ).encode()
    )
    for site in simulation.members.values():
        h.update(site.labeled.numpy().tobytes())
        h.update(site.validation.numpy().tobytes())
    return h.hexdigest()[:32]


def first_phase(
    simulation: Simulation, phases: Phases, train: Callable[[], TrainedPhase]
) -> tuple[TrainedPhase, Memory | None]:
    """Run the initial training, or load it with the memory of the sites.

    It is not shared if sites add noise in training, since each run pays for its own noise.
    """
    if simulation.config.delta is not None:
        return train(), None
    key = phase_key(simulation)
    result = phases.load(key)
    if result:
        return result["done"], result["memory"]
    done = train()
    memory = {name: site.memory for name, site in simulation.members.items()}
    phases.save(key, done, memory)
    return done, None


def restore(members: Mapping[SiteId, LocalSite], memory: Memory) -> None:
    """Restore the memory of the sites after a training phase.

    An object relayed to several sites is shared by them again.
    """
    messages: dict[tuple[int, ...], PeerMessage] = {}
    for name, states in memory.items():
        members[name].forget()
        received: dict[str, dict[SiteId, PeerMessage]] = {}
        for name_of_state, state in states.items():
            function, slash, sender = name_of_state.partition("/")
            if slash and function != "own":
                identity = tuple(map(id, state.values()))
                peer_message = messages.setdefault(identity, PeerMessage(state))
                received.setdefault(function, {})[sender] = peer_message
            else:
                members[name].remember(name_of_state, state)
        for function, messages_of_function in received.items():
            members[name].receive(function, messages_of_function)
