"""Linear and dense models of all sites at once, as (K, d) tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fallow.core.banks import Layout
from fallow.core.local import Batch, Local, Near, RowLoss, Slot, slot
from fallow.core.plan import Optimiser, Plan
from fallow.engine.batches import Fitted, Job, epochs
from fallow.engine.losses import weighted_mean
from fallow.engine.loop import Loop
from fallow.engine.optimise import step as optimiser_step


@dataclass
class StackedLearner:
    """Gradients of K models in one pass: sites do not mix, so one backward pass serves all."""

    model: nn.Module
    layout: Layout
    loss: RowLoss
    optimiser: Optimiser
    part: Tensor | None = None

    def _outputs(self, w: Tensor, x: Tensor) -> Any:
        return functional_call(self.model, self.layout.views(w), (x,))

    def gradient(self, at: Slot, batch: Batch, near: Near | None = None) -> tuple[Tensor, Tensor]:
        w = at.w.detach().requires_grad_()
        outputs = vmap(self._outputs)(w, batch.x)
        value = weighted_mean(self.loss(outputs, batch.y), batch.weight)
        if near is not None:
            value = value + near(w)
        (g,) = torch.autograd.grad(value.sum(), w)
        return g, at.stats

    def apply(self, at: Slot, gradient: Tensor, lr: float | Tensor) -> Slot:
        return optimiser_step(self.optimiser, at, gradient, lr, self.part)

    def descend(self, at: Slot, batch: Batch, near: Near | None = None) -> Slot:
        g, stats = self.gradient(at, batch, near)
        return self.apply(at, g, batch.lr)._replace(stats=stats)


class Table(NamedTuple):
    """Every step of every site, sites sorted by their number of steps, longest first.

    rows: (K, T, b) rows of the joined data, padded with a row of the same site; weight: (K, T, b),
    0 for padding; lr: (K, T); counts: steps of each site.
    """

    rows: Tensor
    weight: Tensor
    lr: Tensor
    counts: list[int]


@final
@dataclass(frozen=True)
class Stacked:
    """Trains all sites in step, dropping each as it finishes (a shrinking active prefix).

    For models without convolutions and batch norm: on a CPU, stacking convolutional sites is
    slower than training them in turn, and padding must not enter batch statistics.  Plans that
    stop early, augment or train the parts of a model in turn go through `Loop`.
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss

    def fit(self, method: Local, plan: Plan, round_: int, jobs: Sequence[Job]) -> list[Fitted]:
        """Train every job; equal to `Loop` up to rounding."""
        in_turn = plan.stop_at is not None or plan.augment or len(plan.segments) > 1
        if in_turn or len({tuple(sorted(job.own)) for job in jobs}) > 1:
            return Loop(self.model, self.layout, self.loss).fit(method, plan, round_, jobs)
        steps = [plan.epochs * -(-len(job.y) // plan.batch) for job in jobs]
        order = sorted(range(len(jobs)), key=lambda i: -steps[i])
        active = [jobs[i] for i in order]
        finished = self._train(method, plan, active, _table(plan, round_, active))
        return [finished[order.index(i)] for i in range(len(jobs))]

    def _train(self, method: Local, plan: Plan, jobs: list[Job], table: Table) -> list[Fitted]:
        learn = StackedLearner(self.model, self.layout, self.loss, plan.optimiser)
        learn.part = self.layout.part(plan.segments[0].part) if plan.segments else None
        x, y = torch.cat([j.x for j in jobs]), torch.cat([j.y for j in jobs])
        w_t = slot({k: torch.stack([j.start[k] for j in jobs]) for k in ("w", "stats")},
                   plan.optimiser)  # fmt: skip
        own = {n: _stack([j.own[n] for j in jobs]) for n in jobs[0].own}
        s = method.start(w_t.with_moments(own["sent"]) if "sent" in own else w_t, own)
        done: list[dict[str, Slot]] = []
        lr = table.lr.to(w_t.w.dtype)
        self.model.train()
        for t in range(table.rows.shape[1]):
            k = sum(count > t for count in table.counts)
            if k < len(w_t.w):
                done.append(_part(s, k, None))
                s, w_t = _part(s, 0, k), _narrow(w_t, 0, k)
            rows = table.rows[:k, t]
            batch = Batch(x[rows], y[rows], table.weight[:k, t], lr[:k, t, None])
            s = method.step(s, w_t, batch, learn)
        whole = {n: _join([s[n], *(d[n] for d in reversed(done))]) for n in s}
        sent, stays = method.finish(whole)
        stays = {**stays, "sent": sent} if plan.optimiser.persist else stays
        return [
            Fitted(_row(sent, k).state, {n: _row(v, k) for n, v in stays.items()}, table.counts[k])
            for k in range(len(jobs))
        ]


def _table(plan: Plan, round_: int, jobs: list[Job]) -> Table:
    """The table of jobs that are sorted by their number of steps, longest first."""
    per_epoch = [-(-len(job.y) // plan.batch) for job in jobs]
    counts = [plan.epochs * n for n in per_epoch]
    shape = (len(jobs), counts[0], plan.batch)
    rows, lr = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape[:2], dtype=torch.float64)
    weight = torch.zeros(shape, dtype=jobs[0].weight.dtype)
    offset = 0
    for k, (job, n) in enumerate(zip(jobs, per_epoch, strict=True)):
        padding = torch.zeros(n * plan.batch - len(job.y), dtype=torch.int64)
        mask = torch.cat([torch.ones(len(job.y)), torch.zeros(len(padding))]).to(weight)
        for epoch in epochs(plan, job):
            now = slice(epoch.number * n, (epoch.number + 1) * n)
            order = torch.cat([epoch.order, padding])
            rows[k, now] = (order + offset).view(n, plan.batch)
            weight[k, now] = (job.weight[order] * mask).view(n, plan.batch)
            lr[k, now] = plan.optimiser.lr * plan.schedule.at(round_, epoch.number, plan.epochs)
        offset += len(job.y)
    return Table(rows, weight, lr, counts)


def _stack(slots: list[Slot]) -> Slot:
    return Slot(*(torch.stack(parts) for parts in zip(*slots, strict=True)))


def _join(slots: list[Slot]) -> Slot:
    return Slot(*(torch.cat(parts) for parts in zip(*slots, strict=True)))


def _narrow(at: Slot, start: int, stop: int | None) -> Slot:
    return Slot(*(part[start:stop] for part in at))


def _part(s: dict[str, Slot], start: int, stop: int | None) -> dict[str, Slot]:
    return {name: _narrow(at, start, stop) for name, at in s.items()}


def _row(at: Slot, k: int) -> Slot:
    return Slot(*(part[k].clone() for part in at))


def can_stack(model: nn.Module) -> bool:
    """Whether every layer with parameters is linear, so that stacking pays."""
    leaves = (m for m in model.modules() if not list(m.children()))
    return all(
        isinstance(m, nn.Linear) or not (list(m.parameters()) or list(m.buffers())) for m in leaves
    )
