"""A linear model of 27 features (the KEGG table) at ten sites at once."""

from __future__ import annotations

from bench.local_training import TEN_SITES, Task
from bench.timing import Entry
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage

CONFIG = TrainingConfig((TrainingStage(3),), 64, Optimizer("adam", 0.01))
TASK = Task(
    "linear",
    (27,),
    0,
    TEN_SITES,
    CONFIG,
    "stacked",
    compared_rows=(400, 210, 64, 5, 0),
    compared_by="stacked",
    tolerance=1e-10,
)

ENTRY = Entry(
    "linear-27",
    "nn.Module, DataLoader and Adam per site, batch 64",
    bar=60.0,
    compared="weights after up to 21 steps in float64: 1e-10",
    prepare=TASK.race,
)
