"""Plain gradient descent: its detection, and epochs of linear models with one output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fallow.core.local import (
    Batch,
    LocalTraining,
    Near,
    Objective,
    RowLoss,
    TrainState,
    shares,
)
from fallow.core.training_config import Optimizer
from fallow.engine.learner import squared_error
from fallow.engine.optimize import unbias
from fallow.engine.site_batches import ActiveJob, EpochLines
from fallow.models.networks import Linear

Array = npt.NDArray[Any]  # of the dtype of the model
CACHE = 2**18  # bytes of rows at a time


def is_linear(model: nn.Module, loss: RowLoss) -> bool:
    """Return whether `descend` supports the model: linear with one output, and squared
    error.
    """
    return (
        isinstance(model, Linear) and model.head.out_features == 1 and loss is squared_error
    )


def descend(opt: Optimizer, at: TrainState, epochs: Sequence[EpochLines]) -> TrainState:
    """Return the slot of K sites after epochs of plain steps.

    Up to rounding, these are the steps of `fallow.engine.optimize.step` along the gradient,
    in place on a copy.
    """
    w = at.w.clone().unsqueeze(1)  # (K, 1, d), as the moments
    m1 = at.m1.clone().unsqueeze(1)
    m2 = at.m2.clone().unsqueeze(1)
    active_jobs = epochs[0].frame.active_jobs
    batch = epochs[0].rows.shape[1]
    bytes_of_step = batch * w.shape[2] * w.element_size()
    groups = _group(active_jobs, size=max(1, CACHE // bytes_of_step))
    moved = _places_moved(groups)
    t = at.t
    steps: list[_Step] = []
    for lines in epochs:
        steps += _steps(opt, t, lines, moved)
        t = t + lines.frame.steps
    _run(opt, groups, (w, m1, m2), batch, steps)
    return TrainState(
        w=w.squeeze(1),
        stats=at.stats,
        m1=m1.squeeze(1),
        m2=m2.squeeze(1),
        t=t,
    )


def _group(active_jobs: Sequence[ActiveJob], size: int) -> list[Sequence[ActiveJob]]:
    """Return groups of ``size`` active jobs."""
    return [active_jobs[first : first + size] for first in range(0, len(active_jobs), size)]


def _places_moved(groups: Sequence[Sequence[ActiveJob]]) -> Tensor:
    """Return the offset of positions in the joined data relative to each job's group: (K,)."""
    moved = []
    for active_jobs in groups:
        begin = 0
        for active_job in active_jobs:
            moved.append(active_job.first - begin)
            begin += len(active_job.job.y)
    return torch.tensor(moved)


class _Step(NamedTuple):
    """One step of the first k sites, in batches of b rows."""

    k: int
    rows: Array  # (k b,) positions in the group of the site
    y: Array  # (k, 1, b)
    slope: Array  # (k, 1, b): derivative of the loss with respect to an output
    rate: Array  # (k, 1, 1): factor of a step
    floor: Array  # (k, 1, 1): epsilon of Adam


def _run(
    opt: Optimizer,
    groups: Sequence[Sequence[ActiveJob]],
    slots: tuple[Tensor, Tensor, Tensor],
    b: int,
    steps: Sequence[_Step],
) -> None:
    """Take the ``steps`` of all sites; w, m1 and m2, (K, 1, d), change in place.

    It uses NumPy on the memory of the tensors, which takes a tenth of the time for small
    operations. Each group of sites goes through all steps before the next group, so that
    its examples stay in the cache.  They are always written to the same memory, because new
    memory is slow.
    """
    all_w, all_m1, all_m2 = (slot.numpy() for slot in slots)
    width = all_w.shape[2]
    size = len(groups[0])
    largest = max(
        sum(len(active_job.job.y) for active_job in active_jobs) for active_jobs in groups
    )
    memory = slots[0].new_empty(largest, width)
    rows_of = memory.numpy()
    room = np.empty((size, b, width), rows_of.dtype)
    all_g = np.empty((size, 1, width), rows_of.dtype)
    all_scratch = np.empty_like(all_g)
    first = 0  # site of the group
    for active_jobs in groups:
        _write_rows(active_jobs, memory)
        for step in steps:
            # sites run out of examples one by one in an epoch; the others are a prefix
            last = min(first + len(active_jobs), step.k)
            if last <= first:
                continue
            taken = room[: last - first]  # (sites, b, d)
            # Positions are valid; to check them, NumPy would copy the examples again.
            flat = taken.reshape(-1, width)
            rows_of.take(step.rows[first * b : last * b], 0, flat, "clip")
            w = all_w[first:last]
            g = all_g[: last - first]
            away = w @ taken.swapaxes(1, 2)
            away -= step.y[first:last]
            away *= step.slope[first:last]
            np.matmul(away, taken, out=g)
            moments = (all_m1[first:last], all_m2[first:last])
            _move(
                opt,
                w,
                moments,
                g=g,
                rate=step.rate[first:last],
                floor=step.floor[first:last],
                scratch=all_scratch[: last - first],
            )
        first += len(active_jobs)


