"""Slots on their way into local training and out of it: one site's, or those of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fallow.core.local import LocalTraining, TrainState, slot
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.engine.batches import Fitted
from fallow.engine.optimize import count_by_parameter

SENT = "sent"  # the name under which the moments of the sent model stay at a site


def start(
    method: LocalTraining,
    training_config: TrainingConfig,
    state: State,
    own: dict[str, TrainState],
    sent: State | None,
) -> tuple[TrainState, dict[str, TrainState]]:
    """The model that was ``sent``, and the method's slots beside it, which begin at ``state``; None
    where both are one.

    Moments go on where the last round left them if the optimizer persists; else all are zero,
    also those of models that never left the site.
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
    if trains_parts and training_config.optimizer.name == "adam":
        return count_by_parameter(at)
    return at


def finish(
    method: LocalTraining, training_config: TrainingConfig, s: dict[str, TrainState]
) -> tuple[TrainState, dict[str, TrainState]]:
    """Return what is sent and what stays, with moments if the optimizer persists."""
    sent, stays = method.finish(s)
    if training_config.optimizer.persist:
        moments = sent._replace(w=sent.w[..., :0], stats=sent.stats[..., :0])
        stays = {**stays, SENT: moments}
    return sent, stays


def copy_result(sent: TrainState, stays: dict[str, TrainState], steps: int) -> Fitted:
    """A result of its own: every tensor is a copy."""
    return Fitted(_copy(sent).state, {name: _copy(at) for name, at in stays.items()}, steps)


def _copy(at: TrainState) -> TrainState:
    return TrainState._make(part.clone() for part in at)


def stack(slots: Sequence[TrainState]) -> TrainState:
    """K slots of one site -> one slot of K sites."""
    return TrainState._make(torch.stack(parts) for parts in zip(*slots, strict=True))


def join(slots: Sequence[TrainState]) -> TrainState:
    """Slots of several sites, one after another -> one slot of all of them."""
    return TrainState._make(torch.cat(parts) for parts in zip(*slots, strict=True))


def take(at: TrainState, which: int | slice | list[int]) -> TrainState:
    """The slot of one, or of some, of the sites."""
    return TrainState._make(part[which] for part in at)
