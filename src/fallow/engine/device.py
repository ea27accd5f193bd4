"""`Loop` on a device: examples are copied to it once, and models are copied back once per
round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, final

import torch
from torch import nn

from fallow.core.banks import Layout
from fallow.core.local import LocalTraining, RowLoss, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State
from fallow.engine.banked import RANDOM
from fallow.engine.batches import Fitted, Job
from fallow.engine.dropout import draw_on_processor, has_plain_dropout
from fallow.engine.held import HeldRows
from fallow.engine.in_flight import SitesInFlight, Tell, is_out_of_memory
from fallow.engine.loop import Loop
from fallow.engine.placement import DeviceFailed, Placement


def say_nothing(sentence: str) -> None:
    """Ignore a message."""


@final
@dataclass
class Device:
    """Train sites on a device, one after another, by the steps of `Loop`.

    Orders of examples, crops and initial weights are drawn on the CPU, so a run draws the same
    numbers on every device.  Results are those of `Loop` up to rounding.  ``tell``: receives a
    message if memory is insufficient.
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss
    channels_last: bool = False
    placement: Placement = Placement()
    tell: Tell = say_nothing
    sites: SitesInFlight = field(init=False)

    models: ClassVar[str] = "models that draw random numbers by nn.Dropout or nowhere,"

    def __post_init__(self) -> None:
        self.sites = SitesInFlight(self.placement.device.type, self._say)

    def _say(self, sentence: str) -> None:
        self.tell(sentence)  # at call time: an observer may be added later

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Device:
        return Device(model, layout, loss, channels_last)

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        for layer in model.modules():
            if isinstance(layer, RANDOM) and type(layer) is not nn.Dropout:
                return False
        return True

    @cached_property
    def cache(self) -> HeldRows:
        """Examples on the device."""
        return HeldRows(self.placement.device)

    @cached_property
    def loop(self) -> Loop:
        """The `Loop` on the device, with its own model; created once.

        Images have the memory layout of CUDA, except with dropout: masks are drawn in the order of
        memory, which must be that of the CPU.
        """
        model = draw_on_processor(self.model).to(self.placement.device)
        channels_last = self.channels_last
        if self.placement.device.type == "cuda" and not has_plain_dropout(self.model):
            channels_last = True
        return Loop(
            model,
            self.layout,
            self.loss,
            channels_last=channels_last,
            autocast=self.placement.autocast,
        )

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        """Train every job; the order of jobs does not matter.

        Raises `DeviceFailed` if not even one site fits, or if the device fails.
        """
        train = partial(self._train, method, training_config, round_)
        try:
            with self.placement.computing():
                return self.sites.train(jobs, train, self.free)
        except RuntimeError as error:
            if not is_device_error(error):
                raise
            raise DeviceFailed(describe_failure(self.placement, error)) from error

    def _train(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        placed = [self._place(job) for job in jobs]
        done = self.loop.fit(method, training_config, round_, placed)
        return [bring_back(one) for one in done]

    def _place(self, job: Job) -> Job:
        """Return the job with all tensors on the device."""
        there = self.placement.device
        own = {name: _move_slot(slot, there) for name, slot in job.own.items()}
        sent = job.sent
        if sent is not None:
            sent = _move(sent, there)
        return replace(
            job,
            x=self.cache.copy_of(job.site, "x", job.x),
            y=job.y.to(there),
            weight=job.weight.to(there),
            start=_move(job.start, there),
            own=own,
            sent=sent,
            counts=job.counts.to(there),
            u=self.cache.copy_of(job.site, "u", job.u),
        )

    def free(self) -> None:
        """Release the memory of examples on the device, and PyTorch's cache."""
        self.cache.forget()
        if self.placement.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.placement.device.type == "mps":
            torch.mps.empty_cache()


def is_device_error(error: RuntimeError) -> bool:
    """Return whether an error is from a device or its driver, and not from the code that
    ran there.

    >>> is_device_error(RuntimeError("CUDA error: unspecified launch failure"))
    True
    """
    if isinstance(error, DeviceFailed) or is_out_of_memory(error):
        return False
    accelerator = getattr(torch, "AcceleratorError", None)  # PyTorch 2.8
    if accelerator is not None and isinstance(error, accelerator):
        return True
    output = str(error)
    return any(words in output for words in ("CUDA error", "cuDNN error", "CUBLAS_STATUS"))


def describe_failure(
    placement: Placement, error: RuntimeError, doing: str = "trained"
) -> str:
    """Describe a failure and how to continue."""
    first = str(error).strip().partition("\n")[0]
    return (
        f"device {placement.device.type} failed while it {doing} ({first}); finished "
        "steps are stored: continue with --resume, or on the CPU with --resume --set "
        "device=cpu"
    )


def _move(state: State, there: torch.device) -> State:
    return {name: part.to(there) for name, part in state.items()}


def _move_slot(slot: TrainState, there: torch.device) -> TrainState:
    return TrainState._make(part.to(there) for part in slot)


def bring_back(done: Fitted) -> Fitted:
    """Return a result on the CPU."""
    here = torch.device("cpu")
    own = {name: _move_slot(slot, here) for name, slot in done.own.items()}
    return Fitted(_move(done.sent, here), own, done.steps)
