"""Plain descent of several sites side by side, each step recorded once and played again.

A small network on a GPU spends its time waiting for Python to start kernels.  A CUDA graph is a
step whose kernels were recorded: they are started at once, on the same memory.  So everything that
a step reads or writes has a fixed place here (`Lane`), into which the next batch is copied.  Every
site has its lane with a stream of its own, so that sites run side by side.

All but the recording itself (`record`) is also how a lane works without CUDA, where its step is
called instead of played: that is what tests compare with `Loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor

from fallow.core.local import Batch, LocalTraining, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId
from fallow.engine.batches import (
    Epoch,
    Fitted,
    Job,
    change,
    check_images,
    draw_changes,
    epochs,
    order,
)
from fallow.engine.dropout import MaskLike, find_masks
from fallow.engine.in_flight import Tell, is_out_of_memory
from fallow.engine.learner import Autograd, movable
from fallow.engine.loop import Loop
from fallow.engine.plain import is_plain
from fallow.engine.single import SingleModel
from fallow.engine.slots import copy_result, finish, start
from fallow.models.init import drawing_from

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

MOST_LANES = 64
"""Sites that are trained side by side; of more, `Loop` trains one after another."""
WARM_UPS = 3
"""Steps before one is recorded: libraries choose kernels and take memory in the first ones."""
CHECKED = 3
"""Steps that are both played and called, to see whether both come to the same."""
APART = 1e-3
"""How far both may be apart, as a share of how far the steps went."""

Step = Callable[[], None]
"""One step on the fixed places of a lane."""


class Draws(NamedTuple):
    """What an epoch of a site has drawn, on the device: the order of rows (n,), and for each kind of
    augmentation what each of them undergoes, (..., n) in that order."""

    rows: Tensor
    changes: list[Tensor]


class Inputs(NamedTuple):
    """The fixed places of what is drawn for a batch of b rows: (b,), (..., b) each, and the masks of
    dropout in the order of a pass, with what each is like."""

    rows: Tensor
    changes: list[Tensor]
    masks: list[Tensor]
    like: list[MaskLike]


class Recorded(NamedTuple):
    """A step, its inputs, and how it is played: by calling it where nothing can be recorded."""

    inputs: Inputs
    called: Step
    played: Step


@final
class Lane:
    """The fixed places of one site, and its steps for batches of every size."""

    def __init__(
        self,
        loop: Loop,
        training_config: TrainingConfig,
        job: Job,
        slot: TrainState,
        device: torch.device,
    ) -> None:
        self.loop = loop
        self.training_config = training_config
        self.device = device
        network = SingleModel(loop.model, loop.layout, loop.autocast)
        self.learn = Autograd(network, loop.loss, training_config.optimizer)
        self.masks = find_masks(network.model)
        self.generator = torch.Generator()  # of masks
        self.steps: dict[tuple[int, str], Recorded] = {}
        self.state = TrainState._make(part.to(device).clone() for part in slot)
        self.stream: torch.cuda.Stream | None = None
        self.pool: _POOL_HANDLE | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.pool = torch.cuda.graph_pool_handle()
        self.lr = torch.zeros(1, dtype=job.start["w"].dtype, device=device)
        self.given: tuple[Tensor, int] | None = (
            None  # the rows of the job, as it brought them
        )
        self._make_room(job, len(job.y))

    def _make_room(self, job: Job, n: int) -> None:
        self.x = job.x.new_zeros((n, *job.x.shape[1:]), device=self.device)
        self.y = job.y.new_zeros(n, device=self.device)
        self.weight = job.weight.new_zeros(n, device=self.device)
        self.steps.clear()  # they were recorded on other places

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """What is done here is done in this lane's stream."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            yield

    def load(self, job: Job, state: TrainState) -> None:
        """Put the rows of a job and the slot that training starts from into their places, once all
        is done that was to be done with what stands there."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.default_stream(self.device))
        n = len(job.y)
        if n > len(self.y):
            self._make_room(job, max(n, 2 * len(self.y)))
            self.given = None
        is_new = self.given is None or self.given[0] is not job.x
        if is_new or (self.given is not None and self.given[1] != job.x._version):
            self.x[:n].copy_(job.x)
            self.given = (job.x, job.x._version)
        self.y[:n].copy_(job.y)
        self.weight[:n].copy_(job.weight)
        self.generator = job.streams("dropout")
        self.put(state)

    def put(self, state: TrainState) -> None:
        """Put a slot into the fixed places."""
        for place, part in zip(self.state, state, strict=True):
            place.copy_(part)

    def draw(self, job: Job, epoch: Epoch, steps: int) -> Draws:
        """What an epoch draws after so many steps, by the streams of `Loop`."""
        rows = order(job, epoch)
        of_steps = []  # of each step the changes of each kind
        for at, some in enumerate(
            torch.split(rows, self.training_config.examples_per_step)
        ):
            if self.training_config.augment:
                generator = job.streams("augment", steps + at)
                of_steps.append(
                    draw_changes(self.training_config.augment, len(some), generator)
                )
        changes = [torch.cat(kind, -1) for kind in zip(*of_steps, strict=True)]
        return Draws(rows.to(self.device), [part.to(self.device) for part in changes])

    def take(self, draws: Draws, first: int, part: str) -> None:
        """One step, on the batch that begins at row ``first`` of an epoch."""
        b = min(self.training_config.examples_per_step, len(draws.rows) - first)
        inputs, _, play = self.steps[b, part]
        inputs.rows.copy_(draws.rows[first : first + b])
        for place, drawn in zip(inputs.changes, draws.changes, strict=True):
            place.copy_(drawn[..., first : first + b])
        for place, like in zip(inputs.masks, inputs.like, strict=True):
            place.copy_(like.draw(self.generator))
        play()

    def prepare(self, b: int, part: str) -> None:
        """Have a step for batches of b rows that moves a part of the model.  Where it is recorded
        the slot is changed; it has to be loaded again."""
        if (b, part) in self.steps:
            return
        inputs = self._make_inputs(b)
        moves = movable(self.loop.model, self.loop.layout, part)

        def step() -> None:
            self.learn.moves = moves
            if self.masks is None:
                self.put(self.learn.descend(self.state, self._batch(inputs)))
                return
            with self.masks.giving(inputs.masks):
                self.put(self.learn.descend(self.state, self._batch(inputs)))

        played: Step = step
        if self.stream is not None:
            played = record(step, self.stream, self.pool)
        self.steps[b, part] = Recorded(inputs, step, played)

    def _make_inputs(self, b: int) -> Inputs:
        rows = torch.zeros(b, dtype=torch.int64, device=self.device)
        drawn = draw_changes(self.training_config.augment, b, torch.Generator())
        changes = [part.to(self.device) for part in drawn]
        inputs = Inputs(rows, changes, [], [])
        if self.masks is None:
            return inputs
        with self.in_turn(), self.masks.noting() as like, drawing_from(torch.Generator()):
            self.learn.descend(self.state, self._batch(inputs))
        masks = [one.draw(torch.Generator()).to(self.device) for one in like]
        return inputs._replace(masks=masks, like=like)

    def _batch(self, inputs: Inputs) -> Batch:
        """The batch whose rows and changes stand in their places."""
        x = self.x[inputs.rows]
        if self.training_config.augment:
            x = change(self.training_config.augment, x, inputs.changes)
        return Batch(
            x=self.loop.images(x),
            y=self.y[inputs.rows],
            weight=self.weight[inputs.rows],
            lr=self.lr,
        )


def record(step: Step, stream: torch.cuda.Stream, pool: _POOL_HANDLE | None) -> Step:
    """The step as a CUDA graph; calling it plays the graph in the stream that is current then."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        step()
    replay: Step = graph.replay
    return replay


