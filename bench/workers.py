"""One round of a hundred LeNet sites: two processes of one thread against one.

Both sides are timed by the clock on the wall, so this race means something on a machine with two
idle cores only.  The processes have started and have their rows, as in all rounds but the first;
models go there and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from bench.local_training import Sides, Task
from bench.timing import WALL, Entry, Race
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine import Fitted, Job
from fallow.engine.workers import Workers
from fallow.training import FedAvg

CONFIG = TrainingConfig((TrainingStage(1),), 32, Optimizer("sgd", 0.01, momentum=0.9))
ROWS = tuple(100 + 37 * site % 400 for site in range(100))  # 30,000 in all
TASK = Task(
    "lenet",
    (3, 32, 32),
    10,
    ROWS,
    CONFIG,
    "channels_last",
    compared_rows=(70, 64, 33, 9, 1),
    compared_by="channels_last",
    tolerance=0.0,
)


@dataclass
class Round:
    """The same jobs for both executors, and what they made of them."""

    sides: Sides
    workers: Workers
    made: dict[str, list[Fitted]] = field(default_factory=dict)

    @staticmethod
    def of(task: Task, dtype: torch.dtype) -> Round:
        sides = Sides.of(task, dtype)
        workers = Workers(
            sides.model,
            sides.layout,
            sides.executor.loss,
            channels_last=True,
            processes=2,
        )
        return Round(sides, workers)

    def alone(self) -> None:
        self.made["alone"] = self.sides.executor.fit(FedAvg(CONFIG), CONFIG, 0, self.jobs())

    def together(self) -> None:
        self.made["together"] = self.workers.fit(FedAvg(CONFIG), CONFIG, 0, self.jobs())

    def jobs(self) -> list[Job]:
        """As sites make them for every round: with rows that have to be looked at to be known."""
        return [replace(job, x=job.x.clone()) for job in self.sides.jobs]

    def are_equal(self) -> bool:
        for a, b in zip(self.made["alone"], self.made["together"], strict=True):
            for name in a.sent:
                if not torch.equal(a.sent[name], b.sent[name]):
                    return False
        return True


def _prepare(is_quick: bool) -> Race:
    few = replace(TASK, rows=TASK.compared_rows)
    exact = Round.of(few, torch.float64)
    if is_quick:
        timed = Round.of(few, torch.float32)
    else:
        timed = Round.of(TASK, torch.float32)
        timed.together()  # starts the processes

    def are_equal() -> bool:
        exact.alone()
        exact.together()
        return timed.are_equal() and exact.are_equal()

    return Race(timed.alone, timed.together, are_equal)


ENTRY = Entry(
    "workers",
    "one process; a hundred sites, 30,000 rows, batch 32",
    bar=1.8,
    compared="models, bit for bit, in float32 and over few sites in float64",
    prepare=_prepare,
    clock=WALL,
)
