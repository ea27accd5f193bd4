"""Local training jobs to compare executors, and a reference implementation."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn

from fallow.core.local import LocalTraining, TrainState
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.core.types import State
from fallow.engine import Fitted, Job, Loop, row_loss
from fallow.engine.stacked import Stacked
from fallow.models.networks import MLP, Linear

DEVICE = os.environ.get("FALLOW_TEST_DEVICE", "cpu")
"""Where tests of devices train: on a machine with a GPU, FALLOW_TEST_DEVICE=cuda runs them there."""
ALL_CELLS = "FALLOW_TEST_DEVICE" in os.environ
"""Whether tests in single precision run for all methods, strategies and models, not for a few."""
RAGGED = (
    11,
    5,
    0,
    8,
    3,
)  # examples of each site; with batches of 4: none, less than one, a partial one
POOLS = (
    2,
    9,
    4,
    0,
    5,
)  # sizes of their pools: less than an epoch needs, more than it takes, none
CLASSES = 3


@final
class SmallNorm(nn.Module):
    """Convolution, batch norm, dense batch norm, head: both kinds of statistics."""

    def __init__(self, outputs: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 25, 6),
            nn.BatchNorm1d(6),
            nn.ReLU(),
        )
        self.head = nn.Linear(6, outputs)

    def embed(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """Return a float64 model with weights and statistics from a random stream."""
    draw = stream(seed, "weights")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=draw).abs() + 0.1)
        for parameter in model.parameters():
            parameter.mul_(torch.randint(0, 2, parameter.shape, generator=draw) * 2 - 1)
    return model.double()


def linear() -> nn.Module:
    return drawn(Linear((6,), CLASSES))


def mlp() -> nn.Module:
    return drawn(MLP((6,), CLASSES, hidden=(5, 4)))


def regression() -> nn.Module:
    return drawn(Linear((6,), 1))


def no_bias() -> nn.Module:
    return drawn(Linear((6,), 1, bias=False))


REGRESSIONS = (regression, no_bias)


def norm() -> nn.Module:
    return drawn(SmallNorm())


@final
class SmallDropout(nn.Module):
    """Dropout of maps, of maps in another memory layout, and in place of features.

    The layer in the middle is used twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.drop = nn.Dropout(0.3)
        self.again = self.drop
        self.dense = nn.Linear(4 * 25, 6)
        self.last = nn.Sequential(nn.Dropout(0.5, inplace=True), nn.ReLU())
        self.head = nn.Linear(6, CLASSES)

    def embed(self, x: Tensor) -> Tensor:
        maps = self.drop(self.convolution(x).relu())
        turned = self.again(maps.flatten(2).transpose(1, 2))
        features: Tensor = self.last(self.dense(turned.flatten(1)))
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


def dropout() -> nn.Module:
    return drawn(SmallDropout())


SHAPES: dict[Callable[[], nn.Module], tuple[int, ...]] = {
    norm: (2, 5, 5),
    dropout: (2, 5, 5),
}


def jobs(
    make: Callable[[], nn.Module], rows: Sequence[int] = RAGGED, weighted: bool = False
) -> list[Job]:
    """Return one job per number of examples, with the same model and different data."""
    start = Layout.of(make()).flatten(make())
    made = []
    for at, n in enumerate(rows):
        draw = stream(0, "rows", at)
        x = torch.randn(n, *SHAPES.get(make, (6,)), generator=draw, dtype=torch.float64)
        y = torch.randint(0, CLASSES, (n,), generator=draw)
        weight = torch.ones(n, dtype=torch.float64)
        if weighted:
            weight += torch.rand(n, generator=draw, dtype=torch.float64)
        targets = x.flatten(1).sum(1) if make in REGRESSIONS else y
        made.append(Job(f"site-{at}", x, targets, weight, start, streams(at)))
    return made


def some_cells(names: Iterable[str], few: Collection[str]) -> list[ParameterSet]:
    """Return all values on a test device or with ``-m soak``, else ``few``."""
    cells = []
    for name in names:
        marks: list[pytest.MarkDecorator] = []
        if name not in few and not ALL_CELLS:
            marks.append(pytest.mark.soak)
        cells.append(pytest.param(name, marks=marks))
    return cells


def in_single(many_jobs: Sequence[Job]) -> list[Job]:
    """Return the same jobs in single precision."""
    made = []
    for job in many_jobs:
        y = job.y
        if y.is_floating_point():
            y = y.float()
        sent = job.sent
        if sent is not None:
            sent = {name: part.float() for name, part in sent.items()}
        single = replace(
            job,
            x=job.x.float(),
            y=y,
            weight=job.weight.float(),
            start={name: part.float() for name, part in job.start.items()},
            sent=sent,
            counts=job.counts.float(),
            u=job.u.float(),
        )
        made.append(single)
    return made


