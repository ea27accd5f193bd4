"""`python -m bench.device`: local training on a device against plain PyTorch.

Ten sites train ResNet-8 for an epoch in three ways, in turn, in one process: a plain
PyTorch loop, ``torch.func.vmap`` over the sites, and Fallow's executor for devices. All use
the same batches, and their final weights are compared. Shares of the peak are relative to a
large matrix product of the same data type, timed in the same run.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap
from torch.utils.flop_counter import FlopCounterMode

from bench.full_protocol import choose_device
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.engine import Job, row_loss
from fallow.engine.device import Device
from fallow.engine.placement import PRECISIONS, Placement, check_machine
from fallow.models.networks import ResNet8
from fallow.training import FedAvg

SHAPE = (3, 32, 32)
CLASSES = 10
MOMENTUM = 0.9
RUNS = 5
SECONDS = 1e-9  # if the clock has not advanced
APART = {"float32": 2e-2, "tf32": 0.1, "bf16": 0.3}
"""How far weights may be apart at the end, as a share of how far they went: batch norm multiplies
what rounding made, step after step."""

Weights = list[Tensor]
"""Weights of each site, of shape (d,) on the CPU."""


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    implementation: str
    device: str
    precision: str
    images_per_second: float
    share_of_peak: float
    ratio: float  # relative to the plain loop
    apart: float  # difference of weights relative to the update of the plain loop
    is_same: bool


@dataclass(frozen=True)
class Task:
    """Training task: sites with equal numbers of examples, as vmap requires."""

    placement: Placement
    sites: int
    rows: int
    batch: int

    @property
    def training_config(self) -> TrainingConfig:
        optimizer = Optimizer("sgd", 0.01, momentum=MOMENTUM)
        return TrainingConfig((TrainingStage(1),), self.batch, optimizer)

    @cached_property
    def model(self) -> nn.Module:
        model = ResNet8(SHAPE, CLASSES)
        model.reset(stream(0, "init"))
        return model

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.model)

    @cached_property
    def jobs(self) -> list[Job]:
        start = self.layout.flatten(self.model)
        made = []
        for site in range(self.sites):
            draw = stream(0, "rows", site)
            x = torch.randn((self.rows, *SHAPE), generator=draw)
            y = torch.randint(0, CLASSES, (self.rows,), generator=draw)
            weight = torch.ones(self.rows)
            made.append(Job(f"site-{site}", x, y, weight, start, partial(_stream, site)))
        return made

    @cached_property
    def there(self) -> list[tuple[Tensor, Tensor]]:
        """Return examples and classes of each site on the device, with channels last."""
        device = self.placement.device
        jobs = []
        for job in self.jobs:
            x = job.x.to(device).contiguous(memory_format=torch.channels_last)
            jobs.append((x, job.y.to(device)))
        return jobs

    def batches(self, site: int) -> Sequence[Tensor]:
        """Return the batch of each step, on the device."""
        rows = torch.randperm(self.rows, generator=self.jobs[site].streams("batches", 0))
        return torch.split(rows.to(self.placement.device), self.batch)


def _stream(site: int, *name: str | int) -> torch.Generator:
    return stream(0, *name, site)


# -- implementations -------------------------------------------------------------------


def plain_loop(task: Task) -> Weights:
    """Train each site in turn with its own module and optimizer."""
    device = task.placement.device
    jobs = []
    for site, (x, y) in enumerate(task.there):
        model = copy.deepcopy(task.model).to(device).train()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's
        lr = task.training_config.optimizer.learning_rate
        opt = torch.optim.SGD(model.parameters(), lr, momentum=MOMENTUM)
        for rows in task.batches(site):
            opt.zero_grad()
            with _products(task.placement):
                outputs = model(x[rows])
            loss = nn.functional.cross_entropy(outputs.float(), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            opt.step()
        jobs.append(task.layout.flatten(model)["w"].cpu())
    return jobs


def by_vmap(task: Task) -> Weights:
    """Train all sites at once with ``torch.func.vmap``.

    Batch norm keeps no running statistics, which training does not read.
    """
    device = task.placement.device
    model = copy.deepcopy(task.model).to(device).train()
    replace_all_batch_norm_modules_(model)
    names = [name for name, _ in task.layout.params]
    first = dict(model.named_parameters())
    w: State = {}  # of all sites, (sites, ...) each
    moved: State = {}
    for name in names:
        w[name] = torch.stack([first[name].detach()] * task.sites)
        moved[name] = torch.zeros_like(w[name])
    x = torch.stack([rows for rows, _ in task.there])
    y = torch.stack([classes for _, classes in task.there])
    rough = task.placement.autocast

    def loss(params: State, x: Tensor, y: Tensor) -> Tensor:
        if rough is not None:
            # explicit casts, since vmap has no gradient of a convolution under autocast
            params = {name: part.to(rough) for name, part in params.items()}
            x = x.to(rough)
        outputs = functional_call(model, params, (x,))
        return nn.functional.cross_entropy(outputs.float(), y)

    slopes = vmap(grad(loss))
    sites = torch.arange(task.sites, device=device).unsqueeze(1)
    orders = [task.batches(site) for site in range(task.sites)]
    for step in range(len(orders[0])):
        rows = torch.stack([order[step] for order in orders])  # (sites, b)
        g = slopes(w, x[sites, rows], y[sites, rows])
        for name in names:
            moved[name] = MOMENTUM * moved[name] + g[name]
            w[name] = w[name] - task.training_config.optimizer.learning_rate * moved[name]
    flat = torch.cat([w[name].flatten(1) for name in names], 1).cpu()
    return list(flat)


@dataclass(frozen=True)
class Ours:
    """Fallow's executor, created once as in a run."""

    task: Task

    @cached_property
    def executor(self) -> Device:
        task = self.task
        loss = row_loss("classification")
        return Device(
            task.model,
            task.layout,
            loss,
            channels_last=True,
            placement=task.placement,
            tell=print,
        )

    def __call__(self) -> Weights:
        training_config = self.task.training_config
        done = self.executor.fit(
            FedAvg(training_config), training_config, 0, self.task.jobs
        )
        return [one.sent["w"] for one in done]


