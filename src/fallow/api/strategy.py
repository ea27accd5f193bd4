"""Base classes of custom query strategies and training algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.suggestions import explain_constructor
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import Count, LabelCount, Model, Statistics
from fallow.core.view import View
from fallow.strategies.base import Budget, Memo, label_counts
from fallow.training.base import average, contribution


def _freeze(cls: type[Any]) -> None:
    """Make ``cls`` a frozen dataclass whose fields are its annotations.

    The two methods that prevent assignment are then removed, since the base class has them.  An
    explicit ``@dataclass(frozen=True)`` therefore causes no error.
    """
    dataclass(frozen=True)(cls)
    for name in ("__setattr__", "__delattr__"):
        if name in cls.__dict__:
            delattr(cls, name)
    explain_constructor(cls)


def _check_contract(cls: type[Any]) -> None:
    """Raise TypeError if a class has no disclosure declaration."""
    if not isinstance(getattr(cls, "contract", None), Contract):
        name = cls.__name__
        raise TypeError(
            f"{name!r} has no disclosure declaration; add contract = fl.Contract(title={name!r})"
        )


def _declare_select(cls: type[Any]) -> None:
    """Declare ``select(self, view, n)`` unless the class does; others declare their arguments."""
    select = vars(cls).get("select")
    if select is None or hasattr(select, client.MARK):
        return
    if len(signature(select).parameters) == len(("self", "view", "n")):
        SELECT(select)


class _Frozen:
    """Base class whose instances cannot be modified."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}; create a new object")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


SELECT = client.keep("number of selected examples", takes={"n": LabelCount()})
"""Declaration of ``select(view, n)``, for classes that do not declare it themselves."""


@dataclass_transform(frozen_default=True)
class Strategy(_Frozen):
    """Base class of custom query strategies.

    A subclass has annotated fields, a disclosure declaration ``contract`` and a client function
    ``select``.  It becomes a frozen dataclass automatically.  ``select(view, n)`` runs at each site
    with a `View` of its data.  It returns `SelectedExamples` with exactly ``min(n, view.pool)``
    distinct positions in the unlabeled pool.

    The server side, ``query``, requests each site's share of the budget.  Override it to compute
    aggregates first.  A site runs declared functions only: ``select(view, n)`` is declared by this
    class, and all others by a decorator of `fallow.core.client`.

    Raises
    ------
    TypeError
        If the class has no contract or no ``select``.

    Examples
    --------
    >>> import fallow as fl, torch
    >>> class Largest(fl.Strategy):
    ...     power: float = 1.0
    ...     contract = fl.Contract(title="Largest")
    ...
    ...     def select(self, view, n):
    ...         size = view.rows().flatten(1).abs().sum(1) ** self.power
    ...         return fl.SelectedExamples(size.argsort(descending=True)[:n])
    >>> Largest(power=2.0)
    Largest(power=2.0)
    >>> fl.select([[1.0], [-9.0], [3.0]], Largest(), n=2)
    array([1, 2])
    """

    contract: ClassVar[Contract]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        _freeze(cls)
        _check_contract(cls)
        _declare_select(cls)
        if "contract" in vars(cls):
            cls.contract.declare_functions(cls)
        if cls.query is Strategy.query and not hasattr(cls, "select"):
            raise TypeError(
                f"{cls.__name__} has no client function select; write "
                "def select(self, view, n)"
            )

    if TYPE_CHECKING:  # a subclass has it, with its own arguments

        def select(self, *args: Any, **fields: Any) -> Any: ...

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        """Server side: each site selects as many examples as its budget allows.

        Parameters
        ----------
        ask : Ask
            Requests to the client functions of this strategy at all sites.
        budget : mapping of str to int
            Label budget of each site in this cycle, in examples.
        memo : dict of str to value
            State of the strategy from the previous cycle; {} in the first one.

        Returns
        -------
        dict of str to value
            State for the next cycle: tensors and JSON values.  Reports show ``memo["notes"]``.
        """
        ask.keep(self.select, to=label_counts(budget))
        return memo


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Training(_Frozen):
    """Base class of custom training algorithms; the default is federated averaging.

    Override the local step, the round or the contribution of a site.  ``step`` takes and returns
    tensors and has no side effects.  The engine loops over batches, sites and rounds.  A subclass
    becomes a frozen dataclass automatically.

    Parameters
    ----------
    training_config : TrainingConfig
        Training configuration, set by ``fallow.run(..., training_config=...)``.

    Examples
    --------
    >>> import fallow as fl
    >>> class Near(fl.Training):
    ...     mu: float = 0.1
    ...     contract = fl.Contract(title="Near")
    ...
    ...     def step(self, s, w_t, batch, learn):
    ...         near = lambda w: self.mu / 2 * (w - w_t.w).square().sum(-1)
    ...         return {"w": learn.descend(s["w"], batch, near)}
    >>> Near(mu=0.5).mu
    0.5
    """

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract(title="Federated averaging")

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        _freeze(cls)
        _check_contract(cls)

    def round(self, state: State, ask: Ask) -> State:
        """Train at the sites, then average the models weighted by number of labels.

        Parameters
        ----------
        state : dict of str to Tensor
            Global model: weights ``w`` (d,) and batch-norm statistics ``stats`` (s,).
        ask : Ask
            Requests to the client functions of this algorithm at all sites.
        """
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum(self.upload), state)

    @client.sum(
        "aggregates of numbers of examples and of weighted models",
        returns={"n": Count(of="labels"), "w": Model(), "stats": Statistics()},
    )
    def upload(self, view: View) -> Values:
        """Return the contribution of a site: n_i w_i and n_i.

        Parameters
        ----------
        view : View
            Data of the site, after local training.
        """
        return contribution(view)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        """Return the model that a site uses: the global model.

        Parameters
        ----------
        state : dict of str to Tensor
            Global model.
        memory : mapping of str to State
            States that the site keeps, by name.
        """
        return state

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        """Return the initial state of local training.

        Parameters
        ----------
        w : TrainState
            Model received from the coordinator, with weights ``w`` (..., d).
        own : dict of str to TrainState
            Values that the site kept from its last round, by name.
        """
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        """Run one local step on one batch.

        Parameters
        ----------
        s : dict of str to TrainState
            Result of `start` or of the previous step.
        w_t : TrainState
            Model received from the coordinator.
        b : Batch
            Batch of labeled examples: ``x`` (..., b, *shape), ``y`` (..., b) and ``weight`` (..., b).
        learn : Learner
            Gradient steps and predictions of the model.
        """
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        """Return the values to send and the values that stay at the site.

        Parameters
        ----------
        s : dict of str to TrainState
            Result of the last step.
        """
        return s["w"], {}
