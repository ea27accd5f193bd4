"""Batches of local training: every draw comes from a named random stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fallow.core.local import NONE, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.models.init import drawing_from

Streams = Callable[..., torch.Generator]


@dataclass(frozen=True)
class Job:
    """Local training of one site: its labeled examples, initial model and kept state.

    x: (n, *shape); y: (n,); weight: (n,); ``streams(*name)``: named random streams of the site;
    ``own``: state that the last `Fitted` left; ``sent``: the received model, if training starts
    from another one; counts: (C,) labels of each class; u: (m, *shape) examples of the pool, for
    training configurations that mix them in.
    """

    site: str
    x: Tensor
    y: Tensor
    weight: Tensor
    start: State
    streams: Streams
    own: dict[str, TrainState] = field(default_factory=dict)
    sent: State | None = None
    counts: Tensor = NONE
    u: Tensor = NONE


class Fitted(NamedTuple):
    """Result of local training: the model to send, the state that stays, and the number of steps.

    No tensor is shared with the job, or with another tensor here.
    """

    sent: State
    own: dict[str, TrainState]
    steps: int


class Epoch(NamedTuple):
    """One epoch to come: its number over all stages, the trainable part, the learning rate, and
    the round of the cycle in which it runs."""

    number: int
    part: str
    lr: float
    round: int = 0


def epochs(training_config: TrainingConfig, round_: int) -> Iterator[Epoch]:
    """The epochs of a training configuration in round ``round_`` (0-based), the same for every site.

    >>> from fallow.core.training_config import TrainingStage
    >>> [
    ...     (e.number, e.part)
    ...     for e in epochs(
    ...         TrainingConfig((TrainingStage(1, "head"), TrainingStage(2, "body"))), 0
    ...     )
    ... ]
    [(0, 'head'), (1, 'body'), (2, 'body')]
    """
    parts: list[str] = []  # the trainable part of each epoch
    for stage in training_config.trained_stages:
        parts += [stage.part] * stage.epochs
    for number, part in enumerate(parts):
        scale = training_config.schedule.at(round_, number, len(parts))
        yield Epoch(number, part, training_config.optimizer.learning_rate * scale, round_)


def order(job: Job, epoch: Epoch) -> Tensor:
    """The job's rows in the order in which this epoch takes them.  -> (n,)"""
    return torch.randperm(len(job.y), generator=job.streams("batches", epoch.number))


def batches(job: Job, epoch: Epoch, size: int) -> Sequence[Tensor]:
    """The rows of each step, on the device of the job; the last batch may be smaller, and without
    rows there is no step."""
    if len(job.y) == 0:
        return ()
    return torch.split(order(job, epoch).to(job.y.device), size)


class Mix(NamedTuple):
    """The second stream of an epoch: for each labeled row, in order, a row of the pool to stand
    beside it, the place in the batch of that row's partner, and its share of the mixture."""

    rows: Tensor  # (n,)
    mate: Tensor  # (n,)
    beta: Tensor  # (n,) float64


def mixing(job: Job, epoch: Epoch, size: int, concentration: float) -> Mix:
    """The pool in a new order for every epoch, from its beginning again where it is too small;
    partners are a permutation of each batch, shares are drawn from Beta(a, a)."""
    n = len(job.y)
    m = len(job.u)
    shuffled = torch.randperm(m, generator=job.streams("pool", epoch.number))
    rows = shuffled[torch.arange(n) % max(m, 1)]  # from the beginning again after m

    # a permutation of all rows, sorted by batch, permutes the places within each
    turned = torch.randperm(n, generator=job.streams("mates", epoch.number))
    by_batch = (turned // size).argsort(stable=True)
    mate = turned[by_batch] % size

    with drawing_from(job.streams("shares", epoch.number)):
        a = torch.tensor(concentration, dtype=torch.float64)
        beta = torch.distributions.Beta(a, a).sample((n,))
    return Mix(rows, mate, beta)


def augment(kinds: Sequence[str], x: Tensor, generator: torch.Generator) -> Tensor:
    """Random flips and padded crops of a batch of images.  x: (b, c, h, w) -> same shape.

    ``flip`` mirrors each image left to right with probability 1/2; ``crop2`` and ``crop4`` cut
    the image out of itself padded with 2 or 4 zeros on every side.  What is drawn is drawn on the
    CPU, wherever the images are.
    """
    check_images(kinds, x)
    drawn = [part.to(x.device) for part in draw_changes(kinds, len(x), generator)]
    return change(kinds, x, drawn)


def check_images(kinds: Sequence[str], x: Tensor) -> None:
    """Raise ValueError for rows that are no images."""
    if x.ndim != 4:
        raise ValueError(
            f"rows of shape {tuple(x.shape[1:])} cannot be augmented with "
            f"{', '.join(kinds)}: only images (channels, height, width) can; leave "
            "the training configuration's augment empty"
        )


def draw_changes(kinds: Sequence[str], n: int, generator: torch.Generator) -> list[Tensor]:
    """Draw the augmentations of n images, by kind.

    The result contains flags of mirrored images, (n,), or shifts down and to the right, (2, n).
    """
    drawn = []
    for kind in kinds:
        if kind == "flip":
            drawn.append(torch.rand(n, generator=generator) < 0.5)
        else:
            pad = int(kind.removeprefix("crop"))
            drawn.append(torch.randint(0, 2 * pad + 1, (2, n), generator=generator))
    return drawn


def change(kinds: Sequence[str], x: Tensor, drawn: Sequence[Tensor]) -> Tensor:
    """Images changed as drawn, on their device.  x: (b, c, h, w) -> same shape."""
    for kind, part in zip(kinds, drawn, strict=True):
        if kind == "flip":
            x = torch.where(part.view(-1, 1, 1, 1), x.flip(3), x)
        else:
            x = _crop(x, int(kind.removeprefix("crop")), part)
    return x


def _crop(x: Tensor, pad: int, corner: Tensor) -> Tensor:
    """corner: (2, b), where each image begins in its padded self."""
    b, c, h, w = x.shape
    here = x.device
    padded = nn.functional.pad(x, (pad, pad, pad, pad))
    top, left = corner  # (b,) each

    # indices that broadcast to (b, c, h, w)
    image = torch.arange(b, device=here).view(b, 1, 1, 1)
    channel = torch.arange(c, device=here).view(1, c, 1, 1)
    row = (top.view(b, 1) + torch.arange(h, device=here)).view(b, 1, h, 1)
    column = (left.view(b, 1) + torch.arange(w, device=here)).view(b, 1, 1, w)
    return padded[image, channel, row, column]
