"""Batches of several sites at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from fallow.core.local import Batch
from fallow.engine.batches import Epoch, Job, Patience, mixing, order


class ActiveJob(NamedTuple):
    """A job in training.

    It has the position among all jobs, the offset of its examples in the joined data, and
    its early stopping.
    """

    job: Job
    position: int
    first: int
    patience: Patience


@final
@dataclass(frozen=True)
class Frame:
    """Lines of an epoch, step by step: a line has the examples of one active job in one step.

    Active jobs are sorted by their numbers of examples in descending order, so the active jobs of a
    step are the first k; k decreases as sites run out of examples. A last line is padded
    with an example of its own site (whose loss is finite if the site's is) with weight 0.

    widths: k of each step; steps: (K, 1) of each active job; active_job, step: (lines,) of each line;
    real: (lines, size), 1 for an example and 0 for padding.
    """

    active_jobs: Sequence[ActiveJob]
    widths: list[int]
    steps: Tensor
    active_job: Tensor
    step: Tensor
    real: Tensor

    @staticmethod
    def of(active_jobs: Sequence[ActiveJob], size: int) -> Frame:
        # (K, 1)
        n = torch.tensor([len(active_job.job.y) for active_job in active_jobs]).unsqueeze(1)
        size = max(1, min(size, int(n[0])))  # a batch beyond all rows would be padding
        steps = -(-n // size)  # (K, 1), rounded up
        number = torch.arange(int(steps[0]))  # (steps,) of the active job with most rows
        is_active = number < steps  # (K, steps)
        step, active_job = is_active.T.nonzero().unbind(1)  # (lines,) each, step after step

        rows_left = n - size * number  # (K, steps) before each step
        # (lines, size)
        is_real = torch.arange(size) < rows_left[active_job, step].unsqueeze(1)
        return Frame(
            active_jobs=active_jobs,
            widths=is_active.sum(0).tolist(),
            steps=steps,
            active_job=active_job,
            step=step,
            real=is_real,
        )

    def arrange(self, columns: Sequence[Tensor]) -> Tensor:
        """Arrange a column (n_k,) of each active job in lines, padded with 0. -> (lines, size)"""
        steps = len(self.widths)
        size = self.real.shape[1]
        # (K, n of most)
        padded = nn.utils.rnn.pad_sequence(list(columns), batch_first=True)
        spare = steps * size - padded.shape[1]
        whole = nn.functional.pad(padded, (0, spare))  # (K, steps * size)
        every_line = whole.view(-1, size)  # (K * steps, size), also those of no row
        return every_line.index_select(0, self.active_job * steps + self.step)

    @property
    def turn(self) -> Tensor:
        """Return the order of lines by step, of all lines sorted by active job. (lines,)"""
        return (self.steps.cumsum(0) - self.steps)[self.active_job, 0] + self.step


class EpochLines(NamedTuple):
    """Contents of a frame in one epoch: (lines, size) each.  rows: in the joined data."""

    frame: Frame
    epoch: Epoch
    rows: Tensor
    y: Tensor
    weight: Tensor


@final
@dataclass(frozen=True)
class Joined:
    """Examples of all jobs, one job after another. x: (n, *shape); y: (n,); weight: (n,)."""

    rows: tuple[Tensor, ...]  # of each job, (rows, *shape)
    y: Tensor
    weight: Tensor

    @staticmethod
    def of(jobs: Sequence[Job]) -> Joined:
        return Joined(
            rows=tuple(job.x for job in jobs),
            y=torch.cat([job.y for job in jobs]),
            weight=torch.cat([job.weight for job in jobs]),
        )

    @cached_property
    def x(self) -> Tensor:
        return torch.cat(self.rows)

    def lines(self, frame: Frame, epoch: Epoch) -> EpochLines:
        """Return the examples of an epoch in its order."""
        rows = frame.arrange(
            [order(active_job.job, epoch) for active_job in frame.active_jobs]
        )
        # (K,) in the joined data
        first = [active_job.first for active_job in frame.active_jobs]
        rows += torch.tensor(first)[frame.active_job].unsqueeze(1)
        flat = rows.flatten()
        y = self.y.index_select(0, flat).view_as(rows)
        weight = self.weight.index_select(0, flat).view_as(rows)
        return EpochLines(frame, epoch, rows=rows, y=y, weight=weight * frame.real)

    def first_batch(self, lines: EpochLines, mix: float | None = None) -> Batch:
        """Return the first batch of `batches`, for its shape.

        It has no examples of pools, and one example of each site represents all of them, without
        copies.
        """
        if mix is not None:
            return next(self.batches(lines, mix))
        k = lines.frame.widths[0]
        first_rows = torch.stack(
            [active_job.job.x[0] for active_job in lines.frame.active_jobs[:k]]
        )
        shape = (*lines.rows[:k].shape, *first_rows.shape[1:])
        counts = [active_job.job.counts for active_job in lines.frame.active_jobs[:k]]
        return Batch(
            x=first_rows.unsqueeze(1).expand(shape),
            y=lines.y[:k],
            weight=lines.weight[:k],
            lr=lines.epoch.lr,
            counts=torch.stack(counts),
            round=lines.epoch.round,
        )

    def batches(self, lines: EpochLines, mix: float | None = None) -> Iterator[Batch]:
        """Yield a batch (k, size, ...) for every step of an epoch.

        Examples are gathered for each step. With ``mix``, the batch contains examples of
        the pools.
        """
        frame = lines.frame
        epoch = lines.epoch
        pool_rows: _PoolRows | None = None
        if mix is not None and any(
            len(active_job.job.u) for active_job in frame.active_jobs
        ):
            size = lines.rows.shape[1]
            of_jobs = [
                _draw_pool_rows(active_job.job, epoch, size, mix)
                for active_job in frame.active_jobs
            ]
            by_column = zip(*of_jobs, strict=True)
            pool_rows = _PoolRows._make(torch.cat(parts)[frame.turn] for parts in by_column)

        # (K, C)
        counts = torch.stack([active_job.job.counts for active_job in frame.active_jobs])
        first = 0  # line of the step
        for k in frame.widths:
            of_step = slice(first, first + k)
            rows = lines.rows[of_step]  # (k, size)
            x = self.x.index_select(0, rows.flatten())  # (k size, *shape)
            batch = Batch(
                x=x.view((*rows.shape, *self.x.shape[1:])),
                y=lines.y[of_step],
                weight=lines.weight[of_step],
                lr=epoch.lr,
                counts=counts[:k],
                round=epoch.round,
            )
            if pool_rows is not None:
                batch = batch._replace(
                    u=pool_rows.u[of_step],
                    mate=pool_rows.mate[of_step],
                    beta=pool_rows.beta[of_step],
                    pool=pool_rows.pool[of_step],
                )
            yield batch
            first += k


class _PoolRows(NamedTuple):
    """Fields of `fallow.core.local.Batch` for the pool, for many lines: (lines, size, ...) each."""

    u: Tensor
    mate: Tensor
    beta: Tensor
    pool: Tensor


def _draw_pool_rows(job: Job, epoch: Epoch, size: int, mix: float) -> _PoolRows:
    """Draw the examples of the pool of a site in each step; its lines are its steps.

    At a site without a pool, a labeled example with weight 0 is used instead.
    """
    has_pool = len(job.u) > 0
    u = job.u
    if not has_pool:
        u = job.x[:1]
    rows, mate, beta = mixing(replace(job, u=u), epoch, size, mix)

    # the last step is padded to its size
    n = len(rows)
    spare = -n % size
    rows = torch.cat([rows, rows[:1].expand(spare)])
    mate = torch.cat([mate, torch.arange(size - spare, size)])  # of padding: itself
    beta = torch.cat([beta, beta[:1].expand(spare)]).to(u.dtype)
    pool = torch.zeros(n + spare, dtype=u.dtype)
    if has_pool:
        pool[:n] = 1
    return _PoolRows(
        u=u[rows].view((-1, size, *u.shape[1:])),
        mate=mate.view(-1, size),
        beta=beta.view(-1, size),
        pool=pool.view(-1, size),
    )
