"""Which rows form which step: every draw of local training comes from a named stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fallow.core.local import Slot
from fallow.core.plan import Plan
from fallow.core.types import State

Streams = Callable[..., torch.Generator]


@dataclass(frozen=True)
class Job:
    """Local training of one site: its labelled rows, where it starts, what it kept.

    x: (n, *shape); y: (n,); weight: (n,); ``streams(*name)``: the site's named random streams.
    """

    site: str
    x: Tensor
    y: Tensor
    weight: Tensor
    start: State
    streams: Streams
    own: dict[str, Slot] = field(default_factory=dict)


class Fitted(NamedTuple):
    """What local training left: the model to send, what stays, and how many steps it took."""

    sent: State
    own: dict[str, Slot]
    steps: int


class Epoch(NamedTuple):
    """One epoch to come: its number over all segments, the trainable part, the order of rows."""

    number: int
    part: str
    order: Tensor


def epochs(plan: Plan, job: Job) -> Iterator[Epoch]:
    """The epochs of a job.  Steps are ``order.split(plan.batch)``: the last may be smaller."""
    number = 0
    for segment in plan.segments:
        for _ in range(segment.epochs if len(job.y) else 0):
            order = torch.randperm(len(job.y), generator=job.streams("batches", number))
            yield Epoch(number, segment.part, order)
            number += 1


def augment(kinds: Sequence[str], x: Tensor, generator: torch.Generator) -> Tensor:
    """Random flips and padded crops of a batch of images.  x: (b, c, h, w) -> same shape."""
    for kind in kinds:
        if kind == "flip":
            flips = torch.rand(len(x), generator=generator) < 0.5
            x = torch.where(flips.view(-1, 1, 1, 1), x.flip(3), x)
        else:
            x = _crop(x, int(kind.removeprefix("crop")), generator)
    return x


def _crop(x: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    b, _, h, w = x.shape
    padded = nn.functional.pad(x, (pad, pad, pad, pad))
    top, left = torch.randint(0, 2 * pad + 1, (2, b), generator=generator)
    i = (top.view(b, 1) + torch.arange(h)).view(b, 1, h, 1)
    j = (left.view(b, 1) + torch.arange(w)).view(b, 1, 1, w)
    return padded[torch.arange(b).view(b, 1, 1, 1), torch.arange(x.shape[1]).view(1, -1, 1, 1), i, j]
