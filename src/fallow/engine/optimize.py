"""Training states of one model or a stack: start, optimizer steps on flat vectors, end."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from fallow.core.local import LocalTraining, TrainState, slot
from fallow.core.training_config import Optimizer, TrainingConfig
from fallow.core.types import State
from fallow.engine.batches import Fitted


def step(
    opt: Optimizer, at: TrainState, g: Tensor, lr: float | Tensor, part: Tensor | None
) -> TrainState:
    """Take one step of ``opt`` along ``g``, as in ``torch.optim``.

    The memory of ``g`` may be reused for a moment; nothing else is changed in place. SGD
    has neither dampening nor Nesterov momentum. Adam corrects its bias (Kingma & Ba, 2015,
    Algorithm 1). Weight decay is added to the gradient; AdamW multiplies the weights instead
    (Loshchilov & Hutter, 2019, Algorithm 2). Outside ``part`` (d,), parameters and moments
    are unchanged.
    """
    before = at
    if opt.name == "adamw":
        at = at._replace(w=at.w * (1 - lr * opt.weight_decay))
    elif opt.weight_decay:
        g.add_(at.w, alpha=opt.weight_decay)
    if opt.is_adaptive:
        new = _adam(opt, at, g, lr, part)
    else:
        new = _sgd(opt, at, g, lr)
    if part is None:
        return new
    return new._replace(
        w=torch.where(part, new.w, before.w),
        m1=_where_it_moves(part, new.m1, before.m1),
        m2=_where_it_moves(part, new.m2, before.m2),
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


SENT = "sent"  # name under which a site stores the moments of the sent model


def start(
    method: LocalTraining,
    training_config: TrainingConfig,
    state: State,
    own: dict[str, TrainState],
    sent: State | None,
) -> tuple[TrainState, dict[str, TrainState]]:
    """Return the model that was ``sent``, and the algorithm's slots that start at
    ``state``.

    The latter are None if both are the same. Moments continue from the last round if the
    optimizer persists; otherwise all are zero, also those of models that never left the
    site.
    """
    w = _fresh(training_config, state)
    w_t = w
    if sent is not None:
        w_t = _fresh(training_config, sent)
    kept = dict(own)
    last = kept.pop(SENT, None)
    if not training_config.optimizer.persist:
        kept = {name: _fresh(training_config, at.state) for name, at in kept.items()}
    elif last is not None:
        w = w.with_moments(last)
    return w_t, method.start(w, kept)


def _fresh(training_config: TrainingConfig, state: State) -> TrainState:
    at = slot(state, training_config.optimizer)
    trains_parts = any(stage.part != "all" for stage in training_config.trained_stages)
    if trains_parts and training_config.optimizer.is_adaptive:
        return count_by_parameter(at)
    return at


def finish(
    method: LocalTraining, training_config: TrainingConfig, s: dict[str, TrainState]
) -> tuple[TrainState, dict[str, TrainState]]:
    """Return what is sent and what stays, with moments only if the optimizer persists."""
    sent, stays = method.finish(s)
    if training_config.optimizer.persist:
        moments = sent._replace(w=sent.w[..., :0], stats=sent.stats[..., :0])
        return sent, {**stays, SENT: moments}
    without = {}
    for name, at in stays.items():
        without[name] = at._replace(m1=at.m1[..., :0], m2=at.m2[..., :0])
    return sent, without


def copy_result(sent: TrainState, stays: dict[str, TrainState], steps: int) -> Fitted:
    """Return a copy of a result with copies of all tensors."""
    state = {name: part.clone() for name, part in sent.state.items()}
    return Fitted(state, {name: _copy(at) for name, at in stays.items()}, steps)


def _copy(at: TrainState) -> TrainState:
    return TrainState._make(part.clone() for part in at)


def stack(slots: Sequence[TrainState]) -> TrainState:
    """Stack K slots of one site to one slot of K sites."""
    return TrainState._make(torch.stack(parts) for parts in zip(*slots, strict=True))


def share(states: Sequence[State]) -> State:
    """Stack states; equal ones, such as the model that was sent to all, are not copied."""
    first = states[0]
    result: State = {}
    for name in ("w", "stats"):
        if all(state[name] is first[name] for state in states):
            result[name] = first[name].expand(len(states), -1)
        else:
            result[name] = torch.stack([state[name] for state in states])
    return result


def join(slots: Sequence[TrainState]) -> TrainState:
    """Concatenate slots of several sites to one slot of all of them."""
    return TrainState._make(torch.cat(parts) for parts in zip(*slots, strict=True))


def take(at: TrainState, which: int | slice | list[int]) -> TrainState:
    """Return the slot of one, or of some, of the sites."""
    return TrainState._make(part[which] for part in at)
