"""Trained model of a finished run."""

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
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.variants import variant
from fallow.storage.files import load_tree
from fallow.study.reading import read_study
from fallow.study.study_run import StudyRun


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


def read_trained(
    folder: Path,
    strategy: str | None = None,
    seed: int | None = None,
    site: SiteId | None = None,
    policy: NamePolicy = BUILT_IN,
) -> Trained:
    """Read the trained model of a run of the study in ``folder``.

    Parameters
    ----------
    strategy : str, optional
        Query strategy.  Default: the reference of the study.
    seed : int, optional
        Seed.  Default: the first.
    site : str, optional
        Site whose model to read, if models are personalized.
    policy : NamePolicy, optional
        Names that may be resolved.  Default: built-in classes only, since a study may be untrusted.
    """
    study = read_study(folder).study
    cell = StudyRun(strategy or study.reference or study.strategies[0], study.seeds[0])
    if seed is not None:
        cell = StudyRun(cell.strategy, seed)
    path = cell.folder(folder) / "model.safetensors"
    if not path.exists():
        seeds = ", ".join(str(item) for item in study.seeds)
        raise ValueError(
            f"{folder} has no finished run of {cell.strategy} with seed {cell.seed}; its "
            f"strategies are {', '.join(study.strategies)}, its seeds {seeds}"
        )
    saved = load_tree(path, path.parent)
    config = variant(config_from(dict(study.config)), cell.strategy)
    return choose_state(saved, config, folder, site, policy)


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
