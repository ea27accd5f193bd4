"""Base classes for a person's own methods, in a notebook, a script or a package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar, dataclass_transform

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.methods import lacking_function
from fallow.core.training_config import TrainingConfig
from fallow.core.types import Answer, State
from fallow.core.view import View
from fallow.strategies.base import Budget, Memo, orders
from fallow.training.base import addend, average


def _freeze(cls: type[Any]) -> None:
    """Make ``cls`` a frozen dataclass whose fields are its annotations.

    The two methods that refuse a change are taken off the class again, because the base class has
    them: so ``@dataclass(frozen=True)`` above a class that has become one already does no harm.
    """
    dataclass(frozen=True)(cls)
    for name in ("__setattr__", "__delattr__"):
        if name in cls.__dict__:
            delattr(cls, name)


def _check_contract(cls: type[Any], declaration: str) -> None:
    """declaration: what the contract of the simplest class lists."""
    contract = getattr(cls, "contract", None)
    name = cls.__name__
    if not isinstance(contract, Contract):
        raise TypeError(
            f"{name} does not declare what it reveals; add contract = fl.Contract("
            f"title={name!r}, {declaration})"
        )
    lacking = lacking_function(cls, contract.verbs)
    if lacking is not None:
        raise TypeError(
            f"the contract of {name} lists {lacking!r}, and {name} has no such function; write "
            f"def {lacking}(self, view, ...), or take it out of the contract"
        )


class _Frozen:
    """Settings do not change once an object is made."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}; make a new object")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


SELECT = "keep={'select': 'number of selected examples'}"


@dataclass_transform(frozen_default=True)
class Strategy(_Frozen):
    """A strategy of your own: which rows each site shall have labeled.

    Write a class with annotated settings, a contract and ``select``; it becomes a frozen dataclass
    by itself (a decorator of your own does no harm).  ``select(view, n)`` runs at each site, sees
    the site as a `View`, and returns `Picks` of exactly ``min(n, view.pool)`` different positions
    in the pool.  What it may read and reveal stands in the contract, and a site runs nothing else.
    The server half, ``strategy``, asks every site for its share of the budget; write your own to ask
    for totals first.  Raises TypeError, when the class is made, for a contract that is missing or
    that lists a function the class does not have.

    >>> import fallow as fl, torch
    >>> class Largest(fl.Strategy):
    ...     power: float = 1.0
    ...     contract = fl.Contract(title="Largest", keep={"select": "number of picks"})
    ...
    ...     def select(self, view, n):
    ...         size = view.rows().flatten(1).abs().sum(1) ** self.power
    ...         return fl.Picks(size.argsort(descending=True)[:n])
    >>> Largest(power=2.0)
    Largest(power=2.0)
    >>> fl.select([[1.0], [-9.0], [3.0]], Largest(), n=2)
    array([1, 2])
    """

    contract: ClassVar[Contract]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        _freeze(cls)
        _check_contract(cls, SELECT)
        if cls.query is Strategy.query and "select" not in cls.contract.keep:
            raise TypeError(
                f"the contract of {cls.__name__} does not list 'select', which is asked by keep; add "
                f"{SELECT} to it"
            )

    def query(self, ask: Ask, budget: Budget, memo: Memo) -> Memo:
        """The server half: every site keeps its own picks, as many as its budget says."""
        ask.keep("select", to=orders(budget))
        return memo


_UPLOAD = {"upload": "totals over sites of rows and of weighted models"}


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Training(_Frozen):
    """A training method of your own: as it stands, federated averaging.

    Change the local step, the round, or what a site sends.  ``step`` is pure: tensors in, tensors
    out; the engine loops over batches, sites and rounds.  ``training_config`` comes from the recipe
    (``fallow.run(..., training_config=...)``).  The class becomes a frozen dataclass by itself.

    >>> import fallow as fl
    >>> class Near(fl.Training):
    ...     mu: float = 0.1
    ...     contract = fl.Contract(
    ...         title="Near", sum={"upload": "totals of weighted models"}
    ...     )
    ...
    ...     def step(self, s, w_t, batch, learn):
    ...         near = lambda w: self.mu / 2 * (w - w_t.w).square().sum(-1)
    ...         return {"w": learn.descend(s["w"], batch, near)}
    >>> Near(mu=0.5).mu
    0.5
    """

    training_config: TrainingConfig = TrainingConfig()

    contract: ClassVar[Contract] = Contract(title="Federated averaging", sum=_UPLOAD)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        _freeze(cls)
        _check_contract(cls, f"sum={_UPLOAD!r}")

    def round(self, state: State, ask: Ask) -> State:
        """One round: train at the sites, then average by their numbers of labels."""
        ask.fit(self.training_config, "local", None, **state)
        return average(ask.sum("upload"), state)

    def upload(self, view: View) -> Answer:
        """What a site adds to the total: n_i w_i and n_i."""
        return addend(view, "local", "average")

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        """The model that a site uses: the common one."""
        return state

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        """What local training begins with."""
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        """One local step on one batch; w_t is the model that was sent."""
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        """What is sent, and what stays at the site."""
        return s["w"], {}
