"""Batches of several sites at once, so that they can be trained in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from fallow.core.local import Batch
from fallow.engine.batches import Epoch, Job, mixing, order
from fallow.engine.stopping import Patience


class Seat(NamedTuple):
    """A job in training, its place among all jobs, where its rows begin in the joined data, and how
    long it waits for a lower loss."""

    job: Job
    place: int
    first: int
    patience: Patience


@final
@dataclass(frozen=True)
class Joined:
    """The rows of all jobs, one job after another.  x: (n, *shape); y: (n,); weight: (n,)."""

    x: Tensor
    y: Tensor
    weight: Tensor

    @staticmethod
    def of(jobs: Sequence[Job]) -> Joined:
        return Joined(*(torch.cat([getattr(job, name) for job in jobs])
                        for name in ("x", "y", "weight")))  # fmt: skip

    def batches(
        self, seats: Sequence[Seat], epoch: Epoch, size: int, mix: float | None = None
    ) -> list[Batch]:
        """A batch (k, size, ...) for every step of an epoch, of the first k of the seats.

        Seats are sorted by their rows, most first, so k falls as sites run out of rows.  A last
        batch is filled up with a row of its own site (whose loss is finite if the site's is) that
        weighs nothing.  With ``mix`` rows of the pools come along, filled up in the same way.
        """
        blocks = [_block(seat, epoch, size) for seat in seats]
        at = torch.cat([torch.arange(len(rows)) for rows, _ in blocks])  # the step of each line
        turn = at.argsort(stable=True)
        rows = torch.cat([rows for rows, _ in blocks])[turn]
        weight = self.weight[rows] * torch.cat([real for _, real in blocks])[turn]
        columns = [self.x[rows], self.y[rows], weight]
        if mix is not None and any(len(seat.job.u) for seat in seats):
            second = [_second(seat.job, epoch, size, mix) for seat in seats]
            columns += [torch.cat(parts)[turn] for parts in zip(*second, strict=True)]
        widths = torch.bincount(at).tolist()
        counts = torch.stack([seat.job.counts for seat in seats])
        steps = zip(*(torch.split(part, widths) for part in columns), strict=True)
        return [Batch(x, y, share, epoch.lr, counts[: len(x)], epoch.round, *more)
                for x, y, share, *more in steps]  # fmt: skip


def _block(seat: Seat, epoch: Epoch, size: int) -> tuple[Tensor, Tensor]:
    """A site's rows of each step, and which of them are real.  -> (steps, size), (steps, size)"""
    rows = order(seat.job, epoch) + seat.first
    n = -(-len(rows) // size) * size
    padded = torch.cat([rows, rows[:1].expand(n - len(rows))])
    return padded.view(-1, size), (torch.arange(n) < len(rows)).view(-1, size)


def _second(job: Job, epoch: Epoch, size: int, mix: float) -> tuple[Tensor, ...]:
    """A site's u, mate, beta and pool of each step.  -> (steps, size, ...) each

    At a site without a pool a labelled row stands in for it, and weighs nothing.
    """
    u = job.u if len(job.u) else job.x[:1]
    rows, mate, beta = mixing(replace(job, u=u), epoch, size, mix)
    n, spare = len(rows), -len(rows) % size
    rows = torch.cat([rows, rows[:1].expand(spare)])
    mate = torch.cat([mate, torch.arange(size - spare, size)])  # of padding: itself
    beta = torch.cat([beta, beta[:1].expand(spare)]).to(u.dtype)
    pool = (torch.arange(n + spare) < n).to(u.dtype) * bool(len(job.u))
    return tuple(part.view(-1, size, *part.shape[1:]) for part in (u[rows], mate, beta, pool))
