"""Site view that takes model outputs and features from the caller, with or without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from fallow.core.types import SiteId, State
from fallow.core.view import Rows, check_rows_kind, refuse_attribute
from fallow.sites.view import SiteView

if TYPE_CHECKING:
    from fallow.sites import LocalSite


class MissingArgument(ValueError):
    """Missing argument that a query strategy needs; the message names it."""


TensorsByRows = Mapping[Rows, Tensor]
"""Kind of examples -> (n, c) or (n, h)."""


@dataclass(frozen=True)
class SuppliedOutputs:
    """Model outputs and features that the caller supplies, by model name ("" for every model).

    Attributes
    ----------
    has_model : bool
        Whether the caller supplies a model.
    outputs : mapping of str to arrays
        Logits, of shape (n, n_classes).
    features : mapping of str to arrays
        Inputs of the last layer, of shape (n, n_hidden).
    """

    has_model: bool = False
    outputs: Mapping[str, TensorsByRows] = field(default_factory=dict)
    features: Mapping[str, TensorsByRows] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Return the names of the models that have outputs or features."""
        result = {*self.outputs, *self.features}
        if "" in result:
            result = (result - {""}) | {"local", "global"}
        return result


@final
class ArrayView:
    """Variant of `SiteView` that looks up outputs and features supplied by the caller.

    Without a model, examples without features serve as their own features.  Any other missing
    input raises `MissingArgument` with the argument that supplies it.
    """

    def __init__(
        self,
        supplied: SuppliedOutputs,
        strategy: str,
        site: LocalSite,
        cycle: int,
        simulator_only: bool,
    ) -> None:
        self._said = supplied
        self._strategy = strategy
        self._inner = SiteView(site, cycle, simulator_only)
        self.site: SiteId = site.id
        self.cycle = cycle
        self.classes = self._inner.classes
        # models with supplied outputs are listed without weights
        named: dict[str, State] = {name: {} for name in supplied.names}
        self.memory: Mapping[str, State] = {**named, **site.memory}
        self.layout = self._inner.layout
        self.draws = self._inner.draws

    if not TYPE_CHECKING:  # type checkers report misspelled attributes

        def __getattr__(self, name: str) -> Any:
            refuse_attribute(self, name)

    # -- as at every site ----------------------------------------------------------

    @property
    def pool(self) -> int:
        return self._inner.pool

    @property
    def places(self) -> Tensor:
        return self._inner.places

    def answers(self, places: Tensor) -> Tensor:
        return self._inner.answers(places)

    @property
    def labels(self) -> Tensor:
        return self._inner.labels

    @property
    def labeled_places(self) -> Tensor:
        return self._inner.labeled_places

    @property
    def validation_labels(self) -> Tensor:
        return self._inner.validation_labels

    @property
    def validation_weights(self) -> Tensor:
        return self._inner.validation_weights

    @property
    def weights(self) -> Tensor:
        return self._inner.weights

    @property
    def new_labels(self) -> int:
        return self._inner.new_labels

    @property
    def chances(self) -> Tensor:
        return self._inner.chances

    @property
    def counts(self) -> Tensor:
        return self._inner.counts

    @property
    def hidden(self) -> Tensor:
        parts = self._inner._site.parts
        if self.site not in parts.hidden:
            self._lack("needs the true labels of the pool", "hidden=y")
        return self._inner.hidden

    def rows(self, which: Rows = "pool") -> Tensor:
        return self._inner.rows(which)

    def blocks(self, which: Rows = "pool", size: int = 4096) -> Iterator[Tensor]:
        return self._inner.blocks(which, size)

    def stream(self, purpose: str) -> torch.Generator:
        return self._inner.stream(purpose)

    def secret(self, purpose: str) -> torch.Generator:
        return self._inner.secret(purpose)

    # -- model outputs --------------------------------------------------------------------

    def logits(self, model: str, which: Rows = "pool") -> Tensor:
        result = self._look_up(self._said.outputs, model, which)
        if result is not None:
            return result
        if not self._said.has_model or self._lacks_local(model):
            self._lack(
                f"needs the outputs of the {model} model on the {which} rows",
                _give(model, which),
            )
        return self._inner.logits(model, which)

    def embed(self, model: str, which: Rows = "pool") -> Tensor:
        result = self._look_up(self._said.features, model, which)
        if result is not None:
            return result
        if not self._said.has_model:
            if which == "labeled" and self._said.features:
                self._lack("needs features of the labeled rows", "features=(pool, labeled)")
            return self.rows(which).flatten(1)
        if self._lacks_local(model):
            self._lack("needs features of the local model", "model={'local': module}")
        return self._inner.embed(model, which)

    def model(self, name: str) -> State:
        what = f"needs the weights of the {name} model"
        self._check_model(what)
        if self._lacks_local(name):
            self._lack(what, "model={'local': module}")
        return self._inner.model(name)

    def forward(
        self, state: State, rows: Tensor, draw: torch.Generator | None = None
    ) -> Tensor:
        self._check_model("passes rows through the model")
        return self._inner.forward(state, rows, draw)

    def look(self, state: State, rows: Tensor) -> tuple[Tensor, Tensor]:
        self._check_model("passes rows through the model")
        return self._inner.look(state, rows)

    def outputs(self, state: State, rows: Tensor) -> Tensor:
        self._check_model("passes rows through the model")
        return self._inner.outputs(state, rows)

    def _look_up(
        self, supplied: Mapping[str, TensorsByRows], model: str, which: Rows
    ) -> Tensor | None:
        """Return the supplied values of a model; an unlabeled site uses the global model as local."""
        check_rows_kind(which)
        if model == "local" and len(self._inner.labels) == 0 and "global" in supplied:
            model = "global"
        for name in (model, ""):
            if name in supplied and which in supplied[name]:
                return supplied[name][which]
        return None

    def _lacks_local(self, model: str) -> bool:
        """Return whether the local model is needed but the caller supplied only another one.

        A run then uses the global model, but a caller may have forgotten the local one.
        """
        has_labels = len(self._inner.labels) > 0
        return model == "local" and has_labels and "local" not in self._inner.memory

    def _check_model(self, what: str) -> None:
        if not self._said.has_model:
            self._lack(what, "model=module")

    def _lack(self, what: str, give: str) -> None:
        raise MissingArgument(
            f"{self._strategy} {what}, which site {self.site} does not have; give {give}"
        )


def _give(model: str, which: Rows) -> str:
    """Return advice for missing outputs; outputs of validation examples cannot be supplied."""
    if which == "validation":
        return "model=module"
    rows = "(p, p0)"
    if which == "pool":
        rows = "p"
    return f"outputs={{{model!r}: {rows}}} or model=module"
