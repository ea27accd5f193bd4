"""Plain gradient descent: its detection, and epochs of dense networks in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fallow.core.local import (
    Batch,
    LocalTraining,
    Near,
    Objective,
    Proximal,
    TrainState,
    shares,
)
from fallow.core.training_config import Optimizer
from fallow.engine.dense import Array, DenseNetwork, Workspace
from fallow.engine.optimize import unbias
from fallow.engine.site_batches import ActiveJob, EpochLines

CACHE = 2**18  # bytes of a group of sites in a step


class Descent(NamedTuple):
    """One plain descent in a step: the slot that it changes, and the weight of its proximal
    term.

    The term keeps the slot close to the model that was sent; 0: without it.
    """

    slot: str
    proximal: float


class _Slot(NamedTuple):
    """A model of K sites in training: (K, d) each, (K, 0) for missing moments.

    ``paces``: those of each step. With ``begins``, the moments m1 and m2 at the start of all sites,
    (d,), each group of sites uses the same memory for its moments, (sites, d), which end with it.
    """

    w: Array
    m1: Array
    m2: Array
    proximal: float
    paces: list[_Pace]
    begins: tuple[Array, Array] | None = None


def descend(
    network: DenseNetwork,
    opt: Optimizer,
    s: dict[str, TrainState],
    w_t: TrainState,
    descents: Sequence[Descent],
    epochs: Sequence[EpochLines],
    are_moments_kept: bool = True,
) -> dict[str, TrainState]:
    """Return the slots of K sites after epochs of the ``descents``.

    Moments that nobody needs afterwards may have any value. Up to rounding, these are the steps of
    `fallow.engine.optimize.step` along the gradient, in place on a copy. Products use one thread,
    because they are small.
    """
    active_jobs = epochs[0].frame.active_jobs
    batch = epochs[0].rows.shape[1]
    w = w_t.w
    n_values = batch * network.width
    if len(network.layers) > 1:
        n_values += 3 * w.shape[1]
    groups = _group(active_jobs, size=max(1, CACHE // (n_values * w.element_size())))
    moved = _places_moved(groups)
    steps: list[_Step] = []
    for lines in epochs:
        steps += _steps(lines, moved)
    result = dict(s)
    slots = []
    for descent in descents:
        ended = s[descent.slot]
        paces: list[_Pace] = []
        for lines in epochs:
            paces += _paces(opt, ended.t, lines)
            ended = ended._replace(t=ended.t + lines.frame.steps)
        ended = ended._replace(w=ended.w.clone())
        moments = (ended.m1, ended.m2)
        begins = None
        if not are_moments_kept and all(is_shared(part) for part in moments):
            begins = (ended.m1[0].numpy(), ended.m2[0].numpy())
            m1, m2 = (part.new_empty(len(groups[0]), part.shape[1]) for part in moments)
        else:
            m1, m2 = (part.clone() for part in moments)
            ended = ended._replace(m1=m1, m2=m2)
        slots.append(
            _Slot(
                w=ended.w.numpy(),
                m1=m1.numpy(),
                m2=m2.numpy(),
                proximal=descent.proximal,
                paces=paces,
                begins=begins,
            )
        )
        result[descent.slot] = ended
    # A model may diverge, which `Loop` does without a warning.
    with _controller().limit(limits=1, user_api="blas"), np.errstate(all="ignore"):
        _run(network, opt, groups, slots, w.numpy(), batch, steps)
    return result


def is_shared(part: Tensor) -> bool:
    """Return whether a part (K, d) of a model is the same memory for all sites.

    >>> is_shared(torch.zeros(4).expand(3, 4)), is_shared(torch.zeros(3, 4))
    (True, False)
    """
    return part.stride(0) == 0 or part.numel() == 0


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of the threads of NumPy; finding the libraries takes time."""
    return ThreadpoolController()


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
    y: Array  # (k, b)
    share: Array  # (k, b): factor of the loss of an example


class _Pace(NamedTuple):
    """Factors of one step of the first k sites."""

    rate: Array  # (k, 1): factor of an update
    floor: Array  # (k, 1): epsilon of Adam
    shrink: float  # factor of the weights before an update; 1 except for AdamW


