"""Scaling of regression targets."""

from __future__ import annotations

import torch

from fallow.core.ask import Ask
from fallow.core.types import State
from fallow.experiment.environment import Simulation


def targets_of(world: Simulation, ask: Ask) -> State | None:
    """Compute the scale of regression targets and send it to the sites.

    It is None for classification, without scaling, and before any label is acquired.  "labeled" uses
    aggregates over acquired labels.  "oracle" uses all training examples, as published comparisons do,
    which only a simulation can.
    """
    how = world.recipe.target_scale
    is_bought = any(len(site.labeled) for site in world.members.values())
    if world.dataset.classes or how == "none" or not is_bought:
        return None
    if how == "labeled":
        return world.methods["scaling"].of_targets(ask)
    y = world.dataset.y.double()
    mean = y.mean()
    std = torch.tensor(world.variance, dtype=y.dtype).sqrt()
    ask.keep(world.methods["scaling"].targets, mean=mean, std=std)
    return {"mean": mean, "std": std}
