"""Federations for the contract tests of all strategies, also for regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label
from fallow.training import FedAvg
from fallow.transport.serialized import SerializingChannel
from tests.contracts.strategies import FOR_NUMBERS
from tests.simulations import Simulation, Tables
from tests.simulations import simulation as with_classes
from tests.strategies.regression import federation


def simulation(
    sites: Tables,
    strategy: Any,
    seed: int = 0,
    runtime: type[InProcessChannel | SerializingChannel] = InProcessChannel,
) -> Simulation:
    made = with_numbers if isinstance(strategy, FOR_NUMBERS) else with_classes
    return made(sites, strategy, seed, runtime)


def with_numbers(
    sites: Tables,
    strategy: Any,
    seed: int = 0,
    runtime: type[InProcessChannel | SerializingChannel] = InProcessChannel,
) -> Simulation:
    """Return the same examples with regression targets; both models predict 0."""
    classes = with_classes(sites, strategy).members
    rows = {name: site.x for name, site in classes.items()}
    made = federation(rows, strategy, seed=seed, runtime=runtime, solver=FedAvg())
    for name, site in made.members.items():
        site.parts = replace(site.parts, hidden=classes[name].parts.hidden)
        labeled = classes[name].labeled.tolist()
        labels = zip(labeled, classes[name].labels.tolist(), strict=True)
        site.buy([Label(row, y, cycle=-1) for row, y in labels])
        for model in ("local", "global"):
            site.remember(model, site.parts.fresh(torch.Generator()))
    return made