def _products(placement: Placement) -> torch.autocast:
    dtype = placement.autocast
    return torch.autocast(
        placement.device.type, dtype or torch.bfloat16, enabled=dtype is not None
    )


@dataclass
class Implementation:
    """Implementation with its times and final weights."""

    name: str
    train: Callable[[], Weights]
    seconds: list[float] = field(default_factory=list)
    weights: Weights = field(default_factory=list)

    @property
    def took(self) -> float:
        return max(median(self.seconds), SECONDS)


def list_implementations(task: Task) -> list[Implementation]:
    """Return the implementations; the first, the plain loop, is the reference."""
    return [
        Implementation("plain PyTorch loop", partial(plain_loop, task)),
        Implementation("torch.func.vmap", partial(by_vmap, task)),
        Implementation("Fallow", Ours(task)),
    ]


# -- the table -------------------------------------------------------------------------


def race(task: Task, runs: int) -> list[Row]:
    """Time the implementations in turn after two warm-up runs of each."""
    placement = task.placement
    implementations = list_implementations(task)
    with placement.computing():
        for implementation in implementations:
            for _ in range(2):
                implementation.train()
        for _ in range(runs):
            for implementation in implementations:
                run_once(implementation, placement.device)
        peak = measure_peak(placement)
    flops = count_flops(task)
    images = task.sites * task.rows
    plain = implementations[0]
    rows = []
    for implementation in implementations:
        per_second = images / implementation.took
        apart = measure_apart(implementation.weights, plain.weights, task)
        row = Row(
            implementation=implementation.name,
            device=describe_device(placement.device),
            precision=placement.precision,
            images_per_second=per_second,
            share_of_peak=per_second * flops / peak,
            ratio=plain.took / implementation.took,
            apart=apart,
            is_same=apart <= APART[placement.precision],
        )
        rows.append(row)
    return rows