def _write_rows(active_jobs: Sequence[ActiveJob], memory: Tensor) -> None:
    """Return the examples of some sites as vectors, concatenated by site.

    If there is room for one more number, it is a 1, which is multiplied by a bias.
    """
    begin = 0
    for active_job in active_jobs:
        rows = active_job.job.x.flatten(1)
        end = begin + len(rows)
        columns = rows.shape[1]
        memory[begin:end, :columns] = rows
        memory[begin:end, columns:] = 1
        begin = end


def _move(
    opt: Optimizer,
    w: Array,
    moments: tuple[Array, Array],
    *,
    g: Array,
    rate: Array,
    floor: Array,
    scratch: Array,
) -> None:
    """Take a step along the gradient, with in-place changes of w, the moments and g.

    scratch has the same shape.
    """
    b1, b2 = opt.betas
    m1, m2 = moments
    if opt.weight_decay:
        g += opt.weight_decay * w
    if opt.name == "adam":
        # m1 += (1 - b1) (g - m1)
        np.subtract(g, m1, out=scratch)
        scratch *= 1 - b1
        m1 += scratch
        # m2 = b2 m2 + (1 - b2) g²
        m2 *= b2
        np.multiply(g, 1 - b2, out=scratch)
        scratch *= g
        m2 += scratch
        # w -= rate m1 / (√m2 + floor)
        np.sqrt(m2, out=scratch)
        scratch += floor
        np.multiply(m1, rate, out=g)
        g /= scratch
        w -= g
    else:
        if opt.momentum:
            m1 *= opt.momentum
            g += m1
            m1[:] = g
        w -= rate * g


def _steps(opt: Optimizer, t: Tensor, lines: EpochLines, moved: Tensor) -> Iterator[_Step]:
    """Yield the steps of an epoch.

    t: (K, 1) numbers of earlier steps of each site; moved: (K,), the result of
    `_places_moved`.
    """
    b = lines.rows.shape[1]
    now = t[lines.frame.active_job] + lines.frame.step.unsqueeze(1) + 1  # (lines, 1)
    paces, floors = _pace(opt, now, lines.epoch.lr)
    of_group = lines.rows - moved[lines.frame.active_job].unsqueeze(1)
    rows = of_group.flatten().numpy()  # (lines b,)
    y = lines.y.unsqueeze(1).numpy()  # (lines, 1, b)
    slope = (2 * shares(lines.weight)).unsqueeze(1).numpy()
    rate = paces.unsqueeze(1).numpy()  # (lines, 1, 1)
    floor = floors.unsqueeze(1).numpy()
    first = 0
    for k in lines.frame.widths:
        last = first + k
        yield _Step(
            k=k,
            rows=rows[first * b : last * b],
            y=y[first:last],
            slope=slope[first:last],
            rate=rate[first:last],
            floor=floor[first:last],
        )
        first = last


def _pace(opt: Optimizer, t: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """Return the factor of an update at step t, and the ε of Adam.  Shapes as t.

    With c = 1 - β^t Adam's m₁ / c₁ / (√(m₂ / c₂) + ε) is √c₂ / c₁ times m₁ / (√m₂ + ε √c₂).
    """
    if opt.name == "sgd":
        return torch.full_like(t, lr), t
    root = unbias(opt.betas[1], t).sqrt()
    return lr * root / unbias(opt.betas[0], t), opt.eps * root


def is_plain(
    method: LocalTraining, s: dict[str, TrainState], w_t: TrainState, batch: Batch
) -> bool:
    """Return whether the step is one descent of ``s["w"]`` on the loss of the task, and
    nothing else.

    The step runs once, with a learner that only records calls.
    """
    if "w" not in s:
        return False
    watch = _Watch(s["w"]._replace(), batch)  # a copy that is identical to no other slot
    try:
        result = method.step({**s, "w": watch.begin}, w_t, batch, watch)
    except _OtherStep:
        return False
    return result.keys() == {"w"} and result["w"] is watch.end


class _OtherStep(Exception):
    """Exception for a step other than plain descent."""


@final
class _Watch:
    """A `fallow.core.local.Learner` that accepts plain descent only, and does not execute
    it.
    """

    def __init__(self, begin: TrainState, batch: Batch) -> None:
        self.begin = begin
        self.batch = batch
        self.end = begin._replace()  # a copy, compared by `is`

    def descend(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> TrainState:
        if at is self.begin and batch is self.batch and near is None and objective is None:
            return self.end
        raise _OtherStep

    def gradient(self, *args: object, **more: object) -> NoReturn:
        raise _OtherStep

    apply = predict = gradient
