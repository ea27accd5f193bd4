"""Declaration of local training: the models that sites train or store, and the parts of the state.

>>> from fallow.training import FedAvg, Robust
>>> FedAvg.contract.fit.models, tuple(FedAvg.contract.fit.sent)
({}, ('w', 'stats'))
>>> Robust.contract.fit.server
('refused',)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor

from fallow.core.training_config import TrainingConfig
from fallow.core.values import Kind, Model, Statistics

Configs = Callable[[Any, TrainingConfig], Sequence[TrainingConfig]]
"""Training configurations of an instance, given the requested one."""
MODEL: Mapping[str, Kind] = {"w": Model(), "stats": Statistics()}
"""Parts of the state of most algorithms: a model."""
LOCAL = "local"
"""Name of the model that a training algorithm trains."""


def agreed(training: Any, requested: TrainingConfig) -> tuple[TrainingConfig]:
    """Return the training configuration of an algorithm."""
    return (training.training_config,)


def never(training: Any, requested: TrainingConfig) -> tuple[TrainingConfig, ...]:
    """Return no training configuration: the model is stored as it is sent."""
    return ()


@final
@dataclass(frozen=True)
class Fit:
    """A model that a site trains or stores (`Ask.fit`).

    Attributes
    ----------
    by : callable
        Training configurations with which the site trains it.
    is_stored : bool
        Whether the site may also store it without training.
    """

    by: Configs = agreed
    is_stored: bool = False


STORED = Fit(by=never, is_stored=True)
"""A model that is only sent."""


@final
@dataclass(frozen=True)
class FitDeclaration:
    """Local training as an algorithm declares it (`Contract.fit`).

    Attributes
    ----------
    models : mapping
        Models in the memory of a site by name.  A training algorithm also trains "local" with its
        training configuration, unless it is listed.
    sent : mapping of kinds
        Parts of the state that sites receive.
    kept : sequence of str
        Parts that stay at the site that trained them: the names that `finish` returns.
    server : sequence of str
        Parts that stay on the server side.
    """

    models: Mapping[str, Fit] = field(default_factory=dict)
    sent: Mapping[str, Kind] = field(default_factory=lambda: MODEL)
    kept: Sequence[str] = ()
    server: Sequence[str] = ()

    def find(self, name: str) -> Fit | None:
        """Return the declaration of a model, or None."""
        if name == LOCAL:
            return self.models.get(name, Fit())
        return self.models.get(name)

    def allows(self, algorithm: Any, name: str, requested: TrainingConfig | None) -> bool:
        """Return whether an algorithm trains or, without a configuration, stores a model."""
        fit = self.find(name)
        if fit is None:
            return False
        if requested is None:
            return fit.is_stored
        return requested in fit.by(algorithm, requested)

    def find_wrong_part(
        self,
        parts: Mapping[str, object],
        dims: Mapping[str, int] | None = None,
        start: str = "given",
    ) -> str | None:
        """Explain why the parts that come with a model are not those of the state, or return None.

        ``dims`` are known dimensions.  Training that starts from a model of the site (``start``) may
        be pulled towards another one, which then needs no batch-norm statistics.
        """
        sizes = dict(dims or {})
        for name, value in parts.items():
            kind = self.sent.get(name)
            if kind is None:
                return f"sends {name!r:.80} with a model, which is not the name of a part"
            if start not in ("given", "scratch") and _lacks_statistics(kind, value):
                continue
            why = kind.find_wrong_form(name, value, sizes)
            if why is not None:
                return f"sends an invalid part of a model: {why}"
        return None


def _lacks_statistics(kind: Kind, value: object) -> bool:
    is_empty = isinstance(value, Tensor) and value.shape == (0,)
    return isinstance(kind, Statistics) and is_empty


def join_declarations(first: FitDeclaration, second: FitDeclaration) -> FitDeclaration:
    """Return the declaration of two algorithms that share a state."""
    return FitDeclaration(
        models={**first.models, **second.models},
        sent={**first.sent, **second.sent},
        kept=(*first.kept, *second.kept),
        server=(*first.server, *second.server),
    )
