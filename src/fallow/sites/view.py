"""View of a site for client functions, without access to hidden labels in a federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from fallow.core.methods import CustomPrediction
from fallow.core.streams import stream
from fallow.core.types import SiteId, State
from fallow.core.view import Rows, check_rows_kind, refuse_attribute
from fallow.engine.forward import forward, has_dropout
from fallow.engine.loop import look
from fallow.sites.site import LocalSite

CHUNK = 4096  # examples per batch


class MissingModel(ValueError):
    """A site has no model of a name."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@final
class SiteView:
    """View of a site.  Predictions are computed on first access, in evaluation mode, once."""

    def __init__(self, site: LocalSite, cycle: int, simulator_only: bool = False) -> None:
        self._site = site
        self._sees_hidden = simulator_only
        self._features = dict(site.parts.features)
        self._outputs = dict(site.parts.outputs)
        self._flat: dict[str, Tensor] = {}  # examples as features of a linear model
        self.site: SiteId = site.id
        self.cycle = cycle
        self.classes = site.parts.classes
        self.n_labels = site.parts.n_labels
        self.memory: Mapping[str, State] = site.memory
        self.layout = site.parts.layout
        self.draws = has_dropout(site.parts.model)

    if not TYPE_CHECKING:  # type checkers report misspelled attributes themselves

        def __getattr__(self, name: str) -> Any:
            refuse_attribute(self, name)

    @property
    def pool(self) -> int:
        """Return the number of unlabeled examples."""
        return len(self._site.pool)

    @property
    def positions(self) -> Tensor:
        """Return the positions of the unlabeled examples among all examples of the site, (m,)."""
        return self._site.pool

    def labels_at(self, positions: Tensor) -> Tensor:
        """Return the labels of examples by position, (k,) float64; NaN for unlabeled ones."""
        outcome = self._site.targets(positions).double()
        is_known = self._site.bought[positions] & ~self._site.excluded[positions]
        return outcome.masked_fill(~is_known, float("nan"))

    @property
    def labels(self) -> Tensor:
        """Return the labels of the training examples, (n,)."""
        return self._site.labels

    def groups(self, which: Rows = "pool") -> Tensor | None:
        """Return the group of each example of a kind, (n,); None without groups."""
        if self._site.groups is None:
            return None
        return self._site.groups[self.positions_of(which)]

    @property
    def folds(self) -> Tensor:
        """Return the fold of each training example, (n,)."""
        return self._site.fold[self._site.labeled]

    @property
    def validation_labels(self) -> Tensor:
        """Return the labels of the validation examples, (v,)."""
        return self._site.targets(self._site.validation)

    @property
    def validation_weights(self) -> Tensor:
        """Return the weights of the validation examples, (v,)."""
        return self._site.weight[self._site.validation]

    @property
    def weights(self) -> Tensor:
        """Return the weights of the training examples from the query, (n,)."""
        return self._site.weight[self._site.labeled]

    @property
    def chances(self) -> Tensor:
        """Return the selection probabilities of the training examples, (n,) float64; NaN if
        unknown."""
        return self._site.chance[self._site.labeled]

    @property
    def counts(self) -> Tensor:
        """Return the number of training examples of each class, (C,) float64."""
        return torch.bincount(self.labels, minlength=self.classes).double()

    @property
    def hidden(self) -> Tensor:
        """Return the true labels of the unlabeled pool, (m,), for strategies with simulator_only."""
        if not self._sees_hidden:
            raise ValueError(
                f"site {self.site} provides hidden labels only to a strategy with "
                "simulator_only=True in its contract; add it, or select by "
                "view.labels and predictions"
            )
        if self.site not in self._site.parts.hidden:
            raise ValueError(
                f"site {self.site} has no labels of its unlabeled pool: strategies "
                "that read them are upper bounds for simulations; choose another one"
            )
        return self._site.parts.hidden[self.site][self._site.pool]

    def rows(self, which: Rows = "pool") -> Tensor:
        """Return examples of a kind in model form, (n, *shape)."""
        return self._site.seen[self._site.find_seen(self.positions_of(which))]

    def blocks(self, which: Rows = "pool", size: int = CHUNK) -> Iterator[Tensor]:
        """Yield the examples of `rows` in blocks of ``size``."""
        positions = self._site.find_seen(self.positions_of(which))
        for some in torch.split(positions, size):
            yield self._site.seen[some]

    def positions_of(self, which: Rows) -> Tensor:
        """Return positions of examples of a kind among all examples of the site."""
        check_rows_kind(which)
        if which == "pool":
            return self._site.pool
        if which == "labeled":
            return self._site.labeled
        if which == "validation":
            return self._site.validation
        return self._site.examples

    def model(self, name: str) -> State:
        """Return a stored model.

        A site without a "local" model uses the global one. It has none if it has no labels or its
        round was rejected.
        """
        is_without = len(self._site.labeled) == 0 or "local" not in self.memory
        stored = "global" if name == "local" and is_without else name
        if not self.memory.get(stored):
            raise MissingModel(
                f"site {self.site} has no model {stored!r}; stored models and states: "
                f"{sorted(self.memory) or 'none'}",
                name,
            )
        return self.memory[stored]

    def logits(self, model: str, which: Rows = "pool") -> Tensor:
        """Return the outputs of a stored model for examples of a kind, (n, c)."""
        check_rows_kind(which)
        if not self._trains():
            return self._given_logits(which)
        if (model, which) not in self._outputs and isinstance(self._site.seen, Tensor):
            self._run_model(model, which)
        if (model, which) not in self._outputs:  # features are in a file
            state = self.model(model)
            parts = [self.look(state, rows)[1] for rows in self.blocks(which)]
            self._outputs[model, which] = torch.cat(parts)
        return self._outputs[model, which]

    def embed(self, model: str, which: Rows = "pool") -> Tensor:
        """Return the features before the last layer of a stored model for examples of a kind, (n,
        h)."""
        check_rows_kind(which)
        if (model, which) not in self._features:
            if not self._trains() or self._sees_rows(self.model(model)):
                return self._flat_rows(which)
            self._run_model(model, which)
        return self._features[model, which]

    def _trains(self) -> bool:
        """Return whether the training algorithm trains models."""
        return self._site.parts.methods["training"].contract.trains

    def _given_logits(self, which: Rows) -> Tensor:
        """Return the logarithms of given predictions for examples of a kind, (n, k)."""
        if self._site.predictions is None:
            raise ValueError(
                f"the examples of site {self.site} have no predictions; add columns "
                "prediction:CLASS or uncertainty"
            )
        probabilities = self._site.predictions[self.positions_of(which)]
        return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()

    def _run_model(self, model: str, which: Rows) -> None:
        """Compute features and outputs in one forward pass, except for supplied ones."""
        state = self.model(model)
        features, outputs = self.look(state, self.rows(which))
        if self._sees_rows(state):
            features = self._flat_rows(which)
        self._features.setdefault((model, which), features)
        if (model, which) not in self._site.parts.outputs:
            self._outputs[model, which] = outputs

    def _sees_rows(self, state: State) -> bool:
        """Return whether the features are the examples themselves, so that no pass is necessary."""
        are_rows = getattr(self._site.parts.model, "features_are_rows", False)
        return are_rows and state["w"].dtype == self._site.x.dtype

    def _flat_rows(self, which: Rows) -> Tensor:
        if which not in self._flat:
            self._flat[which] = self.rows(which).flatten(1)
        return self._flat[which]

    def look(self, state: State, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (n, h) and outputs (n, c) of the model ``state``, without gradients."""
        passes = self._site.parts.passes
        if passes is not None:
            return passes.look(state, rows)
        return look(self._site.parts.model, self.layout, state, rows)

    def forward(
        self, state: State, rows: Tensor, draw: torch.Generator | None = None
    ) -> Tensor:
        """Return outputs of the model ``state``, (n, c).

        ``draw``: random stream of dropout; None for evaluation mode.
        """
        passes = self._site.parts.passes
        if passes is not None:
            return passes.forward(state, rows, draw)
        return forward(self._site.parts.model, self.layout, state, rows, draw)

    def outputs(self, state: State, rows: Tensor) -> Tensor:
        """Return the predictions of the training algorithm that deploys ``state``.  (n, c)"""
        method = self._site.method("training")
        if isinstance(method, CustomPrediction):
            return method.predict(self, state, rows)
        return self.forward(state, rows)

    def stream(self, purpose: str) -> torch.Generator:
        """Return the site's random stream of a purpose in this cycle."""
        return self._site.streams(purpose, self.cycle)

    def secret(self, purpose: str) -> torch.Generator:
        """Return a private random stream of the site; in a simulation it derives from the run's
        seed.

        Raises RuntimeError at a site of a federation without a secret.
        """
        parts = self._site.parts
        if parts.secret is not None:
            return stream(parts.secret, purpose, self.cycle, self.site)
        if parts.noise != "seeded":
            raise RuntimeError(
                f"site {self.site} has no secret for the random stream {purpose!r}, "
                "and the seed of the run is public; in a simulation, set "
                'RunComponents(noise="seeded")'
            )
        return stream(parts.seed, purpose, self.cycle, self.site)
