"""Trained model of a finished run, with the weights for prediction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fallow.core.methods import CustomPrediction
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.suggestions import nearest
from fallow.core.types import SiteId, State
from fallow.core.wording import join_some
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import is_untrained, methods_of
from fallow.settings.config import ExperimentConfig


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """Trained model in a file.

    Attributes
    ----------
    config
        Its settings.
    saved
        The content of the model file.
    state
        The weights for prediction: those of the global model, or of the requested site.
    policy
        Names in the configuration that may be resolved.
    """

    config: ExperimentConfig
    saved: TrainedModel
    state: State
    policy: NamePolicy = BUILT_IN


def choose_state(
    saved: TrainedModel,
    config: ExperimentConfig,
    folder: Path,
    site: SiteId | None = None,
    policy: NamePolicy = BUILT_IN,
) -> Trained:
    """Return the saved model with the weights for prediction; ``folder`` is used in errors.

    Raises ValueError if the weights of a site are needed but unavailable or ambiguous.
    """
    own = saved.get("sites", {})
    state = saved["state"]
    if site is not None:
        state = own.get(site)
    if isinstance(methods_of(config, policy=policy)["training"], CustomPrediction):
        raise ValueError(
            f"{config.training} predicts with the labeled examples of a site, which "
            f"{folder} does not store; use another training algorithm"
        )
    if state is not None:
        return Trained(config, saved, state, policy)
    if is_untrained(config):
        raise ValueError(
            f"the study in {folder} trained nothing (training is none), so there is no model"
        )
    why = f"each site of {folder} has a personalized model; the folder of a site has it"
    if site is not None and own:
        why = f"{folder} has no site {site!r}{nearest(site, list(own))}"
    elif site is not None:
        why = f"{folder} has no personalized models; omit --site {site}"
    elif own:
        why = (
            f"each site of {folder} has a personalized model; choose a site with --site: "
            f"{join_some(list(own))}"
        )
    raise ValueError(why)
