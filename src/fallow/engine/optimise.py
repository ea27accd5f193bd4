"""Optimiser steps on flat vectors, the same for one model and for a stack of models."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.core.local import Slot
from fallow.core.plan import Optimiser


def step(opt: Optimiser, at: Slot, g: Tensor, lr: float | Tensor, part: Tensor | None) -> Slot:
    """One step of ``opt`` along ``g``; parameters outside ``part`` (d,) do not move.

    SGD as in torch (no dampening, no Nesterov); Adam with bias correction (Kingma & Ba, 2015).
    """
    if opt.weight_decay:
        g = g.add(at.w, alpha=opt.weight_decay)
    if part is not None:
        g = g * part
    t = at.t + 1
    if opt.name == "adam":
        m1, m2, move = _adam(opt, at, g, t)
    else:
        m1 = torch.add(g, at.m1, alpha=opt.momentum) if opt.momentum else at.m1
        m2, move = at.m2, (m1 if opt.momentum else g)
    if part is not None:
        move = move * part
    w = at.w - lr * move if isinstance(lr, Tensor) else at.w.sub(move, alpha=lr)
    return at._replace(w=w, m1=m1, m2=m2, t=t)


def _adam(opt: Optimiser, at: Slot, g: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    b1, b2 = opt.betas
    m1 = at.m1.lerp(g, 1 - b1)
    m2 = (at.m2 * b2).addcmul_(g, g, value=1 - b2)
    scale = (1 - b2**t).sqrt() / (1 - b1**t)
    return m1, m2, scale * m1 / (m2.sqrt() + opt.eps * (1 - b2**t).sqrt())