@final
@dataclass
class Recorder:
    """Trains sites side by side where a method's step is plain descent."""

    loop: Loop
    device: torch.device
    tell: Tell
    is_used: bool = True
    is_checked: bool = False
    lanes: dict[tuple[SiteId, TrainingConfig], Lane] = field(default_factory=dict)

    def can_fit(
        self, method: LocalTraining, training_config: TrainingConfig, jobs: Sequence[Job]
    ) -> bool:
        """Whether every site takes plain steps only, and a fixed number of them."""
        if not self.is_used or len(jobs) > MOST_LANES:
            return False
        if (
            training_config.patience is not None
            or training_config.stop_at is not None
            or training_config.mix
        ):
            return False
        return all(_steps_plainly(method, training_config, job) for job in jobs)

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted] | None:
        """Train every job; None where recording failed, so that `Loop` has to."""
        slots = []
        for job in jobs:
            _, s = start(method, training_config, job.start, job.own, job.sent)
            slots.append(s["w"])
        try:
            lanes = self._prepare(training_config, round_, jobs, slots)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._give_up(str(error).strip().partition("\n")[0])
            return None
        if lanes is None:
            self._give_up("it came to other weights")
            return None

        steps = self._run(training_config, round_, jobs, lanes)
        self._wait(lanes)
        found = []
        for lane, taken in zip(lanes, steps, strict=True):
            sent, stays = finish(method, training_config, {"w": lane.state})
            found.append(copy_result(sent, stays, taken))
        return found

    def forget(self) -> None:
        """Give the memory back."""
        self.lanes.clear()

    def _prepare(
        self,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
        slots: Sequence[TrainState],
    ) -> list[Lane] | None:
        """The lanes with everything in its place; None where a recorded step does not what the
        called one does."""
        if training_config.augment:
            for job in jobs:
                check_images(training_config.augment, job.x)
        parts = list(dict.fromkeys(epoch.part for epoch in epochs(training_config, round_)))
        lanes = []
        for job, slot in zip(jobs, slots, strict=True):
            key = (job.site, training_config)
            if key not in self.lanes:
                self.lanes[key] = Lane(self.loop, training_config, job, slot, self.device)
            lane = self.lanes[key]
            lanes.append(lane)
            with lane.in_turn():
                lane.load(job, slot)
            for b in _sizes(len(job.y), training_config.examples_per_step):
                for part in parts:
                    lane.prepare(b, part)
            if not self.is_checked and len(job.y):
                self.is_checked = True
                if not self._agrees(lane, training_config, round_, job, slot):
                    return None
            with lane.in_turn():
                lane.load(job, slot)
        return lanes

    def _agrees(
        self,
        lane: Lane,
        training_config: TrainingConfig,
        round_: int,
        job: Job,
        slot: TrainState,
    ) -> bool:
        """Whether steps that are played come to what they come to when they are called."""
        epoch = next(epochs(training_config, round_))
        b = min(training_config.examples_per_step, len(job.y))
        inputs, called, played = lane.steps[b, epoch.part]
        ends = []
        for step in (played, called):
            with lane.in_turn():
                lane.load(job, slot)
                lane.lr.fill_(epoch.lr)
                inputs.rows.copy_(torch.arange(b))
                for _ in range(CHECKED):
                    step()
            self._wait([lane])
            ends.append(lane.state.w.clone())
        way = (ends[1] - slot.w.to(self.device)).abs().max()
        return bool((ends[0] - ends[1]).abs().max() <= APART * way)

    def _run(
        self,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
        lanes: Sequence[Lane],
    ) -> list[int]:
        """All epochs; the steps that each site took."""
        taken = [0] * len(jobs)
        for epoch in epochs(training_config, round_):
            drawn = []
            for lane, job, steps in zip(lanes, jobs, taken, strict=True):
                with lane.in_turn():
                    lane.lr.fill_(epoch.lr)
                    drawn.append(lane.draw(job, epoch, steps))
            most = max(len(job.y) for job in jobs)
            for first in range(0, most, training_config.examples_per_step):
                for at, lane in enumerate(lanes):
                    if first < len(drawn[at].rows):
                        with lane.in_turn():
                            lane.take(drawn[at], first, epoch.part)
                        taken[at] += 1
        return taken

    def _wait(self, lanes: Sequence[Lane]) -> None:
        for lane in lanes:
            if lane.stream is not None:
                lane.stream.synchronize()

    def _give_up(self, why: str) -> None:
        self.is_used = False
        self.forget()
        self.tell(
            f"device {self.device.type} could not play recorded steps ({why}); sites are trained "
            "one after another, which takes longer and comes to the same"
        )


def _steps_plainly(
    method: LocalTraining, training_config: TrainingConfig, job: Job
) -> bool:
    w_t, s = start(method, training_config, job.start, job.own, job.sent)
    if s.keys() != {"w"}:
        return False
    few = slice(0, 1)
    batch = Batch(
        job.x[few],
        job.y[few],
        job.weight[few],
        training_config.optimizer.learning_rate,
        job.counts,
    )
    return is_plain(method, s, w_t, batch)


def _sizes(n: int, batch: int) -> list[int]:
    """The sizes that batches of n rows have.

    >>> _sizes(300, 128), _sizes(256, 128), _sizes(0, 128)
    ([128, 44], [128], [])
    """
    found = []
    if n >= batch:
        found.append(batch)
    if n % batch:
        found.append(n % batch)
    return found
