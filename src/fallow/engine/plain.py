"""Detection of algorithms whose step is plain gradient descent."""

from __future__ import annotations

from typing import NoReturn, final

from fallow.core.local import Batch, LocalTraining, Near, Objective, TrainState


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
        made = method.step({**s, "w": watch.begin}, w_t, batch, watch)
    except _OtherStep:
        return False
    return made.keys() == {"w"} and made["w"] is watch.end


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
