"""Batches of several sites at once, so that they can be trained in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from fallow.core.local import Batch
from fallow.engine.batches import Epoch, Job, order


class Seat(NamedTuple):
    """A job in training, its place among all jobs, and where its rows begin in the joined data."""

    job: Job
    place: int
    first: int


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

    def batches(self, seats: Sequence[Seat], epoch: Epoch, size: int) -> list[Batch]:
        """A batch (k, size, ...) for every step of an epoch, of the first k of the seats.

        Seats are sorted by their rows, most first, so k falls as sites run out of rows.  A last
        batch is filled up with a row of its own site (whose loss is finite if the site's is) that
        weighs nothing.
        """
        blocks = [_block(seat, epoch, size) for seat in seats]
        at = torch.cat([torch.arange(len(rows)) for rows, _ in blocks])  # the step of each line
        turn = at.argsort(stable=True)
        rows = torch.cat([rows for rows, _ in blocks])[turn]
        weight = self.weight[rows] * torch.cat([real for _, real in blocks])[turn]
        widths = torch.bincount(at).tolist()
        columns = [torch.split(part, widths) for part in (self.x[rows], self.y[rows], weight)]
        return [Batch(x, y, share, epoch.lr) for x, y, share in zip(*columns, strict=True)]


def _block(seat: Seat, epoch: Epoch, size: int) -> tuple[Tensor, Tensor]:
    """A site's rows of each step, and which of them are real.  -> (steps, size), (steps, size)"""
    rows = order(seat.job, epoch) + seat.first
    n = -(-len(rows) // size) * size
    padded = torch.cat([rows, rows[:1].expand(n - len(rows))])
    return padded.view(-1, size), (torch.arange(n) < len(rows)).view(-1, size)
