"""The file of a trained model: weights, and what predicting needs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fallow.core.types import SiteId, State
from fallow.experiment.encoding import saved_encoder
from fallow.experiment.environment import Environment
from fallow.storage.files import save_tree


def save_model(
    path: Path, world: Environment, state: State | None, sites: Mapping[SiteId, State]
) -> None:
    """The deployed model, if there is one for all, and those of ``sites`` that have their own, with
    what predicting needs: classes, columns, shape, encoder, scale."""
    scale = None if world.scale is None else world.scale.state
    kept = {"state": state, "about": world.about, "scale": scale, "targets": world.targets}
    encoder = saved_encoder(world.methods.get("encoder"), world.encoded_by)
    save_tree(path, {**kept, **encoder, "sites": dict(sites)})
