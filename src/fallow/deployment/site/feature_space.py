"""Similar examples and predictions for annotators, computed from the features of a site.

Everything is computed at the site from its own folder. Nothing is sent, and only missing features
are written.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from threading import Lock
from typing import NamedTuple, final

import torch

from fallow.core.exchange_key import ExchangeKey
from fallow.core.multilabel import predict_answers
from fallow.deployment.building import build_study
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.draft import Draft
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.host import FEATURES
from fallow.experiment.encoding import encoding_with
from fallow.experiment.scale import in_units
from fallow.sites.site import ENCODE, LocalSite, RunComponents
from fallow.sites.view import SiteView
from fallow.storage.features import BLOCK, FeatureStore

EXACT = "donot_use_mm_for_euclid_dist"
"""Mode of `torch.cdist` without products, whose rounding would break ties."""
MODEL = "global"
"""State with the global model, from a query until the end of its cycle."""


@final
class Guess(NamedTuple):
    """Prediction for a row: a class ID with its probability, or a number."""

    predicted: float
    probability: float | None


@final
class FeatureSpace:
    """Rows of a site in model form, for use beside the site's process."""

    def __init__(self, folder: SiteFolder, ledger: Ledger) -> None:
        agreement = folder.agreement
        made = build_study(agreement)
        self._folder = folder
        self._ledger = ledger
        features = FeatureStore(folder.path / FEATURES, always=True, grows=True)
        self._parts = RunComponents(
            model=made.model,
            layout=made.layout,
            methods=made.methods,
            classes=made.classes,
            n_labels=len(agreement.schema.labels),
            seed=agreement.seed,
            fresh=made.fresh,
            encode=encoding_with(features, made.encoder),
        )
        self._x = folder.rows.x.to(made.dtype)
        self._site: LocalSite | None = None
        self._read_at: tuple[str, int, ExchangeKey | None] | None = None
        self._turn = Lock()  # several pages may be open at once

    def find_nearest(self, row: int, among: Sequence[int], n: int) -> list[int]:
        """Return the ``n`` nearest rows in ``among``, nearest first, without the row itself.

        The metric is the Euclidean distance of features. Ties are sorted by position in the file.
        Returns nothing before the encoder is fitted.
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

    def find_mostly_near(
        self, rows: Sequence[int], to: Set[int], others: Set[int], n: int
    ) -> list[int]:
        """Return those of ``rows`` most of whose ``n`` nearest are in ``to``, not in ``others``.

        The metric is that of `find_nearest`. Returns nothing before the encoder is fitted.
        """
        known = torch.tensor(sorted(to | others), dtype=torch.long)  # (k,)
        is_in = torch.tensor([row in to for row in known.tolist()], dtype=torch.bool)
        n = min(n, len(known))
        near: list[int] = []
        with self._turn:
            site = self._read_site()
            if site is None or ENCODE not in site.memory:
                return []
            z = site.seen[known].double()  # (k, d)
            for some in torch.split(torch.tensor(rows, dtype=torch.long), BLOCK):
                distances = torch.cdist(site.seen[some].double(), z, compute_mode=EXACT)
                nearest = distances.argsort(dim=1, stable=True)[:, :n]
                is_near = 2 * is_in[nearest].sum(1) > n
                near += some[is_near].tolist()
        return near

    @property
    def has_model(self) -> bool:
        """Return whether the site has a model for predictions."""
        with self._turn:
            site = self._read_site()
            return site is not None and MODEL in site.memory

    def guess(self, row: int) -> Guess | None:
        """Return the prediction of the site's latest model for a row, or None without a model."""
        with self._turn:
            site = self._read_site()
            if site is None or MODEL not in site.memory:
                return None
            view = SiteView(site, cycle=0)
            x = site.seen[torch.tensor([row])]  # (1, d)
            outputs = view.look(view.model(MODEL), x)[1]  # (1, c)
        if self._parts.n_labels:
            return Guess(float(predict_answers(outputs)), None)
        if not self._parts.classes:
            number = in_units(outputs.squeeze(1), site.memory.get("targets"))
            return Guess(float(number), None)
        best = outputs.softmax(1).max(1)
        return Guess(float(best.indices), float(best.values))

    def _read_site(self) -> LocalSite | None:
        """Return the site from the ledger, reloaded after each instruction.

        Returns None before the first run.
        """
        instructions = self._ledger.instructions
        run = instructions.newest_run()
        if run is None:
            return None
        position, key = instructions.find_position(run)
        if self._site is None or self._read_at != (run, position, key):
            # a draft that is never flushed, because a page must not change the site's state
            draft = Draft(self._ledger.store)
            cases = self._folder.rows.cases
            self._site = LocalSite(
                self._folder.name, self._x, self._parts, draft, cases=cases
            )
            self._read_at = (run, position, key)
        return self._site


def open_feature_space(folder: SiteFolder, ledger: Ledger) -> FeatureSpace | None:
    """Return the feature space of a site, or None for a study without an encoder."""
    if folder.agreement.config.encoder is None:
        return None
    return FeatureSpace(folder, ledger)
