"""Local training at sites, described by a `TrainingConfig`."""

from fallow.engine.banked import can_stack
from fallow.engine.batches import Fitted, Job
from fallow.engine.learner import row_loss
from fallow.engine.loop import Loop, look, predict

__all__ = [
    "Fitted",
    "Job",
    "Loop",
    "can_stack",
    "look",
    "predict",
    "row_loss",
]
