"""ResNet-8 on color images, one site at a time, in the memory layout that the CPU prefers.

Batch norm amplifies rounding: in float32, weights of two memory layouts differ by 0.1 after
twenty steps. Outputs are therefore compared in float64, in the plain layout, over a few
steps.
"""

from __future__ import annotations

from bench.local_training import TEN_SITES, Task
from bench.timing import Entry
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage

CONFIG = TrainingConfig((TrainingStage(1),), 128, Optimizer("sgd", 0.05, momentum=0.9))
TASK = Task(
    "resnet8",
    (3, 32, 32),
    10,
    tuple(n // 6 for n in TEN_SITES),
    CONFIG,
    "channels_last",
    compared_rows=(150, 12),
    compared_by="loop",
    tolerance=1e-8,
)

ENTRY = Entry(
    "resnet8",
    "nn.Module, DataLoader and SGD with momentum per site, batch 128",
    bar=1.25,
    compared="weights and statistics after 2 steps in float64, plain layout: 1e-8",
    prepare=TASK.race,
)
