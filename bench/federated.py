"""A training phase of FedAvg with its event log, against loops without one.

100 sites with 100 examples of 28 x 28 train for 10 rounds: one epoch, batch size 32, SGD with
momentum. Our side is a complete phase of `ExperimentRun`: disclosure declarations, checked
replies, the event log in a file, and scores in the last round. Both loops only train and
average, on the same batches, one site after another, and without scores.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import fallow as fl
from bench.timing import Entry, Race
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

Array = npt.NDArray[Any]
RATE = 0.05
MOMENTUM = 0.9
BATCH = 32
EXPERIMENT = ExperimentConfig(
    name="federated",
    partition=Spec("natural"),
    sites=0,
    training=Spec("fedavg"),
    training_config=TrainingConfig(
        (TrainingStage(1),), BATCH, Optimizer("sgd", RATE, momentum=MOMENTUM)
    ),
    initial=100,
    budget=1,
    cycles=0,
    bounds=(),
    score_rounds=1,
)
Loop = Callable[["Task"], Tensor]


@dataclass(frozen=True)
class Task:
    """A training phase: sites with examples (n, c, h, w) each, and initial weights."""

    config: ExperimentConfig
    folder: Path
    x: list[Tensor]
    y: list[Tensor]
    names: list[str]
    model: nn.Module
    start: Tensor

    @property
    def rounds(self) -> int:
        return self.config.rounds

    def batches(self, site: int, round_: int) -> list[Tensor]:
        """Return the positions of each step, drawn from the random stream of the site."""
        return draw_batches(self.names[site], len(self.y[site]), round_)


def draw_batches(site: str, n: int, round_: int) -> list[Tensor]:
    """Return the positions of each step of a site with n examples."""
    draw = stream(0, "batches", "local", 0, round_, 0, site)
    return list(torch.split(torch.randperm(n, generator=draw), BATCH))


@cache
def build_dataset(sites: int, rows: int, side: int, channels: int) -> fl.Dataset:
    """Return sites with examples of a linear rule, and 1,000 test examples."""
    draw = stream(0, "bench rows")
    n = sites * rows
    x = torch.randn(n + 1000, channels, side, side, generator=draw)
    rule = torch.randn(channels * side * side, 10, generator=draw)
    y = (x.flatten(1) @ rule).argmax(1)
    return fl.from_arrays(
        x[:n].numpy(),
        y[:n].numpy(),
        sites=np.arange(n) % sites,
        x_test=x[n:].numpy(),
        y_test=y[n:].numpy(),
        name="federated",
        channels="first",
    )


def open_run(config: ExperimentConfig, dataset: fl.Dataset, folder: Path) -> ExperimentRun:
    """Return a run with its event log in a file, after the initial labels."""
    folder.mkdir(parents=True)
    event_log = EventLog(folder / "event_log.sqlite")
    run = ExperimentRun(environment_of(config, 0, dataset, event_log), event_log)
    run.initial()
    return run


def open_task(config: ExperimentConfig, dataset: fl.Dataset, folder: Path) -> Task:
    """Return the inputs of the loops, in the order in which sites have them."""
    event_log = EventLog()
    simulation = environment_of(config, 0, dataset, event_log)
    ExperimentRun(simulation, event_log).initial()
    names = sorted(simulation.members)
    members = [simulation.members[name] for name in names]
    start = simulation.fresh(stream(0, "init", 0))
    model = copy.deepcopy(members[0].parts.model)
    members[0].parts.layout.load(model, start)
    task = Task(
        config=config,
        folder=folder,
        x=[site.x[site.labeled] for site in members],
        y=[site.labels for site in members],
        names=names,
        model=model,
        start=start["w"],
    )
    event_log.close()
    return task


# -- loops ------------------------------------------------------------------------------


def dense_numpy_loop(task: Task) -> Tensor:
    """Return the average model of a dense network with up to one hidden layer."""
    shapes = [tuple(parameter.shape) for parameter in task.model.parameters()]
    sizes = [int(np.prod(shape)) for shape in shapes]
    rows = [x.flatten(1).numpy() for x in task.x]
    labels = [y.numpy() for y in task.y]

    def split(vector: Array) -> list[Array]:
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    w = task.start.numpy().copy()
    local, momentum, gradient = (np.empty_like(w) for _ in range(3))
    parts = split(local)
    slopes = split(gradient)
    for round_ in range(task.rounds):
        total = np.zeros(len(w))
        for site, (x, y) in enumerate(zip(rows, labels, strict=True)):
            local[:] = w
            momentum[:] = 0
            for at in task.batches(site, round_):
                picked = at.numpy()
                _write_gradient(parts, x[picked], y[picked], slopes)
                momentum *= MOMENTUM
                momentum += gradient
                np.multiply(momentum, RATE, out=gradient)
                np.subtract(local, gradient, out=local)
            total += local
        w = (total / len(rows)).astype(w.dtype)
    return torch.from_numpy(w)


def _write_gradient(parts: list[Array], x: Array, y: Array, slopes: list[Array]) -> None:
    """Write the gradient of the mean cross-entropy of a batch."""
    inputs = x
    if len(parts) == 4:
        inputs = x @ parts[0].T
        inputs += parts[1]
        np.maximum(inputs, 0, out=inputs)
    z = inputs @ parts[-2].T
    z += parts[-1]
    z -= z.max(1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(1, keepdims=True)
    z[np.arange(len(y)), y] -= 1
    z /= len(y)
    np.matmul(z.T, inputs, out=slopes[-2])
    z.sum(0, out=slopes[-1])
    if len(parts) == 4:
        below = z @ parts[2]
        below *= inputs > 0
        np.matmul(below.T, x, out=slopes[0])
        below.sum(0, out=slopes[1])


def torch_loop(task: Task) -> Tensor:
    """Return the average model of a plain loop over tensors with ``torch.optim.SGD``."""
    model = task.model.train()
    w = task.start
    for round_ in range(task.rounds):
        total = torch.zeros(len(w), dtype=torch.float64)
        for site, (x, y) in enumerate(zip(task.x, task.y, strict=True)):
            total += train_by_autograd(model, w, x, y, task.batches(site, round_))
        w = (total / len(task.x)).to(w.dtype)
    return w


def train_by_autograd(
    model: nn.Module, w: Tensor, x: Tensor, y: Tensor, batches: list[Tensor]
) -> Tensor:
    """Return the model of a site after a step for each batch."""
    parameters = list(model.parameters())
    nn.utils.vector_to_parameters(w.clone(), parameters)
    optimizer = torch.optim.SGD(parameters, RATE, MOMENTUM)
    for at in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return nn.utils.parameters_to_vector(parameters).detach()


# -- benchmarks -------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """A phase and its reference.  ``rounds`` and ``sites``: those that are timed."""

    model: str
    reference: Loop
    sites: int = 100
    rounds: int = 10
    channels_last: bool = False

    def race(self, is_quick: bool) -> Race:
        folder = tempfile.TemporaryDirectory()
        exact = partial(self.outputs_equal, Path(folder.name))
        if is_quick:
            small = self.open(Path(folder.name) / "quick", 3, 2, "float64")
            return Race(
                partial(self.reference, small),
                partial(_train, [_open(small, 0)]),
                exact,
                close=folder.cleanup,
            )
        task = self.open(Path(folder.name) / "timed", self.sites, self.rounds, "float32")
        waiting = [_open(task, number) for number in range(6)]
        loop = partial(self.reference, task)
        loop()  # the first run warms caches and is not timed
        _train(waiting)
        return Race(loop, partial(_train, waiting), exact, close=folder.cleanup)

    def open(
        self, folder: Path, sites: int, rounds: int, dtype: Literal["float32", "float64"]
    ) -> Task:
        config = replace(
            EXPERIMENT,
            model=Spec(self.model),
            rounds=rounds,
            dtype=dtype,
            channels_last=self.channels_last,
        )
        return open_task(config, build_dataset(sites, 100, 28, 1), folder)

    def outputs_equal(self, folder: Path) -> bool:
        """Compare weights with the reference, and the accuracy of each round with `Loop`."""
        task = self.open(folder / "exact", 10, 3, "float64")
        config = replace(task.config, score_rounds=task.rounds)
        ours = _train([_open(replace(task, config=config), 0)])
        by_loop = replace(config, executor="loop")
        loop = _train([_open(replace(task, config=by_loop), 1)])
        accuracies = [[row["accuracy"] for row in side["rows"]] for side in (ours, loop)]
        w = self.reference(task)
        return accuracies[0] == accuracies[1] and torch.allclose(
            ours["state"]["w"], w, rtol=0, atol=1e-10
        )


def _open(task: Task, number: int) -> ExperimentRun:
    sites = len(task.x)
    dataset = build_dataset(sites, 100, *_shape(task))
    return open_run(task.config, dataset, task.folder / f"run-{number}")


def _shape(task: Task) -> tuple[int, int]:
    channels, side, _ = task.x[0].shape[1:]
    return side, channels


def _train(waiting: list[ExperimentRun]) -> dict[str, Any]:
    """Run the phase of the next waiting run and return its result."""
    run = waiting.pop()
    run.first_phase()
    done = run.event_log.load_step("0/train")
    run.event_log.close()
    return cast(dict[str, Any], done)


NUMPY = "NumPy by hand, in place, one site after another, no log"
TORCH = "a plain PyTorch loop over tensors, no log"
COMPARED = "weights in float64: 1e-10; accuracy per round: equal to Loop"
ENTRIES = (
    Entry("fedavg-mlp-numpy", NUMPY, 0.5, COMPARED, Phase("mlp", dense_numpy_loop).race),
    Entry("fedavg-mlp", TORCH, 2.3, COMPARED, Phase("mlp", torch_loop).race),
    Entry(
        "fedavg-linear-numpy", NUMPY, 0.5, COMPARED, Phase("linear", dense_numpy_loop).race
    ),
    Entry("fedavg-linear", TORCH, 2.3, COMPARED, Phase("linear", torch_loop).race),
    Entry(
        "fedavg-cnn",
        f"{TORCH}; ours with channels_last=true",
        0.91,
        COMPARED,
        Phase("digits-cnn", torch_loop, sites=20, rounds=5, channels_last=True).race,
    ),
)
