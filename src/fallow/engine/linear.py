"""Epochs of plain descent for linear models with one output, without autograd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.core.local import RowLoss, TrainState, shares
from fallow.core.plan import Optimiser
from fallow.engine.losses import squared_error
from fallow.engine.optimise import unbias
from fallow.engine.together import Joined, Lines
from fallow.models import Linear


def is_linear(model: nn.Module, loss: RowLoss) -> bool:
    """Whether `descend` serves: a linear model with one output, under the squared error."""
    return (
        isinstance(model, Linear) and model.head.out_features == 1 and loss is squared_error
    )


def descend(opt: Optimiser, at: TrainState, data: Joined, lines: Lines) -> TrainState:
    """The slot of K sites after an epoch of plain steps.

    Up to rounding these are the steps of `fallow.engine.optimise.step` along the gradient, taken
    in place on a copy.
    """
    w, m1, m2 = (
        part.clone().unsqueeze(1) for part in (at.w, at.m1, at.m2)
    )  # (K, 1, d) each
    x = data.flat if w.shape[2] == data.flat.shape[1] else data.affine
    room = x.new_empty(len(w), lines.rows.shape[1], x.shape[1])  # fresh memory is slow
    _run(opt, x, room, (w, m1, m2), _steps(opt, at.t, lines))
    return TrainState(
        w.squeeze(1), at.stats, m1.squeeze(1), m2.squeeze(1), at.t + lines.frame.steps
    )


def _run(
    opt: Optimiser,
    x: Tensor,
    room: Tensor,
    ends: Sequence[Tensor],
    steps: Iterable[Sequence[Any]],
) -> None:
    """Take the `_steps` in place, w, m1 and m2 in ``ends``, each step in the same ``room``.

    In NumPy, on the memory of the tensors: an operation on so little costs a tenth there.
    """
    (b1, b2), active, rows_of = opt.betas, 0, x.numpy()
    whole, models = room.numpy(), [part.numpy() for part in ends]
    for k, rows, y, slope, rate, floor in steps:
        if k != active:
            active, taken, (w, m1, m2) = k, whole[:k], (part[:k] for part in models)
            flat = taken.reshape(-1, taken.shape[2])
        np.take(rows_of, rows, 0, flat)
        g = ((w @ taken.swapaxes(1, 2) - y) * slope) @ taken
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


def _steps(opt: Optimiser, t: Tensor, lines: Lines) -> Iterator[Sequence[Any]]:
    """Of each step: k, its rows (k b,), y and the slope of the loss (k, 1, b), and `_pace`."""
    size, first = lines.rows.shape[1], 0
    now = t[lines.frame.seat] + lines.frame.step.unsqueeze(1) + 1  # (lines, 1)
    columns = (lines.y, 2 * shares(lines.weight), *_pace(opt, now, lines.epoch.lr))
    parts, rows = (
        [part.unsqueeze(1).numpy() for part in columns],
        lines.rows.flatten().numpy(),
    )
    for k in lines.frame.widths:
        last = first + k
        yield k, rows[first * size : last * size], *(part[first:last] for part in parts)
        first = last


def _pace(opt: Optimiser, t: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """By what a move is multiplied that ends step t, and what Adam adds below it.  Like t each.

    With c = 1 - β^t Adam's m₁ / c₁ / (√(m₂ / c₂) + ε) is √c₂ / c₁ times m₁ / (√m₂ + ε √c₂).
    """
    if opt.name == "sgd":
        return torch.full_like(t, lr), t
    root = unbias(opt.betas[1], t).sqrt()
    return lr * root / unbias(opt.betas[0], t), opt.eps * root
