"""File of a trained model: weights, and data for prediction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fallow.core.types import SiteId, State
from fallow.experiment.encoding import add_encoder
from fallow.experiment.environment import Environment
from fallow.experiment.finished import TrainedModel
from fallow.storage.files import save_tree


def save_model(
    path: Path, world: Environment, state: State | None, sites: Mapping[SiteId, State]
) -> None:
    """Save the global model, if any, and the personalized models of ``sites``, with data
    for prediction.

    These are classes, columns, shape, encoder and scaling.
    """
    model: TrainedModel = {
        "state": state,
        "example_spec": world.example_spec,
        "scale": None,
        "targets": world.targets,
    }
    if world.scale is not None:
        model["scale"] = world.scale.state
    add_encoder(model, world.methods.get("encoder"), world.encoded_by)
    model["sites"] = dict(sites)
    save_tree(path, model)
