"""The plain executor: site after site, step after step.  It is the specification of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fallow.core.banks import Layout
from fallow.core.local import Batch, Local, Near, RowLoss, Slot, slot
from fallow.core.plan import Optimiser, Plan
from fallow.engine.batches import Fitted, Job, augment, epochs
from fallow.engine.losses import weighted_mean
from fallow.engine.optimise import step as optimiser_step


@dataclass
class LoopLearner:
    """Gradients of one model at a time by autograd on its flat parameter vector."""

    model: nn.Module
    layout: Layout
    loss: RowLoss
    optimiser: Optimiser
    part: Tensor | None = None

    def gradient(self, at: Slot, batch: Batch, near: Near | None = None) -> tuple[Tensor, Tensor]:
        w = at.w.detach().requires_grad_()
        stats = at.stats.clone()  # a forward pass in training mode changes them in place
        named = self.layout.views(w, stats)
        outputs = functional_call(self.model, named, (batch.x,))
        value = weighted_mean(self.loss(outputs, batch.y), batch.weight)
        if near is not None:
            value = value + near(w)
        (g,) = torch.autograd.grad(value, w)
        return g, stats

    def apply(self, at: Slot, gradient: Tensor, lr: float | Tensor) -> Slot:
        return optimiser_step(self.optimiser, at, gradient, lr, self.part)

    def descend(self, at: Slot, batch: Batch, near: Near | None = None) -> Slot:
        g, stats = self.gradient(at, batch, near)
        return self.apply(at, g, batch.lr)._replace(stats=stats)


@final
@dataclass(frozen=True)
class Loop:
    """Trains sites one after another.

    ``channels_last``: images and convolutions in the memory layout that suits the CPU's kernels;
    results differ from the plain layout by rounding.
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss
    channels_last: bool = False

    def fit(self, method: Local, plan: Plan, round_: int, jobs: Sequence[Job]) -> list[Fitted]:
        """Train every job; the order of jobs does not matter."""
        return [self._fit(method, plan, round_, job) for job in jobs]

    def _fit(self, method: Local, plan: Plan, round_: int, job: Job) -> Fitted:
        learn = LoopLearner(self.model, self.layout, self.loss, plan.optimiser)
        w_t = slot(job.start, plan.optimiser)
        first = w_t.with_moments(job.own["sent"]) if "sent" in job.own else w_t
        s, steps = method.start(first, job.own), 0
        self.model.train()
        for epoch in epochs(plan, job):
            learn.part = self.layout.part(epoch.part)
            lr = plan.optimiser.lr * plan.schedule.at(round_, epoch.number, plan.epochs)
            for rows in epoch.order.split(plan.batch):
                batch = Batch(self._images(plan, job, rows, steps), job.y[rows], job.weight[rows], lr)
                s, steps = method.step(s, w_t, batch, learn), steps + 1
            if plan.stop_at is not None and self._reached(method, s, job, plan.stop_at):
                break
        sent, stays = method.finish(s)
        if plan.optimiser.persist:
            stays = {**stays, "sent": sent}
        return Fitted(sent.state, stays, steps)

    def _images(self, plan: Plan, job: Job, rows: Tensor, step: int) -> Tensor:
        x = job.x[rows]
        if plan.augment:
            x = augment(plan.augment, x, job.streams("augment", step))
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def _reached(self, method: Local, s: dict[str, Slot], job: Job, target: float) -> bool:
        sent, _ = method.finish(s)
        outputs = predict(self.model, self.layout, sent.state, job.x)
        self.model.train()
        return len(job.y) > 0 and bool((outputs.argmax(1) == job.y).float().mean() >= target)


@torch.no_grad()
def predict(
    model: nn.Module, layout: Layout, state: dict[str, Tensor], x: Tensor, batch: int = 512
) -> Tensor:
    """Outputs of the model at ``state`` in evaluation mode, in batches.  x: (n, *shape) -> (n, c)"""
    model.eval()
    named = layout.views(state["w"], state["stats"])
    chunks = [functional_call(model, named, (part,)) for part in x.split(batch)]
    return torch.cat(chunks) if chunks else x.new_zeros((0, 0))


@torch.no_grad()
def embed(
    model: nn.Module, layout: Layout, state: dict[str, Tensor], x: Tensor, batch: int = 512
) -> Tensor:
    """Penultimate features in evaluation mode, in batches.  x: (n, *shape) -> (n, d)."""
    model.eval()
    named = {f"inner.{k}": v for k, v in layout.views(state["w"], state["stats"]).items()}
    embedding = _Embedding(model)
    chunks = [functional_call(embedding, named, (part,)) for part in x.split(batch)]
    return torch.cat(chunks) if chunks else x.new_zeros((0, 0))


class _Embedding(nn.Module):
    """The model cut before its head, so that `functional_call` can run it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.inner.embed(x)  # type: ignore[operator]
        return features