def with_pools(many_jobs: Sequence[Job], pools: Sequence[int] = POOLS) -> list[Job]:
    """Return the same jobs with pool examples, class counts and a second received model."""
    made = []
    for at, (job, m) in enumerate(zip(many_jobs, pools, strict=True)):
        draw = stream(0, "pool rows", at)
        u = torch.randn(m, *job.x.shape[1:], generator=draw, dtype=torch.float64)
        counts = torch.bincount(job.y, minlength=CLASSES).double()
        sent = {**job.start, "w": job.start["w"].roll(1)}
        made.append(replace(job, u=u, counts=counts, sent=sent))
    return made


def streams(site: int, round_: int = 0) -> Callable[..., torch.Generator]:
    return partial(_stream, site, round_)


def _stream(site: int, round_: int, *name: str | int) -> torch.Generator:
    return stream(0, *name, round_, site)


def loop(make: Callable[[], nn.Module], **options: Any) -> Loop:
    model = make()
    return Loop(model, Layout.of(model), _loss(make), **options)


def stacked(make: Callable[[], nn.Module]) -> Stacked:
    model = make()
    return Stacked(model, Layout.of(model), _loss(make))


def _loss(make: Callable[[], nn.Module]) -> Any:
    return row_loss("regression" if make in REGRESSIONS else "classification")


def over_rounds(
    executor: Any,
    method: LocalTraining,
    training_config: TrainingConfig,
    many_jobs: Sequence[Job],
    rounds: int,
) -> list[list[Fitted]]:
    """Train each site from its own model over rounds, without averaging."""
    history: list[list[Fitted]] = []
    for r in range(rounds):
        last = (
            history[-1] if history else [Fitted(job.start, job.own, 0) for job in many_jobs]
        )
        now = [
            replace(job, start=was.sent, streams=streams(at, r), own=was.own)
            for at, (job, was) in enumerate(zip(many_jobs, last, strict=True))
        ]
        history.append(executor.fit(method, training_config, r, now))
    return history


def by_torch(
    make: Callable[[], nn.Module],
    training_config: TrainingConfig,
    job: Job,
    rounds: int = 1,
    mu: float = 0.0,
) -> State:
    """Train with a plain loop and ``torch.optim`` on the same batches.

    One optimizer serves all rounds if the training configuration's persists, else each
    round has a new one. ``mu`` is FedProx's.
    """
    model = make()
    layout = Layout.of(model)
    layout.load(model, job.start).train()
    optimizer = optimizer_of(training_config.optimizer, model)
    for r in range(rounds):
        if not training_config.optimizer.persist:
            optimizer = optimizer_of(training_config.optimizer, model)
        near = [parameter.detach().clone() for parameter in model.parameters()]
        for epoch in range(training_config.epochs):
            for group in optimizer.param_groups:
                group["lr"] = (
                    training_config.optimizer.learning_rate
                    * training_config.schedule.at(r, epoch, training_config.epochs)
                )
            draw = stream(0, "batches", epoch, r, int(job.site.removeprefix("site-")))
            for rows in torch.split(
                torch.randperm(len(job.y), generator=draw),
                training_config.examples_per_step,
            ):
                optimizer.zero_grad()
                loss = (
                    job.weight[rows] * _losses(make, model(job.x[rows]), job.y[rows])
                ).sum()
                loss = loss / len(rows)
                for parameter, was in zip(model.parameters(), near, strict=True):
                    loss = loss + mu / 2 * (parameter - was).square().sum()
                loss.backward()  # type: ignore[no-untyped-call]  # torch's
                optimizer.step()
    return layout.flatten(model)


def _losses(make: Callable[[], nn.Module], outputs: Tensor, y: Tensor) -> Tensor:
    if make in REGRESSIONS:
        return (outputs[:, 0] - y).square()
    return -outputs.log_softmax(1).gather(1, y[:, None])[:, 0]


def optimizer_of(opt: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    if opt.is_adaptive:
        make = torch.optim.AdamW if opt.name == "adamw" else torch.optim.Adam
        return make(
            model.parameters(),
            opt.learning_rate,
            opt.betas,
            opt.eps,
            weight_decay=opt.weight_decay,
        )
    return torch.optim.SGD(
        model.parameters(), opt.learning_rate, opt.momentum, 0, opt.weight_decay
    )


def assert_agree(ours: State, theirs: State, atol: float = 1e-10) -> None:
    """Compare weights and statistics up to rounding in float64."""
    for name in ("w", "stats"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=atol)


def tensors(slot: TrainState) -> list[Tensor]:
    return [part for part in slot if part.numel()]