def run_once(implementation: Implementation, device: torch.device) -> None:
    """Time one run and keep its weights for the comparison."""
    wait_for(device)
    started = time.perf_counter()
    implementation.weights = implementation.train()
    wait_for(device)
    implementation.seconds.append(time.perf_counter() - started)


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def count_flops(task: Task) -> float:
    """Return the floating-point operations per image of a forward and backward pass."""
    model = copy.deepcopy(task.model).train()
    x = torch.zeros((2, *SHAPE))
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return float(counter.get_total_flops() / len(x))


def measure_peak(placement: Placement) -> float:
    """Return the operations per second of a large matrix product: best of ten."""
    n = 1024
    if placement.device.type == "cuda":
        n = 8192
    dtype = placement.autocast or torch.float32
    a = torch.randn(n, n, device=placement.device, dtype=dtype)
    b = torch.randn(n, n, device=placement.device, dtype=dtype)
    took = torch.inf
    for _ in range(10):
        wait_for(placement.device)
        started = time.perf_counter()
        torch.mm(a, b)
        wait_for(placement.device)
        took = min(took, time.perf_counter() - started)
    return float(2 * n**3 / max(took, SECONDS))


def measure_apart(ours: Weights, theirs: Weights, task: Task) -> float:
    """Return the largest difference of a weight relative to the largest update."""
    start = task.jobs[0].start["w"]
    apart = 0.0
    largest_update = 0.0
    for a, b in zip(ours, theirs, strict=True):
        apart = max(apart, float((a - b).abs().max()))
        largest_update = max(largest_update, float((b - start).abs().max()))
    return apart / largest_update


def describe_device(device: torch.device) -> str:
    """Return the name of the GPU or the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"GPU of {platform.machine()}"
    return f"CPU, {torch.get_num_threads()} threads"


def format_rows(rows: Sequence[Row]) -> str:
    """Format the table in Markdown."""
    lines = [
        "| implementation | device | numbers | images/s | of peak | to the loop | outputs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        outputs = f"differ by {row.apart:.1e}"
        if row.is_same:
            outputs = f"equal ({row.apart:.0e})"
        lines.append(
            f"| {row.implementation} | {row.device} | {row.precision} | {row.images_per_second:,.0f} | "
            f"{row.share_of_peak:.0%} | {row.ratio:.2f} | {outputs} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all outputs are equal, else 1."""
    parser = argparse.ArgumentParser("python -m bench.device", description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu")
    parser.add_argument("--precision", nargs="*", help=f"of {', '.join(PRECISIONS)}")
    parser.add_argument("--out", type=Path, help="write the rows here, as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny: times mean nothing")
    options = parser.parse_args(arguments)
    device = options.device
    if device == "auto":
        device = choose_device()
    precisions = options.precision or ["float32"]
    if not options.precision and device == "cuda":
        precisions = list(PRECISIONS)
    runs = RUNS
    if options.quick:
        runs = 1
    rows: list[Row] = []
    for precision in precisions:
        try:
            check_machine(device, precision)
        except ValueError as error:
            parser.error(str(error))
        rows += race(_task(device, precision, options.quick), runs)
    print(format_rows(rows))
    if options.out is not None:
        text = json.dumps([asdict(row) for row in rows], indent=2)
        options.out.write_text(text + "\n")
    return int(not all(row.is_same for row in rows))


def _task(device: str, precision: str, is_quick: bool) -> Task:
    task = Task(Placement.open(device, precision), sites=10, rows=2560, batch=128)
    if device == "cpu":
        task = replace(task, rows=256)
    if is_quick:
        task = replace(task, sites=2, rows=10, batch=4)
    return task


if __name__ == "__main__":
    raise SystemExit(main())
