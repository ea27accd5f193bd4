"""Trained model of a run of a study, and its predictions."""

from __future__ import annotations

from pathlib import Path

from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.types import SiteId
from fallow.experiment.predict import Predicted, predict_with
from fallow.experiment.trained import Trained, choose_state
from fallow.settings.config import config_from
from fallow.settings.variants import variant
from fallow.storage.files import load_tree
from fallow.study.reading import read_study
from fallow.study.study_run import StudyRun


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


def predict_file(
    folder: Path,
    data: Path,
    strategy: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    site: SiteId | None = None,
    policy: NamePolicy = BUILT_IN,
) -> Predicted:
    """Predict the examples in ``data`` with the model of a run."""
    return predict_with(read_trained(folder, strategy, seed, site, policy), data, out)
