"""Units of the numbers to predict, agreed on through the door."""

from __future__ import annotations

import torch

from fallow.core.ask import Ask
from fallow.core.types import State
from fallow.experiment.environment import Simulation


def targets_of(world: Simulation, ask: Ask) -> State | None:
    """The units of the numbers to predict, and the sites told; None where there are classes, where
    the recipe wants none, and before anything was bought.

    "labeled" asks for totals over the labels bought.  "oracle" reads all training rows, labeled
    or not, as published comparisons do: only a simulation can.
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
    ask.keep("targets", mean=mean, std=std)
    return {"mean": mean, "std": std}
