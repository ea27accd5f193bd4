"""Table of executors: implementations of local training, selected by name.

An executor is a class in its own file with an entry here; `Executor` is its interface.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from torch import nn

from fallow.core.build import find
from fallow.core.exports import import_when_used
from fallow.core.local import LocalTraining, RowLoss
from fallow.core.model_vectors import Layout
from fallow.core.names import BUILT_IN, NamePolicy, own_class
from fallow.core.training_config import TrainingConfig
from fallow.core.wording import join_words
from fallow.engine.banked import can_stack
from fallow.engine.batches import Fitted, Job
from fallow.engine.device import Device, Tell, ignore_message
from fallow.engine.loop import Loop
from fallow.engine.placement import Placement

if TYPE_CHECKING:
    from fallow.engine.stacked import Stacked as Stacked

__all__ = [
    "Device",
    "Loop",
    "Stacked",
]
if not TYPE_CHECKING:  # most sites stack no models
    __getattr__, _ = import_when_used(__name__, {"Stacked": "fallow.engine.stacked"})

AUTO = "auto"
"""Name that selects `choose_executor`."""


class Executor(Protocol):
    """Trains jobs of several sites, with the results of `Loop` up to rounding."""

    models: ClassVar[str]
    """Description of the models that it can train."""

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Self:
        """Return an executor for a model. ``channels_last``: memory layout of images, if
        applicable.
        """
        ...

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        """Return whether it has the results of `Loop` for the model."""
        ...

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        """Train every job; the order of jobs does not matter."""
        ...


def find_executor(name: str, policy: NamePolicy = BUILT_IN) -> type[Executor]:
    """Return the executor ``name``: one of the table, or ``module:Class`` if ``policy``
    allows it.

    Raises ValueError for any other name.

    >>> find_executor("stacked").__name__
    'Stacked'
    """
    executor: type[Executor] = own_class(name) or find(sys.modules[__name__], name, policy)
    return executor


def check_executor(name: str) -> None:
    """Raise ValueError for an unknown executor. Nothing is imported for ``module:Class``.

    >>> check_executor("lop")
    Traceback (most recent call last):
    ValueError: executor 'lop' is unknown; use 'auto', 'device', 'loop' or 'stacked'
    """
    known = [AUTO, *(executor.lower() for executor in __all__)]
    if name not in known and ":" not in name:
        quoted = [repr(word) for word in known]
        raise ValueError(
            f"executor {name!r} is unknown; use {join_words(quoted, last='or')}"
        )


def choose_executor(model: nn.Module, *, is_built_in: bool) -> str:
    """Return the executor of ``auto``: built-in linear and dense models are stacked, others
    use `Loop`.

    A custom model may mix examples, which cannot be detected, so it is stacked only on
    request.
    """
    if is_built_in and can_stack(model):
        return "stacked"
    return "loop"


def build_executor(
    name: str,
    model: nn.Module,
    layout: Layout,
    loss: RowLoss,
    *,
    channels_last: bool = False,
    placement: Placement | None = None,
    tell: Tell = ignore_message,
    policy: NamePolicy = BUILT_IN,
) -> Executor:
    """Return the executor ``name`` for a model.

    ``placement``: the device of `Device`, and ``tell``: its observer if memory is
    insufficient; the others use the device of PyTorch.
    """
    executor = find_executor(name, policy)
    if executor is Device:
        where = placement or Placement()
        return Device(model, layout, loss, channels_last, where, tell)
    return executor.build(model, layout, loss, channels_last=channels_last)
