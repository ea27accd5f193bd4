"""Predictions with the final model of a study at a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fallow.deployment.annotators import MODEL
from fallow.deployment.site.folder import SiteFolder
from fallow.experiment.methods import is_untrained
from fallow.experiment.predict import Predicted, predict_with
from fallow.experiment.trained import Trained, choose_state
from fallow.storage.errors import StorageError
from fallow.storage.files import FILE, load_tree


def read_site_model(folder: Path) -> Trained:
    """Return the model that the site uses. Raises StorageError before the end of the study."""
    site = SiteFolder.open(folder)
    model = folder / MODEL
    if is_untrained(site.agreement.config):
        raise StorageError(f"the study of {folder} trains nothing, so there is no model")
    if not model.exists():
        raise StorageError(
            f"{folder} has no model: it is sent at the end of the study, to each "
            "site of the last exchange"
        )
    try:
        saved = load_tree(model, folder)
    except StorageError as error:
        raise StorageError(
            f"{model} is damaged or cannot be read; restore it from a backup"
        ) from error
    agreed = site.agreement
    return choose_state(saved, agreed.config, folder, policy=agreed.names)


def predict_at(folder: Path, data: Path, out: Path | None = None) -> Predicted:
    """Predict the rows of ``data`` with the site's model, as `predict_with` does.

    Files are read with the settings of ``site.toml``, as those of training.
    """
    settings = SiteFolder.open(folder).settings
    options = replace(settings.load_options(drop_rows=False), group=None)
    return predict_with(read_site_model(folder), data, out, mode=FILE, options=options)