def _run(
    network: DenseNetwork,
    opt: Optimizer,
    groups: Sequence[Sequence[ActiveJob]],
    slots: Sequence[_Slot],
    sent: Array,
    b: int,
    steps: Sequence[_Step],
) -> None:
    """Take the ``steps`` of all sites; the slots change in place.  sent: (K, d)

    It uses NumPy on the memory of the tensors, which takes a tenth of the time for small
    operations. Each group of sites goes through all steps before the next group, so that
    its models and examples stay in the cache. Examples are always written to the same memory,
    because new memory is slow.
    """
    size = len(groups[0])
    rows_of_groups = _ExampleMemory(network, groups, sent.dtype)
    room = np.empty((size, b, network.width), sent.dtype)
    all_g = np.empty((size, sent.shape[1]), sent.dtype)
    all_scratch = np.empty_like(all_g)
    workspace = Workspace(network, size, b, sent.dtype)
    first = 0  # site of the group
    for active_jobs in groups:
        rows_of = rows_of_groups.read(active_jobs)
        for slot in slots:
            if slot.begins is not None:
                slot.m1[:], slot.m2[:] = slot.begins
        for number, step in enumerate(steps):
            # sites run out of examples one by one in an epoch; the others are a prefix
            last = min(first + len(active_jobs), step.k)
            if last <= first:
                continue
            of_group = slice(first, last)
            taken = room[: last - first]  # (sites, b, width)
            # Positions are valid; to check them, NumPy would copy the examples again.
            flat = taken.reshape(-1, network.width)
            rows_of.take(step.rows[first * b : last * b], 0, flat, "clip")
            g = all_g[: last - first]
            scratch = all_scratch[: last - first]
            for slot in slots:
                of_moments = of_group
                if slot.begins is not None:
                    of_moments = slice(0, last - first)
                w = slot.w[of_group]
                workspace.write_gradient(
                    w, taken, step.y[of_group], step.share[of_group], g
                )
                if slot.proximal:
                    np.subtract(w, sent[of_group], out=scratch)
                    scratch *= slot.proximal
                    g += scratch
                pace = slot.paces[number]
                _move(
                    opt,
                    w,
                    (slot.m1[of_moments], slot.m2[of_moments]),
                    g=g,
                    rate=pace.rate[of_group],
                    floor=pace.floor[of_group],
                    shrink=pace.shrink,
                    scratch=scratch,
                )
        first += len(active_jobs)


@final
class _ExampleMemory:
    """Memory for the examples of one group as vectors, concatenated by site.

    Those of a single site are used where they are.
    """

    def __init__(
        self,
        network: DenseNetwork,
        groups: Sequence[Sequence[ActiveJob]],
        dtype: np.dtype[Any],
    ) -> None:
        self.has_ones = network.has_ones
        self.is_copied = network.has_ones or len(groups[0]) > 1
        largest = 0
        if self.is_copied:
            counts = [sum(len(item.job.y) for item in group) for group in groups]
            largest = max(counts)
        self.memory = np.empty((largest, network.width), dtype)

    def read(self, active_jobs: Sequence[ActiveJob]) -> Array:
        """Return the examples of some sites. If there are ones, they are the last column."""
        if not self.is_copied:
            return active_jobs[0].job.x.flatten(1).numpy()
        begin = 0
        for active_job in active_jobs:
            rows = active_job.job.x.flatten(1).numpy()
            end = begin + len(rows)
            columns = rows.shape[1]
            self.memory[begin:end, :columns] = rows
            self.memory[begin:end, columns:] = 1
            begin = end
        return self.memory


def _move(
    opt: Optimizer,
    w: Array,
    moments: tuple[Array, Array],
    *,
    g: Array,
    rate: Array,
    floor: Array,
    shrink: float,
    scratch: Array,
) -> None:
    """Take a step along the gradient, with in-place changes of w, the moments and g.

    scratch has the same shape.
    """
    b1, b2 = opt.betas
    m1, m2 = moments
    if opt.name == "adamw":
        w *= shrink
    elif opt.weight_decay:
        g += opt.weight_decay * w
    if opt.is_adaptive:
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
            m1 += g
            g = m1
        np.multiply(g, rate, out=scratch)
        w -= scratch


