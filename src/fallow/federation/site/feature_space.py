"""What the features of a site's rows tell the people who label them: which rows are alike, and what
the model makes of a row.

Everything is computed at the site, from what lies in its folder.  Nothing leaves it, and nothing is
written but features that are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple, final

import torch
from torch import Tensor

from fallow.core.types import SiteId, State
from fallow.experiment.encoding import kept_features
from fallow.experiment.scale import in_units
from fallow.federation.building import build_study
from fallow.federation.ledger import Ledger
from fallow.federation.ledger.draft import Draft
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.host import FEATURES
from fallow.sites.seen import Source
from fallow.sites.site import ENCODE, LocalSite, Parts
from fallow.sites.view import SiteView
from fallow.storage.features import BLOCK, FeatureStore

MODEL = "global"
"""Under which name a site remembers the model that all sites train, from a query until its cycle
ends."""


@final
class Guess(NamedTuple):
    """What the model predicts for a row: a class id and how sure it is, or a number."""

    predicted: float
    probability: float | None


@final
class FeatureSpace:
    """The rows of a site as its models see them, beside the process that takes part in the study.

    Raises ValueError for a study without an encoder: its rows have no features.
    """

    def __init__(self, folder: SiteFolder, ledger: Ledger) -> None:
        agreement = folder.agreement
        made = build_study(agreement)
        if made.encoder is None:
            raise ValueError(f"the study {agreement.name} has no encoder")
        self._encoder = made.encoder
        self._folder = folder
        self._ledger = ledger
        self._store = FeatureStore(folder.path / FEATURES, always=True, grows=True)
        self._parts = Parts(
            model=made.model,
            layout=made.layout,
            methods=made.methods,
            classes=made.classes,
            seed=agreement.seed,
            fresh=made.fresh,
            encode=self._encode,
        )
        self._x = folder.rows.x.to(made.dtype)
        self._site: LocalSite | None = None
        self._read_at: tuple[str, int, str | None] | None = None
        self._turn = Lock()  # several pages may be open

    def find_nearest(self, row: int, among: Sequence[int], n: int) -> list[int]:
        """The ``n`` rows of ``among`` that are nearest to a row, the nearest first; the row itself
        is none of them, and of rows as near as each other the first in the file comes first.

        By the Euclidean distance of features.  None before the encoder was fitted.
        """
        with self._turn:
            site = self._read_site()
            if site is None or ENCODE not in site.memory:
                return []
            others = torch.tensor(sorted(set(among) - {row}), dtype=torch.long)  # (k,)
            here = site.seen[torch.tensor([row])]  # (1, d)
            parts = [torch.zeros(0, dtype=torch.float64)]
            for some in torch.split(others, BLOCK):
                away = site.seen[some] - here  # (b, d)
                parts.append(away.double().square().sum(1))
            distances = torch.cat(parts)  # (k,)
        nearest = distances.argsort(stable=True)[:n]
        rows: list[int] = others[nearest].tolist()
        return rows

    @property
    def has_model(self) -> bool:
        """Whether the site has a model that can guess."""
        with self._turn:
            site = self._read_site()
            return site is not None and MODEL in site.memory

    def guess(self, row: int) -> Guess | None:
        """What the model that the site was given last predicts for a row; None without a model."""
        with self._turn:
            site = self._read_site()
            if site is None or MODEL not in site.memory:
                return None
            view = SiteView(site, cycle=0)
            x = site.seen[torch.tensor([row])]  # (1, d)
            outputs = view.look(view.model(MODEL), x)[1]  # (1, c)
        if not self._parts.classes:
            number = in_units(outputs.squeeze(1), site.memory.get("targets"))
            return Guess(float(number), None)
        best = outputs.softmax(1).max(1)
        return Guess(float(best.indices), float(best.values))

    def _read_site(self) -> LocalSite | None:
        """The site as the ledger has it; it is read anew once an order was performed.  None before
        the first run."""
        orders = self._ledger.orders
        run = orders.newest_run()
        if run is None:
            return None
        place, key = orders.find_position(run)
        if self._site is None or self._read_at != (run, place, key):
            # of a draft that is never flushed: a page changes nothing that a site remembers
            draft = Draft(self._ledger.store)
            self._site = LocalSite(self._folder.name, self._x, self._parts, draft)
            self._read_at = (run, place, key)
        return self._site

    def _encode(self, site: SiteId, x: Tensor, state: State) -> tuple[Source, None]:
        return kept_features(self._store, self._encoder, x, state), None


def open_feature_space(folder: SiteFolder, ledger: Ledger) -> FeatureSpace | None:
    """The feature space of a site; None where its study has no encoder."""
    if folder.agreement.recipe.encoder is None:
        return None
    return FeatureSpace(folder, ledger)
