"""Reference implementation of local training: a plain PyTorch loop over the sites."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.engine import Job

Loss = Callable[[Tensor, Tensor], Tensor]


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
