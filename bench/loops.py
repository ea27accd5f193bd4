"""Reference implementations of local training: loops over the sites in PyTorch and NumPy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.engine import Job

Loss = Callable[[Tensor, Tensor], Tensor]
Weights = npt.NDArray[Any]


class Shuffled(Sampler[int]):
    """The order of examples in the engine, drawn from the same random stream."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.job.y)

    def __iter__(self) -> Iterator[int]:
        draw = self.job.streams("batches", self.epoch)
        self.epoch += 1
        return iter(torch.randperm(len(self), generator=draw).tolist())


def plain_loop(
    model: nn.Module, training_config: TrainingConfig, jobs: list[Job], loss: Loss
) -> list[nn.Module]:
    """Train each site's own module with a DataLoader and optimizer; return the modules."""
    trained = []
    for job in jobs:
        local = copy.deepcopy(model).train()
        loader = DataLoader(
            TensorDataset(job.x, job.y),
            training_config.examples_per_step,
            sampler=Shuffled(job),
        )
        optimizer = _optimizer(training_config.optimizer, local)
        for _ in range(training_config.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss(local(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        trained.append(local)
    return trained


def _optimizer(opt: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    if opt.name == "adam":
        return torch.optim.Adam(model.parameters(), opt.learning_rate, opt.betas, opt.eps)
    return torch.optim.SGD(model.parameters(), opt.learning_rate, opt.momentum)


def numpy_loop(
    start: Weights, training_config: TrainingConfig, jobs: list[Job]
) -> list[Weights]:
    """Return each site's weights after Adam on the squared error.

    start: (d + 1,), bias last.
    """
    b1, b2 = training_config.optimizer.betas
    trained = []
    for job in jobs:
        ones = np.ones((len(job.y), 1), job.x.numpy().dtype)
        x = np.hstack([job.x.numpy(), ones])
        y = job.y.numpy()
        w = start.copy()
        m1 = np.zeros_like(w)
        m2 = np.zeros_like(w)
        t = 0
        for epoch in range(training_config.epochs):
            draw = job.streams("batches", epoch)
            order = torch.randperm(len(y), generator=draw).numpy()
            for first in range(0, len(y), training_config.examples_per_step):
                at = order[first : first + training_config.examples_per_step]
                rows = x[at]
                g = (rows @ w - y[at]) @ rows * (2 / len(at))
                t += 1
                m1 += (1 - b1) * (g - m1)
                m2 += (1 - b2) * (g * g - m2)
                root = np.sqrt(m2 / (1 - b2**t)) + training_config.optimizer.eps
                w -= training_config.optimizer.learning_rate / (1 - b1**t) * m1 / root
        trained.append(w)
    return trained