def _steps(lines: EpochLines, moved: Tensor) -> Iterator[_Step]:
    """Yield the steps of an epoch.  moved: (K,), the result of `_places_moved`."""
    b = lines.rows.shape[1]
    of_group = lines.rows - moved[lines.frame.active_job].unsqueeze(1)
    rows = of_group.flatten().numpy()  # (lines b,)
    y = lines.y.numpy()  # (lines, b)
    share = shares(lines.weight).numpy()
    first = 0
    for k in lines.frame.widths:
        last = first + k
        yield _Step(
            k=k, rows=rows[first * b : last * b], y=y[first:last], share=share[first:last]
        )
        first = last


def _paces(opt: Optimizer, t: Tensor, lines: EpochLines) -> Iterator[_Pace]:
    """Yield the factors of the steps of an epoch.

    t: (K, 1) numbers of earlier steps of each site.
    """
    now = t[lines.frame.active_job] + lines.frame.step.unsqueeze(1) + 1  # (lines, 1)
    rates, floors = _pace(opt, now, lines.epoch.lr)
    shrink = 1.0
    if opt.name == "adamw":
        shrink = 1 - lines.epoch.lr * opt.weight_decay
    first = 0
    for k in lines.frame.widths:
        last = first + k
        yield _Pace(rates[first:last].numpy(), floors[first:last].numpy(), shrink)
        first = last


def _pace(opt: Optimizer, t: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """Return the factor of an update at step t, and the ε of Adam.  Shapes as t.

    With c = 1 - β^t Adam's m₁ / c₁ / (√(m₂ / c₂) + ε) is √c₂ / c₁ times m₁ / (√m₂ + ε √c₂).
    """
    if opt.name == "sgd":
        return torch.full_like(t, lr), t
    root = unbias(opt.betas[1], t).sqrt()
    return lr * root / unbias(opt.betas[0], t), opt.eps * root


def find_descents(
    method: LocalTraining, s: dict[str, TrainState], w_t: TrainState, batch: Batch
) -> list[Descent] | None:
    """Return the descents of a step; None if it does anything else.

    Each slot is descended once at most, on the loss of the task, with or without a
    `Proximal` term around the model that was sent. The step runs once, with a learner that
    only records calls.
    """
    recorder = _Recorder(s, w_t, batch)
    try:
        result = method.step(dict(recorder.begin), w_t, batch, recorder)
    except _OtherStep:
        return None
    if not recorder.descents or result.keys() != s.keys():
        return None
    for name, at in result.items():
        if at is not recorder.end.get(name, recorder.begin[name]):
            return None
    return recorder.descents


class _OtherStep(Exception):
    """Exception for a step other than plain descents."""


@final
class _Recorder:
    """A `fallow.core.local.Learner` that accepts plain descents only, and does not execute
    them.
    """

    def __init__(self, s: dict[str, TrainState], w_t: TrainState, batch: Batch) -> None:
        # copies, which are compared by `is`
        self.begin = {name: at._replace() for name, at in s.items()}
        self.end: dict[str, TrainState] = {}
        self.descents: list[Descent] = []
        self.sent = w_t
        self.batch = batch

    def descend(
        self,
        at: TrainState,
        batch: Batch,
        near: Near | None = None,
        objective: Objective | None = None,
    ) -> TrainState:
        if batch is not self.batch or objective is not None:
            raise _OtherStep
        proximal = 0.0
        if near is not None:
            if not isinstance(near, Proximal) or near.center is not self.sent.w:
                raise _OtherStep
            proximal = near.scale
        for name, begin in self.begin.items():
            if at is begin and name not in self.end:
                self.end[name] = at._replace()
                self.descents.append(Descent(name, proximal))
                return self.end[name]
        raise _OtherStep

    def gradient(self, *args: object, **more: object) -> NoReturn:
        raise _OtherStep

    apply = predict = gradient
