"""Slots on their way into local training and out of it: one site's, or those of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fallow.core.local import Local, Slot, slot
from fallow.core.plan import Plan
from fallow.core.types import State
from fallow.engine.batches import Fitted
from fallow.engine.optimise import counted

SENT = "sent"  # the name under which the moments of the sent model stay at a site


def start(
    method: Local, plan: Plan, state: State, own: dict[str, Slot], sent: State | None
) -> tuple[Slot, dict[str, Slot]]:
    """The model that was ``sent``, and the method's slots beside it, which begin at ``state``; None
    where both are one.

    Moments go on where the last round left them if the optimiser persists; else all are zero,
    also those of models that never left the site.
    """
    w = _fresh(plan, state)
    w_t = w if sent is None else _fresh(plan, sent)
    kept = {name: at for name, at in own.items() if name != SENT}
    if not plan.optimiser.persist:
        kept = {name: _fresh(plan, at.state) for name, at in kept.items()}
        return w_t, method.start(w, kept)
    return w_t, method.start(w.with_moments(own[SENT]) if SENT in own else w, kept)


def _fresh(plan: Plan, state: State) -> Slot:
    at = slot(state, plan.optimiser)
    trains_parts = any(segment.part != "all" for segment in plan.segments)
    return counted(at) if trains_parts and plan.optimiser.name == "adam" else at


def finish(method: Local, plan: Plan, s: dict[str, Slot]) -> tuple[Slot, dict[str, Slot]]:
    """What is sent and what stays, with the moments of what is sent if the optimiser persists."""
    sent, stays = method.finish(s)
    if plan.optimiser.persist:
        stays = {**stays, SENT: sent._replace(w=sent.w[..., :0], stats=sent.stats[..., :0])}
    return sent, stays


def fitted(sent: Slot, stays: dict[str, Slot], steps: int) -> Fitted:
    """A result of its own: every tensor is a copy."""
    return Fitted(_copy(sent).state, {name: _copy(at) for name, at in stays.items()}, steps)


def _copy(at: Slot) -> Slot:
    return Slot(*(part.clone() for part in at))


def stack(slots: Sequence[Slot]) -> Slot:
    """K slots of one site -> one slot of K sites."""
    return Slot(*(torch.stack(parts) for parts in zip(*slots, strict=True)))


def join(slots: Sequence[Slot]) -> Slot:
    """Slots of several sites, one after another -> one slot of all of them."""
    return Slot(*(torch.cat(parts) for parts in zip(*slots, strict=True)))


def take(at: Slot, which: int | slice | list[int]) -> Slot:
    """The slot of one, or of some, of the sites."""
    return Slot(*(part[which] for part in at))
