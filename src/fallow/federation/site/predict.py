"""The model that a study has left at a site, on new rows."""

from __future__ import annotations

from pathlib import Path

from fallow.federation.people import MODEL
from fallow.federation.site.folder import SiteFolder
from fallow.storage.errors import Failed
from fallow.storage.files import load_tree
from fallow.storage.private import FILE
from fallow.study.predict import Predicted, predict_with


def predict_at(folder: Path, data: Path, out: Path | None = None) -> Predicted:
    """Predict the rows of ``data`` with the model that the site uses, as `study.predict` does.

    Raises Failed before the study has ended.
    """
    site = SiteFolder.open(folder)
    model = folder / MODEL
    if not model.exists():
        raise Failed(
            f"{folder} has no model: it comes when the study has ended, to each site that takes "
            "part in its last exchange"
        )
    try:
        saved = load_tree(model, folder)
    except Failed as error:
        raise Failed(
            f"{model} is damaged or cannot be read; put back a copy of it"
        ) from error
    agreed = site.agreement
    return predict_with(
        saved, agreed.recipe, folder, data, out, mode=FILE, policy=agreed.names
    )
