"""Epochs of plain descent for linear models with one output, without autograd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fallow.core.local import RowLoss, TrainState, shares
from fallow.core.plan import Optimiser
from fallow.engine.losses import squared_error
from fallow.engine.optimise import unbias
from fallow.engine.together import EpochLines, Joined
from fallow.models import Linear

Array = npt.NDArray[Any]  # of the dtype of the model
CACHE = 2**18  # bytes of rows at a time


def is_linear(model: nn.Module, loss: RowLoss) -> bool:
    """Whether `descend` serves: a linear model with one output, under the squared error."""
    return (
        isinstance(model, Linear) and model.head.out_features == 1 and loss is squared_error
    )


def descend(opt: Optimiser, at: TrainState, data: Joined, lines: EpochLines) -> TrainState:
    """The slot of K sites after an epoch of plain steps.

    Up to rounding these are the steps of `fallow.engine.optimise.step` along the gradient, taken
    in place on a copy.
    """
    w = at.w.clone().unsqueeze(1)  # (K, 1, d), as the moments
    m1 = at.m1.clone().unsqueeze(1)
    m2 = at.m2.clone().unsqueeze(1)
    if w.shape[2] == data.width:
        x = data.flat
    else:
        x = data.affine
    _run(opt, x, (w, m1, m2), lines.rows.shape[1], _steps(opt, at.t, lines))
    return TrainState(
        w=w.squeeze(1),
        stats=at.stats,
        m1=m1.squeeze(1),
        m2=m2.squeeze(1),
        t=at.t + lines.frame.steps,
    )


class _Step(NamedTuple):
    """One step of the first k sites, in batches of b rows."""

    k: int
    rows: Array  # (k b,) which rows
    y: Array  # (k, 1, b)
    slope: Array  # (k, 1, b): the loss rises by so much where an output rises by y's unit
    rate: Array  # (k, 1, 1): what a move is multiplied by
    floor: Array  # (k, 1, 1): what Adam adds below a move


def _run(
    opt: Optimiser,
    x: Tensor,
    slots: tuple[Tensor, Tensor, Tensor],
    b: int,
    steps: Iterable[_Step],
) -> None:
    """Take the ``steps`` on rows of ``x`` (n, d); w, m1 and m2, (K, 1, d), change in place.

    In NumPy, on the memory of the tensors: an operation on so little costs a tenth there.
    """
    rows_of = x.numpy()
    all_w, all_m1, all_m2 = (slot.numpy() for slot in slots)
    width = x.shape[1]
    # Few sites at a time go through the epoch, so that their rows are in the cache until they are
    # used again, and always written to the same place, because fresh memory is slow.
    group = max(1, CACHE // (b * width * x.element_size()))
    room = x.new_empty(min(group, len(all_w)), b, width).numpy()
    all_g = x.new_empty(len(room), 1, width).numpy()
    of_epoch = list(steps)
    for first in range(0, len(all_w), group):
        for step in of_epoch:
            # sites have run out of rows one by one; the others are a prefix
            last = min(first + group, step.k)
            if last <= first:
                break
            taken = room[: last - first]  # (sites, b, d)
            # Positions are known to be good; to check them NumPy would copy the rows once more.
            flat = taken.reshape(-1, width)
            np.take(rows_of, step.rows[first * b : last * b], 0, flat, mode="clip")
            w = all_w[first:last]
            g = all_g[: last - first]
            away = w @ taken.swapaxes(1, 2) - step.y[first:last]
            np.matmul(away * step.slope[first:last], taken, out=g)
            moments = (all_m1[first:last], all_m2[first:last])
            _move(opt, w, moments, g, step.rate[first:last], step.floor[first:last])


def _move(
    opt: Optimiser,
    w: Array,
    moments: tuple[Array, Array],
    g: Array,
    rate: Array,
    floor: Array,
) -> None:
    """A step along the gradient: w, the moments and g change in place."""
    b1, b2 = opt.betas
    m1, m2 = moments
    if opt.weight_decay:
        g += opt.weight_decay * w
    if opt.name == "adam":
        m1 += (1 - b1) * (g - m1)
        m2 *= b2
        m2 += (1 - b2) * g * g
        w -= rate * m1 / (np.sqrt(m2) + floor)
    else:
        if opt.momentum:
            m1 *= opt.momentum
            g += m1
            m1[:] = g
        w -= rate * g


def _steps(opt: Optimiser, t: Tensor, lines: EpochLines) -> Iterator[_Step]:
    """The steps of an epoch; t: (K, 1) steps that each site has taken before."""
    b = lines.rows.shape[1]
    now = t[lines.frame.seat] + lines.frame.step.unsqueeze(1) + 1  # (lines, 1)
    paces, floors = _pace(opt, now, lines.epoch.lr)
    rows = lines.rows.flatten().numpy()  # (lines b,)
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


def _pace(opt: Optimiser, t: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """By what a move is multiplied that ends step t, and what Adam adds below it.  Like t each.

    With c = 1 - β^t Adam's m₁ / c₁ / (√(m₂ / c₂) + ε) is √c₂ / c₁ times m₁ / (√m₂ + ε √c₂).
    """
    if opt.name == "sgd":
        return torch.full_like(t, lr), t
    root = unbias(opt.betas[1], t).sqrt()
    return lr * root / unbias(opt.betas[0], t), opt.eps * root
