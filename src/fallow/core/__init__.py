"""The door, its words, named random streams and flat models: no I/O, no algorithms.

Names are imported when they are first used: the command line needs words of this package, and not
PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fallow.core.ask import Ask, Carrier, Journal
    from fallow.core.banks import Bank, Layout
    from fallow.core.complete import each_of_all, sum_of_all
    from fallow.core.contract import Contract
    from fallow.core.disclosure import Disclosure
    from fallow.core.messages import Delivered, Request, Step
    from fallow.core.methods import Method, Methods, Query, Training
    from fallow.core.streams import seed_of, stream
    from fallow.core.training_config import (
        Optimizer,
        Schedule,
        TrainingConfig,
        TrainingStage,
    )
    from fallow.core.types import Answer, SiteId, State
    from fallow.core.view import Picks, Release, View

__all__ = [
    "Answer",
    "Ask",
    "Bank",
    "Carrier",
    "Contract",
    "Delivered",
    "Disclosure",
    "Journal",
    "Layout",
    "Method",
    "Methods",
    "Optimizer",
    "Picks",
    "Query",
    "Release",
    "Request",
    "Schedule",
    "SiteId",
    "State",
    "Step",
    "Training",
    "TrainingConfig",
    "TrainingStage",
    "View",
    "each_of_all",
    "seed_of",
    "stream",
    "sum_of_all",
]

MODULES = {
    "ask": ("Ask", "Carrier", "Journal"),
    "banks": ("Bank", "Layout"),
    "complete": ("each_of_all", "sum_of_all"),
    "contract": ("Contract",),
    "disclosure": ("Disclosure",),
    "messages": ("Delivered", "Request", "Step"),
    "methods": ("Method", "Methods", "Query", "Training"),
    "streams": ("seed_of", "stream"),
    "training_config": ("Optimizer", "Schedule", "TrainingConfig", "TrainingStage"),
    "types": ("Answer", "SiteId", "State"),
    "view": ("Picks", "Release", "View"),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f"fallow.core.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
