"""Training states before and after local training, of one site or of a stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fallow.core.local import LocalTraining, TrainState, slot
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.engine.batches import Fitted
from fallow.engine.optimize import count_by_parameter

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
    """Return a copy of a result with copies of all tensors."""
    return Fitted(_copy(sent).state, {name: _copy(at) for name, at in stays.items()}, steps)


def _copy(at: TrainState) -> TrainState:
    return TrainState._make(part.clone() for part in at)


def stack(slots: Sequence[TrainState]) -> TrainState:
    """Stack K slots of one site to one slot of K sites."""
    return TrainState._make(torch.stack(parts) for parts in zip(*slots, strict=True))


def join(slots: Sequence[TrainState]) -> TrainState:
    """Concatenate slots of several sites to one slot of all of them."""
    return TrainState._make(torch.cat(parts) for parts in zip(*slots, strict=True))


def take(at: TrainState, which: int | slice | list[int]) -> TrainState:
    """Return the slot of one, or of some, of the sites."""
    return TrainState._make(part[which] for part in at)
