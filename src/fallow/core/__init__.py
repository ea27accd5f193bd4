"""The door, its words, named random streams and flat models: no I/O, no algorithms."""

from fallow.core.ask import Ask, Carrier, Journal
from fallow.core.banks import Bank, Layout
from fallow.core.build import build
from fallow.core.complete import each_of_all, sum_of_all
from fallow.core.contract import Contract
from fallow.core.disclosure import Disclosure
from fallow.core.messages import Delivered, Request, Step
from fallow.core.methods import Method, Methods, Query, Training
from fallow.core.streams import seed_of, stream
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
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
    "build",
    "each_of_all",
    "seed_of",
    "stream",
    "sum_of_all",
]
