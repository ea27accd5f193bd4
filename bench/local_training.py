"""Benchmarks of local training with unequal sites: executor against a plain loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from bench.loops import Loss, numpy_loop, plain_loop
from bench.timing import Entry, Race
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Job, Loop, row_loss
from fallow.engine.stacked import Stacked
from fallow.models import build_model
from fallow.training import FedAvg

TEN_SITES = (1410, 1306, 1195, 1090, 984, 871, 760, 655, 540, 433)


@dataclass(frozen=True)
class Task:
    """Training task.

    Attributes
    ----------
    rows
        Number of examples of each site.
    classes
        Number of classes; 0 for regression.
    compared_rows
        Number of examples of each site that is trained in float64 for `Race.outputs_equal`,
        in the memory layout ``compared_by``.
    tolerance
        Largest permitted difference of a weight or a statistic.
    reference
        Reference implementation.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    rows: tuple[int, ...]
    training_config: TrainingConfig
    executor: Executor
    compared_rows: tuple[int, ...]
    compared_by: Executor
    tolerance: float
    reference: Reference = "modules"
    runs: int = 5

    def race(self, is_quick: bool) -> Race:
        small = replace(self, rows=self.compared_rows, executor=self.compared_by)
        if is_quick:
            sides = Sides.of(small, torch.float32)
        else:
            sides = Sides.of(self, torch.float32)
            sides.reference()  # the first run warms caches and is not timed
            sides.ours()
        exact = Sides.of(small, torch.float64)
        return Race(
            sides.reference,
            sides.ours,
            partial(exact.differ_by_at_most, self.tolerance),
            self.runs,
        )


Executor = Literal["stacked", "loop", "channels_last"]
Reference = Literal["modules", "numpy"]


@dataclass(frozen=True)
class Sides:
    """Both implementations on the same batches."""

    model: nn.Module
    layout: Layout
    training_config: TrainingConfig
    jobs: list[Job]
    executor: Loop | Stacked
    loss: Loss
    rival: Reference

    @staticmethod
    def of(task: Task, dtype: torch.dtype) -> Sides:
        model = build_model(
            task.model, task.shape, task.classes or 1, stream(0, "init")
        ).to(dtype)
        layout = Layout.of(model)
        start = layout.flatten(model)
        jobs = [_job(task, at, n, start) for at, n in enumerate(task.rows)]
        losses = row_loss("regression")
        loss: Loss = _mean_squared_error
        if task.classes:
            losses = row_loss("classification")
            loss = nn.functional.cross_entropy
        executor: Loop | Stacked = Stacked(model, layout, losses)
        if task.executor != "stacked":
            executor = Loop(model, layout, losses, task.executor == "channels_last")
        return Sides(
            model, layout, task.training_config, jobs, executor, loss, task.reference
        )

    def reference(self) -> list[State]:
        if self.rival == "numpy":
            start = self.layout.flatten(self.model)
            trained = numpy_loop(start["w"].numpy(), self.training_config, self.jobs)
            return [{**start, "w": torch.from_numpy(w)} for w in trained]
        modules = plain_loop(self.model, self.training_config, self.jobs, self.loss)
        return [self.layout.flatten(module) for module in modules]

    def ours(self) -> list[State]:
        fitted = self.executor.fit(
            FedAvg(self.training_config), self.training_config, 0, self.jobs
        )
        return [site.sent for site in fitted]

    def differ_by_at_most(self, tolerance: float) -> bool:
        """Check that no weight or statistic differs by more than a tolerance."""
        for a, b in zip(self.reference(), self.ours(), strict=True):
            for name in a:
                if not torch.allclose(a[name], b[name], rtol=0, atol=tolerance):
                    return False
        return True


def _job(task: Task, site: int, n: int, start: State) -> Job:
    dtype = start["w"].dtype
    draw = stream(0, "rows", site)
    x = torch.randn(n, *task.shape, generator=draw).to(dtype)
    noise = torch.randn(n, generator=draw).to(dtype)
    if task.classes:
        y = torch.randint(0, task.classes, (n,), generator=draw)
    else:
        y = x.flatten(1)[:, :5].sum(1) + 0.1 * noise
    return Job(
        f"site-{site}", x, y, torch.ones(n, dtype=dtype), start, partial(_stream, site)
    )


def _stream(site: int, *name: str | int) -> torch.Generator:
    return stream(0, *name, site)


def _mean_squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(outputs.squeeze(1), y)


ADAM = "nn.Module, DataLoader and Adam per site, batch 64"
SGD = "nn.Module, DataLoader and SGD with momentum per site, batch {}"
NUMPY = "a loop of 15 lines in NumPy, site after site, batch 64"
IMAGE_SITES = tuple(n // 6 for n in TEN_SITES)


def linear(features: int, learning_rate: float) -> Task:
    return Task(
        "linear",
        (features,),
        0,
        TEN_SITES,
        TrainingConfig((TrainingStage(3),), 64, Optimizer("adam", learning_rate)),
        "stacked",
        compared_rows=(400, 210, 64, 5, 0),
        compared_by="stacked",
        tolerance=1e-10,
    )


LINEAR_27 = linear(27, 0.01)  # as many features as the KEGG table
LINEAR_379 = linear(379, 0.001)  # as many as the CT slices
LENET = Task(
    "lenet",
    (3, 32, 32),
    10,
    IMAGE_SITES,
    TrainingConfig((TrainingStage(2),), 16, Optimizer("sgd", 0.01, momentum=0.9)),
    "channels_last",
    compared_rows=(150, 41, 16, 3),
    compared_by="channels_last",
    tolerance=1e-10,
    runs=3,
)
# Batch norm amplifies rounding: in float32, weights of two memory layouts differ by 0.1 after
# twenty steps. Outputs are compared in float64, in the plain layout, over a few steps.
RESNET8 = Task(
    "resnet8",
    (3, 32, 32),
    10,
    IMAGE_SITES,
    TrainingConfig((TrainingStage(1),), 128, Optimizer("sgd", 0.05, momentum=0.9)),
    "channels_last",
    compared_rows=(150, 12),
    compared_by="loop",
    tolerance=1e-8,
    runs=3,
)
LINEAR_OUTPUTS = "weights after up to 21 steps in float64: 1e-10"
ENTRIES = (
    Entry("linear-27", ADAM, 60.0, LINEAR_OUTPUTS, LINEAR_27.race),
    Entry(
        "linear-27-numpy",
        NUMPY,
        1.0,
        LINEAR_OUTPUTS,
        replace(LINEAR_27, reference="numpy").race,
    ),
    Entry("linear-379", ADAM, 6.0, LINEAR_OUTPUTS, LINEAR_379.race),
    Entry(
        "linear-379-numpy",
        NUMPY,
        1.0,
        LINEAR_OUTPUTS,
        replace(LINEAR_379, reference="numpy").race,
    ),
    Entry(
        "lenet",
        SGD.format(16),
        1.1,
        "weights after up to 20 steps in float64: 1e-10",
        LENET.race,
    ),
    Entry(
        "resnet8",
        SGD.format(128),
        1.25,
        "weights and statistics after 2 steps in float64, plain layout: 1e-8",
        RESNET8.race,
    ),
)
