"""Linear and dense models of all sites at once, as (K, d) tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, final

from torch import nn

from fallow.core.local import Batch, Learner, LocalTraining, RowLoss, TrainState
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig
from fallow.engine.banked import BankedModel, can_stack
from fallow.engine.batches import (
    BatchLosses,
    Epoch,
    Fitted,
    Job,
    Patience,
    epochs,
    mean_losses,
)
from fallow.engine.dense import DenseNetwork
from fallow.engine.descent import Descent, descend, find_descents
from fallow.engine.learner import Autograd, movable
from fallow.engine.loop import Loop, reaches_accuracy
from fallow.engine.optimize import copy_result, finish, join, share, stack, start, take
from fallow.engine.site_batches import ActiveJob, EpochLines, Frame, Joined

ROWS_AHEAD = 2**20  # positions that are drawn for several epochs at once


@final
@dataclass(frozen=True)
class Stacked:
    """Train all sites together, one epoch after another.

    Sites are sorted by their numbers of examples, so that sites with more steps are a
    prefix in each epoch. It is for models that `can_stack` accepts: on a CPU, stacking
    convolutional sites is slower than training them in turn, and padding must not enter
    batch statistics. Training configurations with augmentation use `Loop`. If an
    algorithm's step is plain descent of dense networks, epochs run without autograd, and
    in groups of sites that fit the cache (`fallow.engine.descent`).
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss

    models: ClassVar[str] = "linear and dense models"

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Stacked:
        return Stacked(model, layout, loss)  # layout of images is ignored

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        return can_stack(model)

    @cached_property
    def network(self) -> BankedModel:
        """Models of all sites; created once."""
        return BankedModel(self.model, self.layout)

    @cached_property
    def dense(self) -> DenseNetwork | None:
        """Layers of the model, if it is a dense network; otherwise autograd is used."""
        return DenseNetwork.of(self.model, self.layout, self.loss)

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        """Train every job; equal to `Loop` up to rounding."""
        if training_config.augment:
            return Loop(self.model, self.layout, self.loss).fit(
                method, training_config, round_, jobs
            )
        by_rows = sorted(range(len(jobs)), key=lambda index: -len(jobs[index].y))
        # positions of jobs with the same slots, by the names of these
        alike: dict[tuple[str, ...], list[int]] = {}
        for index in by_rows:
            slots = tuple(sorted(jobs[index].own))
            alike.setdefault(slots, []).append(index)
        results: dict[int, Fitted] = {}
        for places in alike.values():
            chosen = [jobs[index] for index in places]
            results |= zip(
                places, self._train(method, training_config, round_, chosen), strict=True
            )
        return [results[index] for index in range(len(jobs))]

    def _train(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: list[Job],
    ) -> list[Fitted]:
        learn = Autograd(self.network, self.loss, training_config.optimizer)
        own = {name: stack([job.own[name] for job in jobs]) for name in jobs[0].own}
        state = share([job.start for job in jobs])
        sent = None
        if any(job.sent for job in jobs):
            sent = share([job.sent or job.start for job in jobs])
        w_t, s = start(method, training_config, state, own, sent)
        data = Joined.of(jobs)
        active_jobs = _active_jobs(jobs, training_config)
        frame = Frame.of(active_jobs, training_config.examples_per_step)
        results: dict[int, Fitted] = {}
        done = 0  # epochs
        descents: list[Descent] | None = None
        ahead = list(epochs(training_config, round_))
        while ahead:
            epoch = ahead[0]
            learn.moves = movable(self.model, self.layout, epoch.part)
            if training_config.patience:
                learn.batch_losses = []
            lines = data.lines(frame, epoch)
            if done == 0:
                descents = self._find_descents(method, training_config, s, w_t, data, lines)
            together = 1  # epochs
            if descents and self.dense is not None and learn.moves is None:
                together = self._count_together(training_config, ahead, rows=len(data.y))
                others = [data.lines(frame, item) for item in ahead[1:together]]
                s = descend(
                    self.dense,
                    training_config.optimizer,
                    s,
                    w_t,
                    descents,
                    [lines, *others],
                    training_config.optimizer.persist or together < len(ahead),
                )
            else:
                s = _steps(method, learn, s, w_t, data.batches(lines, training_config.mix))
            ahead = ahead[together:]
            done += together
            over = self._find_over(
                method, training_config, s, active_jobs, learn.batch_losses or []
            )
            if over:
                on = [k for k in range(len(active_jobs)) if k not in over]
                removed = [active_jobs[k] for k in over]
                results |= _results(method, training_config, _take(s, over), removed, done)
                s = _take(s, on)
                w_t = take(w_t, on)
                active_jobs = [active_jobs[k] for k in on]
                if not active_jobs:
                    break
                frame = Frame.of(active_jobs, training_config.examples_per_step)
        results |= _results(method, training_config, s, active_jobs, done)
        return [results[index] for index in range(len(jobs))]

    def _find_descents(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        s: dict[str, TrainState],
        w_t: TrainState,
        data: Joined,
        lines: EpochLines,
    ) -> list[Descent] | None:
        """Return the descents of a step if epochs can be computed without autograd."""
        if training_config.patience is not None or self.dense is None:
            return None
        if not lines.frame.widths:
            return None
        first = data.first_batch(lines, training_config.mix)
        active = slice(len(first.x))
        return find_descents(method, _take(s, active), take(w_t, active), first)

    def _count_together(
        self, training_config: TrainingConfig, ahead: Sequence[Epoch], rows: int
    ) -> int:
        """Return the number of epochs that are computed at once.

        In these, all of the model is trained, and nothing can end training between them.
        """
        if training_config.stop_at is not None:
            return 1
        limit = max(1, ROWS_AHEAD // rows)
        together = 0
        for epoch in ahead[:limit]:
            if movable(self.model, self.layout, epoch.part) is not None:
                break
            together += 1
        return together

    def _find_over(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        s: dict[str, TrainState],
        active_jobs: list[ActiveJob],
        batch_losses: BatchLosses,
    ) -> list[int]:
        """Return the sites whose training ends here, by either rule of the training
        configuration.
        """
        over: set[int] = set()
        if batch_losses:
            losses = mean_losses(batch_losses, len(active_jobs))
            for k, active_job in enumerate(active_jobs):
                if active_job.patience.ends(losses[k]):
                    over.add(k)
        if training_config.stop_at is not None:
            sent, _ = method.finish(s)
            for k, active_job in enumerate(active_jobs):
                state = take(sent, k).state
                if reaches_accuracy(
                    training_config.stop_at, self.model, self.layout, state, active_job.job
                ):
                    over.add(k)
        return sorted(over)


def _active_jobs(jobs: list[Job], training_config: TrainingConfig) -> list[ActiveJob]:
    ends = list(accumulate((len(job.y) for job in jobs), initial=0))
    return [
        ActiveJob(job, k, ends[k], Patience(training_config.patience))
        for k, job in enumerate(jobs)
    ]


def _steps(
    method: LocalTraining,
    learn: Learner,
    s: dict[str, TrainState],
    w_t: TrainState,
    batches: Iterable[Batch],
) -> dict[str, TrainState]:
    """Return the slots after an epoch: sites leave at their last step and are put back at
    its end.
    """
    left: list[dict[str, TrainState]] = []
    for batch in batches:
        k = len(batch.x)
        if k < len(w_t.w):
            left.append(_take(s, slice(k, None)))
            s = _take(s, slice(k))
            w_t = take(w_t, slice(k))
        s = method.step(s, w_t, batch, learn)
    left.reverse()  # the last site to leave is next to those that stayed
    whole: dict[str, TrainState] = {}
    for name, at in s.items():
        removed = [slots[name] for slots in left]
        whole[name] = join([at, *removed])
    return whole


def _take(s: dict[str, TrainState], which: slice | list[int]) -> dict[str, TrainState]:
    return {name: take(at, which) for name, at in s.items()}


def _results(
    method: LocalTraining,
    training_config: TrainingConfig,
    s: dict[str, TrainState],
    active_jobs: list[ActiveJob],
    done: int,
) -> dict[int, Fitted]:
    """Return the results of the sites after ``done`` epochs, by position."""
    sent, stays = finish(method, training_config, s)
    result: dict[int, Fitted] = {}
    for k, active_job in enumerate(active_jobs):
        own = {name: take(at, k) for name, at in stays.items()}
        steps = done * math.ceil(len(active_job.job.y) / training_config.examples_per_step)
        result[active_job.position] = copy_result(take(sent, k), own, steps)
    return result
