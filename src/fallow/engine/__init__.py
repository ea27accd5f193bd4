"""Local training at sites, described by a `TrainingConfig`."""

from fallow.engine.banked import can_stack
from fallow.engine.batches import Fitted, Job
from fallow.engine.learner import row_loss
from fallow.engine.loop import Loop, look, predict
from fallow.engine.stacked import Stacked

__all__ = [
    "Fitted",
    "Job",
    "Loop",
    "Stacked",
    "can_stack",
    "look",
    "predict",
    "row_loss",
]
