"""Local training, predictions and products of queries on a device.

Examples are copied to the device once, and models are copied back once per round.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, TypeVar, final

import torch
from torch import Generator, Tensor, nn

from fallow.core.local import LocalTraining, RowLoss, TrainState
from fallow.core.model_vectors import Layout
from fallow.core.products import taking_products_on
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId, State
from fallow.core.wording import count_noun
from fallow.engine.banked import RANDOM
from fallow.engine.batches import Fitted, Job
from fallow.engine.forward import draw_on_processor, forward, has_plain_dropout
from fallow.engine.loop import Loop, look, predict
from fallow.engine.placement import DeviceFailed, Placement

Key = tuple[SiteId, str]


@final
class DeviceCopies:
    """Examples that stay on a device until others replace them.

    Examples are identified by the tensor object and its version, because comparing numbers
    would take as long as copying them.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._of_sites: dict[Key, tuple[Tensor, int, Tensor]] = {}
        self._of_tests: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def copy_of(self, site: SiteId, name: str, rows: Tensor) -> Tensor:
        """Return the copy of a site's examples under a name; it replaces an earlier copy."""
        if rows.device == self.device:
            return rows
        known = self._of_sites.get((site, name))
        if known is not None and known[0] is rows and known[1] == rows._version:
            return known[2]
        self._of_sites.pop((site, name), None)  # release memory before it is needed again
        copy = rows.to(self.device)
        self._of_sites[site, name] = (rows, rows._version, copy)
        return copy

    def copy_of_tests(self, rows: Tensor) -> Tensor:
        """Return the copy of examples that are used repeatedly, for one tensor at a time."""
        if rows.device == self.device:
            return rows
        known = self._of_tests
        if known is not None and known[0]() is rows and known[1] == rows._version:
            return known[2]
        self._of_tests = None
        copy = rows.to(self.device)
        self._of_tests = (weakref.ref(rows), rows._version, copy)
        return copy

    def forget(self) -> None:
        """Release the memory."""
        self._of_sites.clear()
        self._of_tests = None


Tell = Callable[[str], None]
"""Reports a message to the observer of a run."""

WORDS = ("out of memory", "not enough memory", "can't allocate memory")
"""Messages of allocators without an error type of their own."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error reports insufficient memory, by its type or its message.

    >>> is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    True
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    output = str(error)
    return any(words in output for words in WORDS)


@final
@dataclass
class SitesInFlight:
    """Train jobs in groups that fit into the memory of a device.

    A group that does not fit is trained again in two halves, and so are all later ones.  Training
    changes no job, so only time is lost.
    """

    device: str
    tell: Tell
    limit: int | None = None  # sites in a group; None: all

    def train(
        self,
        jobs: Sequence[Job],
        train: Callable[[Sequence[Job]], list[Fitted]],
        free: Callable[[], None],
    ) -> list[Fitted]:
        """Train the jobs, group by group.  ``free`` releases memory.

        Raises `DeviceFailed` if not even one site fits.
        """
        result: list[Fitted] = []
        while len(result) < len(jobs):
            group = jobs[len(result) :]
            if self.limit is not None:
                group = group[: self.limit]
            done = self._try(group, train)
            if done is None:
                free()  # here, where no traceback keeps the tensors of the try
                self._halve(group)
            else:
                result += done
        return result

    def _try(
        self, group: Sequence[Job], train: Callable[[Sequence[Job]], list[Fitted]]
    ) -> list[Fitted] | None:
        """Train a group; None if memory is insufficient."""
        try:
            return train(group)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        return None

    def _halve(self, group: Sequence[Job]) -> None:
        n = len(group)
        if n == 1:
            raise DeviceFailed(
                f"device {self.device} has too little memory to train even one site (site "
                f"{group[0].site}); lower batch_size, use a smaller model, run fewer "
                "studies at once, or set device=cpu"
            )
        self.limit = n // 2
        self.tell(
            f"device {self.device} has not enough memory for {count_noun(n, 'site')} at "
            f"once: {self.limit} at a time from now on"
        )


def ignore_message(sentence: str) -> None:
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
    tell: Tell = ignore_message
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
    def cache(self) -> DeviceCopies:
        """Examples on the device."""
        return DeviceCopies(self.placement.device)

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


@final
@dataclass(frozen=True)
class ForwardPasses:
    """Forward passes in evaluation mode on a device, in full precision.

    Results are on the CPU, where all selections are made.
    """

    model: nn.Module
    layout: Layout
    placement: Placement

    @cached_property
    def there(self) -> nn.Module:
        """Model on the device; created once."""
        return draw_on_processor(self.model).to(self.placement.device)

    @cached_property
    def cache(self) -> DeviceCopies:
        """Test examples on the device."""
        return DeviceCopies(self.placement.device)

    def predict(self, state: State, x: Tensor) -> Tensor:
        """Return outputs (n, c) for examples x (n, *shape) that are used repeatedly."""
        with self.placement.computing():
            rows = self.cache.copy_of_tests(x)
            return predict(self.there, self.layout, self._place(state), rows).cpu()

    def look(self, state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (n, h) and outputs (n, c)."""
        with self.placement.computing():
            rows = x.to(self.placement.device)
            features, outputs = look(self.there, self.layout, self._place(state), rows)
            return features.cpu(), outputs.cpu()

    def forward(self, state: State, x: Tensor, draw: Generator | None = None) -> Tensor:
        """Return outputs (n, c), differentiable in ``x`` if it requires a gradient.

        Dropout draws from ``draw``, on the CPU.
        """
        with self.placement.computing():
            rows = x.to(self.placement.device)
            there = self._place(state)
            return forward(self.there, self.layout, there, rows, draw).cpu()

    def _place(self, state: State) -> State:
        return {name: state[name].to(self.placement.device) for name in ("w", "stats")}


Result = TypeVar("Result")

TRIES = 2  # the second attempt follows after the device has released cached examples


@final
@dataclass
class SelectionDevice:
    """Runs client functions with their products (`fallow.core.products`) on a device.

    Products have full precision in every setting, because distances are differences. If
    memory is insufficient, cached examples are released (``free``) and the client function
    runs again: it does not change the site and draws from named streams. If memory is still
    insufficient, the CPU computes all further products, and ``tell`` reports this.
    """

    placement: Placement
    tell: Tell
    free: Callable[[], None]
    is_used: bool = True

    def run(self, site_function: Callable[[], Result]) -> Result:
        """Run a client function and return its reply.  Raises `DeviceFailed` if the device failed."""
        if self.is_used:
            for _ in range(TRIES):
                result = self._try(site_function)
                if result is not None:
                    return result
                self.free()  # here, where no traceback keeps the tensors of the try
            self._give_up()
        with taking_products_on(None):
            return site_function()

    def _try(self, site_function: Callable[[], Result]) -> Result | None:
        """Return the reply, or None if memory is insufficient."""
        fine = replace(self.placement, precision="float32")
        try:
            with fine.computing(), taking_products_on(self.placement.device):
                return site_function()
        except RuntimeError as error:
            if is_device_error(error):
                why = describe_failure(self.placement, error, "chose rows")
                raise DeviceFailed(why) from error
            if not is_out_of_memory(error):
                raise
        return None

    def _give_up(self) -> None:
        self.is_used = False
        self.tell(
            f"device {self.placement.device.type} has too little memory to compare the "
            "examples of a query: the CPU is used from now on, which takes longer and "
            "has the same result"
        )
