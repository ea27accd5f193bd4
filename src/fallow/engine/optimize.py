"""Optimizer steps on flat vectors, for one model or for a stack of models."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from fallow.core.local import TrainState
from fallow.core.training_config import Optimizer


def step(
    opt: Optimizer, at: TrainState, g: Tensor, lr: float | Tensor, part: Tensor | None
) -> TrainState:
    """Take one step of ``opt`` along ``g``, as in ``torch.optim``.

    The memory of ``g`` may be reused for a moment; nothing else is changed in place. SGD
    has neither dampening nor Nesterov momentum. Adam corrects its bias (Kingma & Ba, 2015,
    Algorithm 1). Weight decay is added to the gradient in both. Outside ``part`` (d,),
    parameters and moments are unchanged.
    """
    if opt.weight_decay:
        g.add_(at.w, alpha=opt.weight_decay)
    if opt.name == "adam":
        new = _adam(opt, at, g, lr, part)
    else:
        new = _sgd(opt, at, g, lr)
    if part is None:
        return new
    return new._replace(
        w=torch.where(part, new.w, at.w),
        m1=_where_it_moves(part, new.m1, at.m1),
        m2=_where_it_moves(part, new.m2, at.m2),
    )


def _where_it_moves(part: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return the new moments inside the part and the old ones elsewhere; empty without
    moments.
    """
    if new.shape[-1] == 0:
        return new
    return torch.where(part, new, old)


def count_by_parameter(at: TrainState) -> TrainState:
    """Return the slot with the number of steps of each parameter, t (..., d).

    If parts are trained in turn, Adam corrects the bias of each by its own number of steps.
    """
    return at._replace(t=at.t.expand(at.w.shape))


def _sgd(opt: Optimizer, at: TrainState, g: Tensor, lr: float | Tensor) -> TrainState:
    m1 = at.m1
    if opt.momentum:
        m1 = g.add_(at.m1, alpha=opt.momentum)  # `g` too, from here on
    if isinstance(lr, Tensor):
        w = at.w - lr * g  # (..., 1): learning rate of each site
    else:
        w = at.w.sub(g, alpha=lr)
    return at._replace(w=w, m1=m1, t=at.t + 1)


def _adam(
    opt: Optimizer, at: TrainState, g: Tensor, lr: float | Tensor, part: Tensor | None
) -> TrainState:
    b1, b2 = opt.betas
    if part is None or at.t.shape[-1] == 1:
        t = at.t + 1
    else:
        t = at.t + part  # (..., d), as in `count_by_parameter`
    m1 = at.m1.lerp(g, 1 - b1)
    m2 = (at.m2 * b2).addcmul_(g, g, value=1 - b2)
    spread = m2.sqrt().div_(unbias(b2, t).sqrt_()).add_(opt.eps)
    w = at.w.addcdiv(m1 * (lr / unbias(b1, t)), spread, value=-1)
    return at._replace(w=w, m1=m1, m2=m2, t=t)


def unbias(beta: float, t: Tensor) -> Tensor:
    """Return 1 - beta^t, accurate also if beta^t is close to 1."""
    if beta == 0:
        return torch.ones_like(t)
    return torch.expm1(t * log(beta)).neg_()
