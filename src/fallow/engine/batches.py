"""Epochs of local training: batches from named random streams, and early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
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
    """A coming epoch.

    It has its number over all stages, the trainable part, the learning rate, and the round
    of the cycle.
    """

    number: int
    part: str
    lr: float
    round: int = 0


def epochs(training_config: TrainingConfig, round_: int) -> Iterator[Epoch]:
    """Return the epochs of a training configuration in round ``round_`` (0-based), equal
    for all sites.

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
    """Return the positions of the job's examples in the order of this epoch. -> (n,)"""
    return torch.randperm(len(job.y), generator=job.streams("batches", epoch.number))


def batch_sizes(n: int, size: int, *, joins_last: bool = False) -> list[int]:
    """Return the number of examples of each batch; the last one may be smaller.

    joins_last: a single example left over belongs to the batch before it.

    >>> batch_sizes(17, 8), batch_sizes(17, 8, joins_last=True)
    ([8, 8, 1], [8, 9])
    """
    sizes = [size] * (n // size)
    rest = n % size
    if rest == 1 and sizes and joins_last:
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def batches(
    job: Job, epoch: Epoch, size: int, *, joins_last: bool = False
) -> Sequence[Tensor]:
    """Return the positions of each step, on the device of the job.

    The last batch may be smaller, and without examples there is no step. joins_last: see
    `batch_sizes`.
    """
    if len(job.y) == 0:
        return ()
    positions = order(job, epoch).to(job.y.device)
    return torch.split(positions, batch_sizes(len(job.y), size, joins_last=joins_last))


class Mixup(NamedTuple):
    """Examples of the pool for mixup in one epoch.

    For each labeled example in order, there is an example of the pool, the position in the
    batch of its partner, and its mixing coefficient.
    """

    rows: Tensor  # (n,)
    mate: Tensor  # (n,)
    beta: Tensor  # (n,) float64


def mixing(job: Job, epoch: Epoch, size: int, concentration: float) -> Mixup:
    """Draw the examples of the pool for one epoch.

    The pool has a new order in every epoch, and is repeated if it is too small. Partners
    are a permutation of each batch, and coefficients are drawn from Beta(a, a).
    """
    n = len(job.y)
    m = len(job.u)
    shuffled = torch.randperm(m, generator=job.streams("pool", epoch.number))
    rows = shuffled[torch.arange(n) % max(m, 1)]  # repeated after m

    # a permutation of all examples, sorted by batch, permutes the positions within each
    turned = torch.randperm(n, generator=job.streams("mates", epoch.number))
    by_batch = (turned // size).argsort(stable=True)
    mate = turned[by_batch] % size

    with drawing_from(job.streams("shares", epoch.number)):
        a = torch.tensor(concentration, dtype=torch.float64)
        beta = torch.distributions.Beta(a, a).sample((n,))
    return Mixup(rows, mate, beta)


def augment(kinds: Sequence[str], x: Tensor, generator: torch.Generator) -> Tensor:
    """Apply random flips and padded crops to a batch of images. x: (b, c, h, w) -> same
    shape.

    ``flip`` mirrors each image horizontally with probability 1/2.  ``crop2`` and ``crop4``
    crop the image after padding with 2 or 4 zeros on every side.  Random numbers are drawn
    on the CPU, also for images on a device.
    """
    check_images(kinds, x)
    drawn = [part.to(x.device) for part in draw_changes(kinds, len(x), generator)]
    return change(kinds, x, drawn)


def check_images(kinds: Sequence[str], x: Tensor) -> None:
    """Raise ValueError for examples that are not images."""
    if x.ndim != 4:
        raise ValueError(
            f"examples of shape {tuple(x.shape[1:])} cannot be augmented with "
            f"{', '.join(kinds)}, which requires images (channels, height, width); leave "
            "augment empty in the training configuration"
        )


def draw_changes(
    kinds: Sequence[str], n: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Draw the augmentations of n images, by kind.

    The result contains flags of mirrored images, (n,), or shifts down and to the right, (2, n).
    """
    for kind in kinds:
        if kind == "flip":
            yield torch.rand(n, generator=generator) < 0.5
        else:
            pad = int(kind.removeprefix("crop"))
            yield torch.randint(0, 2 * pad + 1, (2, n), generator=generator)


def change(kinds: Sequence[str], x: Tensor, drawn: Sequence[Tensor]) -> Tensor:
    """Return images with these augmentations, on their device. x: (b, c, h, w) -> same
    shape.
    """
    for kind, part in zip(kinds, drawn, strict=True):
        if kind == "flip":
            x = torch.where(part.view(-1, 1, 1, 1), x.flip(3), x)
        else:
            x = _crop(x, int(kind.removeprefix("crop")), part)
    return x


def _crop(x: Tensor, pad: int, corner: Tensor) -> Tensor:
    """Crop images. corner: (2, b), position of each crop in the padded image."""
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


BatchLosses = list[tuple[Tensor, Tensor]]
"""Losses of the gradients of an epoch, each with its number of examples.

Losses have shape () for one site, and (k,) for the first k of several.
"""


def mean_losses(batch_losses: BatchLosses, sites: int) -> list[float]:
    """Return the mean over the examples of an epoch for each site; 0 without examples.

    >>> mean_losses(
    ...     [
    ...         (torch.tensor([1.0, 2.0]), torch.tensor([4.0, 3.0])),
    ...         (torch.tensor([6.0]), torch.tensor([1.0])),
    ...     ],
    ...     2,
    ... )
    [2.0, 2.0]
    """
    total, rows = torch.zeros(2, sites, dtype=torch.float64)
    for loss, n in batch_losses:
        total[: loss.numel()] += (loss * n).cpu()
        rows[: loss.numel()] += n.cpu()
    means: list[float] = (total / rows.clamp_min(1)).tolist()
    return means


@dataclass
class Patience:
    """Counter of epochs since the mean training loss of a site reached its minimum."""

    epochs: int | None  # number of epochs without improvement; None: unlimited
    best: float = inf
    waited: int = 0

    def ends(self, loss: float) -> bool:
        """Return whether the epoch with this loss is the last one."""
        if loss < self.best:
            self.best = loss
            self.waited = 0
        else:
            self.waited += 1
        return self.epochs is not None and self.waited >= self.epochs
