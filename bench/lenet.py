"""LeNet on color images, one site at a time, in the memory layout that the CPU prefers."""

from __future__ import annotations

from bench.local_training import TEN_SITES, Task
from bench.timing import Entry
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage

CONFIG = TrainingConfig((TrainingStage(2),), 16, Optimizer("sgd", 0.01, momentum=0.9))
TASK = Task(
    "lenet",
    (3, 32, 32),
    10,
    tuple(n // 6 for n in TEN_SITES),
    CONFIG,
    "channels_last",
    compared_rows=(150, 41, 16, 3),
    compared_by="channels_last",
    tolerance=1e-10,
)

ENTRY = Entry(
    "lenet",
    "nn.Module, DataLoader and SGD with momentum per site, batch 16",
    bar=1.1,
    compared="weights after up to 20 steps in float64: 1e-10",
    prepare=TASK.race,
)
