"""Sequential executor, one site and one step at a time, and reference for the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fallow.core.local import Batch, LocalTraining, RowLoss
from fallow.core.model_vectors import Layout
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.engine.batches import (
    Epoch,
    Fitted,
    Job,
    Patience,
    augment,
    batch_sizes,
    batches,
    epochs,
    mean_losses,
    mixing,
)
from fallow.engine.learner import Autograd, movable
from fallow.engine.optimize import copy_result, finish, start
from fallow.models.init import drawing_from
from fallow.models.norms import BATCH_NORMS, BATCH_OF_ONE, needs_two_rows


@final
class SingleModel:
    """Copy of a model in training mode, with concatenated parameters and statistics.

    ``put`` copies the given weights there. ``functional_call`` does the same, but its
    traversal of all modules takes as long as a small convolution. ``autocast``: type of
    products in training; outputs have the type of the examples. Raises ValueError for batch
    norm whose statistics are a mean over all batches, because sites could not average them.
    """

    def __init__(
        self, model: nn.Module, layout: Layout, autocast: torch.dtype | None = None
    ) -> None:
        for name, module in model.named_modules():
            if isinstance(module, BATCH_NORMS) and module.momentum is None:
                raise ValueError(
                    f"batch norm {name!r} has momentum None, a mean over all batches that "
                    "cannot be averaged over sites; set a momentum, such as 0.1"
                )
        self.source = model
        self._needs_two: bool | None = None  # not known before the first batch of one
        self.layout = layout
        self.autocast = autocast
        self.model = copy.deepcopy(model).train()
        self.state = layout.flatten(self.model)
        tensors = {
            **dict(self.model.named_parameters()),
            **dict(self.model.named_buffers()),
        }
        for name, view in layout.views(self.state["w"], self.state["stats"]).items():
            tensors[name].data = view
        self.leaves = [tensors[name].requires_grad_() for name, _ in layout.params]

    def put(self, w: Tensor, stats: Tensor) -> Sequence[Tensor]:
        self.state["w"].copy_(w)
        self.state["stats"].copy_(stats)
        return self.leaves

    def __call__(self, x: Tensor) -> Tensor:
        if self.autocast is None:
            outputs: Tensor = self.model(x)
            return outputs
        with torch.autocast(x.device.type, self.autocast, cache_enabled=False):
            rough: Tensor = self.model(x)
        return rough.to(x.dtype)

    def stats(self) -> Tensor:
        return self.state["stats"].clone()

    def needs_two_rows(self, row: Tensor) -> bool:
        """Return whether batch norm needs two examples in a batch.  row: (1, *shape)."""
        if self._needs_two is None:
            self._needs_two = needs_two_rows(self.source, row)
        return self._needs_two

    @cached_property
    def judge(self) -> SingleModel:
        """A second copy in evaluation mode, because the first one has the weights of a
        graph.
        """
        judge = SingleModel(self.source, self.layout)
        judge.model.eval()
        return judge

    @torch.no_grad()
    def predict(self, w: Tensor, stats: Tensor, x: Tensor) -> Tensor:
        self.judge.put(w, stats)
        return self.judge(x)


@final
@dataclass(frozen=True)
class Loop:
    """Train sites one after another.

    ``channels_last``: memory layout of images for convolutions on the CPU; results differ from the
    plain layout by rounding.  ``autocast``: dtype of products in training.  Model and jobs may be
    on a device; draws are made on the CPU.
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss
    channels_last: bool = False
    autocast: torch.dtype | None = None

    models: ClassVar[str] = "every model"

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Loop:
        return Loop(model, layout, loss, channels_last)

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        return True

    @cached_property
    def network(self) -> SingleModel:
        """Network of one site at a time; created once."""
        return SingleModel(self.model, self.layout, self.autocast)

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        """Train every job; the order of jobs does not matter."""
        return [self._fit(method, training_config, round_, job) for job in jobs]

    def _fit(
        self, method: LocalTraining, training_config: TrainingConfig, round_: int, job: Job
    ) -> Fitted:
        learn = Autograd(self.network, self.loss, training_config.optimizer)
        w_t, s = start(method, training_config, job.start, job.own, job.sent)
        patience = Patience(training_config.patience)
        steps = 0
        arranged = replace(job, x=self.images(job.x), u=self.images(job.u))
        with drawing_from(job.streams("dropout")):  # random numbers of the model itself
            for epoch in epochs(training_config, round_):
                learn.moves = movable(self.model, self.layout, epoch.part)
                if training_config.patience:
                    learn.batch_losses = []
                for batch in self._batches(training_config, epoch, arranged, steps):
                    s = method.step(s, w_t, batch, learn)
                    steps += 1
                if learn.batch_losses and patience.ends(
                    mean_losses(learn.batch_losses, sites=1)[0]
                ):
                    break
                if training_config.stop_at is not None:
                    at = method.finish(s)[0].state
                    if reaches_accuracy(
                        training_config.stop_at, self.model, self.layout, at, job
                    ):
                        break
        sent, stays = finish(method, training_config, s)
        return copy_result(sent, stays, steps)

    def _batches(
        self, training_config: TrainingConfig, epoch: Epoch, job: Job, steps: int
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch, after a number of earlier steps.

        If batch norm would have a single value per channel in a batch of one example, that
        example belongs to the batch before it. Raises ValueError if there is none.
        """
        joins_last = self._joins_last(job, training_config.examples_per_step)
        parts = []  # examples of the pool, their partners and coefficients by batch
        if training_config.mix and len(job.u):
            drawn = mixing(
                job, epoch, training_config.examples_per_step, training_config.mix
            )
            drawn = drawn._replace(beta=drawn.beta.to(job.x.dtype))
            sizes = batch_sizes(
                len(job.y), training_config.examples_per_step, joins_last=joins_last
            )
            parts = [torch.split(part.to(job.x.device), sizes) for part in drawn]
        steps_of_epoch = batches(
            job, epoch, training_config.examples_per_step, joins_last=joins_last
        )
        for at, rows in enumerate(steps_of_epoch):
            draw = partial(job.streams, "augment", steps + at)
            x = self._augment(training_config, job.x[rows], draw)
            batch = Batch(
                x=x,
                y=job.y[rows],
                weight=job.weight[rows],
                lr=epoch.lr,
                counts=job.counts,
                round=epoch.round,
            )
            if parts:
                second, mate, beta = (part[at] for part in parts)
                draw = partial(job.streams, "augment pool", steps + at)
                u = self._augment(training_config, job.u[second], draw)
                batch = batch._replace(
                    u=u, mate=mate, beta=beta, pool=torch.ones_like(beta)
                )
            yield batch

    def _joins_last(self, job: Job, size: int) -> bool:
        """Return whether a single example left over belongs to the batch before it."""
        n = len(job.y)
        is_single = n > 0 and (size == 1 or n % size == 1)
        if not is_single or not self.network.needs_two_rows(job.x[:1]):
            return False
        if size == 1:
            raise ValueError(BATCH_OF_ONE)
        if n == 1:
            raise ValueError(
                "a site has one labeled example, and batch norm needs two in each batch; set "
                "a larger initial labeled set (initial), or use a model without batch norm, "
                "such as nn.GroupNorm"
            )
        return True

    def _augment(
        self,
        training_config: TrainingConfig,
        x: Tensor,
        draw: Callable[[], torch.Generator],
    ) -> Tensor:
        """Return examples with the augmentations of the training configuration, if any."""
        if not training_config.augment:
            return x
        return self.images(augment(training_config.augment, x, draw()))

    def images(self, x: Tensor) -> Tensor:
        """Return examples in the memory layout of this loop."""
        if not self.channels_last or x.ndim != 4:
            return x
        x = x.contiguous(memory_format=torch.channels_last)
        _, channels, height, width = x.shape
        if channels == 1:
            # Both layouts are the same memory, and PyTorch reads the layout from the strides.
            x = x.as_strided(x.shape, (height * width, 1, width, 1))
        return x


def reaches_accuracy(
    target: float, model: nn.Module, layout: Layout, state: State, job: Job
) -> bool:
    """Return whether the model at ``state`` has this accuracy on the job; False for
    regression.
    """
    if job.y.is_floating_point() or len(job.y) == 0:
        return False
    hits = predict(model, layout, state, job.x).argmax(1) == job.y
    return bool(hits.double().mean() >= target)


@torch.no_grad()
def look(
    model: nn.Module, layout: Layout, state: State, x: Tensor, batch: int = 512
) -> tuple[Tensor, Tensor]:
    """Return features and outputs from one pass in evaluation mode, in batches.

    x: (n, *shape) -> (n, d), (n, c)
    """
    model.eval()
    views = layout.views(state["w"], state["stats"])
    named = {f"inner.{name}": part for name, part in views.items()}
    both = _Both(model)
    features = []
    outputs = []
    for rows in torch.split(x, batch):
        z, out = functional_call(both, named, (rows,))
        features.append(z)
        outputs.append(out)
    return torch.cat(features), torch.cat(outputs)


@torch.no_grad()
def predict(
    model: nn.Module, layout: Layout, state: State, x: Tensor, batch: int = 512
) -> Tensor:
    """Return the outputs of the model at ``state`` in evaluation mode, in batches.

    x: (n, *shape) -> (n, c)
    """
    model.eval()
    named = layout.views(state["w"], state["stats"])
    outputs = [functional_call(model, named, (rows,)) for rows in torch.split(x, batch)]
    return torch.cat(outputs)


class _Both(nn.Module):
    """Both parts of the model in one module, for `functional_call`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features: Tensor = self.inner.embed(x)  # type: ignore[operator]
        outputs: Tensor = self.inner.head(features)  # type: ignore[operator]
        return features, outputs
