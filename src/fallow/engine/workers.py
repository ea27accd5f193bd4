"""`Loop` in several processes at once: for one large run of models that do not stack."""

from __future__ import annotations

import copy
import math
import multiprocessing as mp
import os
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from fallow.core.banks import Layout
from fallow.core.local import NONE, LocalTraining, RowLoss, TrainState
from fallow.core.training_config import TrainingConfig
from fallow.engine.batches import Fitted, Job
from fallow.engine.loop import Loop
from fallow.engine.processes import end_with_parent, ignore_interrupts

ROWS = ("x", "y", "weight", "counts", "u")
"""What a job brings that seldom changes from one round to the next."""


@final
@dataclass
class Workers:
    """Trains sites in processes of one thread each.

    Each process runs `Loop` over its share of the sites, so results are those of `Loop` in one
    thread, bit for bit.  Shares hold as many steps as each other.  Processes start with the first
    jobs and end with this object, or with the process that holds it; rows that a process has seen
    before are not sent to it again.  Method, model and loss must be importable by name there.
    ``processes=None``: one for each core that this process may use.
    """

    model: nn.Module
    layout: Layout
    loss: RowLoss
    channels_last: bool = False
    processes: int | None = None
    _staff: list[Worker] = field(default_factory=list, init=False, repr=False)

    models: ClassVar[str] = "every model"
    takes_all_cores: ClassVar[bool] = True

    @classmethod
    def build(
        cls, model: nn.Module, layout: Layout, loss: RowLoss, *, channels_last: bool = False
    ) -> Workers:
        return Workers(model, layout, loss, channels_last)

    @staticmethod
    def can_train(model: nn.Module) -> bool:
        return True

    def fit(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: Sequence[Job],
    ) -> list[Fitted]:
        """Train every job; the order of jobs does not matter."""
        if not self._staff:
            self._hire()
        steps = [math.ceil(len(job.y) / training_config.examples_per_step) for job in jobs]
        dealt = deal_jobs(steps, len(self._staff))
        shares: list[tuple[Worker, list[int]]] = []  # of those that have something to do
        for worker, places in zip(self._staff, dealt, strict=True):
            if places:
                shares.append((worker, places))
        try:
            for worker, share in shares:
                worker.give(
                    method, training_config, round_, [jobs[place] for place in share]
                )
            answers = [worker.pipe.recv() for worker, _ in shares]
        except (EOFError, ConnectionError) as error:
            self.close()
            raise RuntimeError(
                "a process that trains sites has ended: it was killed, perhaps for memory, or "
                "could not import the model; go on with --resume, or train with executor=loop"
            ) from error
        except BaseException:
            self.close()  # the answers of others may still be on their way
            raise
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors:
            for worker, _ in shares:
                worker.known.clear()  # it may not have come as far as the rows
            raise errors[0]
        results: dict[int, Fitted] = {}
        for (_, share), answer in zip(shares, answers, strict=True):
            fitted = change_leaves(np.ndarray, torch.from_numpy, answer)
            results |= zip(share, fitted, strict=True)
        return [results[place] for place in range(len(jobs))]

    def close(self) -> None:
        """End the processes; the next jobs start new ones."""
        dismiss(self._staff)

    def _hire(self) -> None:
        n = self.processes or os.cpu_count() or 1
        model = copy.deepcopy(self.model)  # torch moves what it sends to shared memory
        loop = Loop(model, self.layout, self.loss, self.channels_last)
        self._staff += [Worker.start(loop) for _ in range(n)]
        weakref.finalize(self, dismiss, self._staff)


@dataclass
class Worker:
    """A process as the one that started it sees it.  ``known``: the rows that it has, by site."""

    process: SpawnProcess
    pipe: Connection
    known: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    @staticmethod
    def start(loop: Loop) -> Worker:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, loop), daemon=True)
        with ignore_interrupts():
            process.start()
        theirs.close()  # so that the end of the process is the end of what can be read
        return Worker(process, ours)

    def give(
        self,
        method: LocalTraining,
        training_config: TrainingConfig,
        round_: int,
        jobs: list[Job],
    ) -> None:
        orders = []
        for job in jobs:
            bare = replace(job, x=NONE, y=NONE, weight=NONE, counts=NONE, u=NONE)
            orders.append((self.new_rows(job), bare))
        arrays = change_leaves(Tensor, Tensor.numpy, orders)
        self.pipe.send((method, training_config, round_, arrays))

    def new_rows(self, job: Job) -> dict[str, Tensor]:
        """The rows of a job that the process does not have."""
        known = self.known.setdefault(job.site, {})
        new: dict[str, Tensor] = {}
        for name in ROWS:
            rows: Tensor = getattr(job, name)
            if name not in known or not is_same(known[name], rows):
                new[name] = rows
        known |= new
        return new


def dismiss(staff: list[Worker]) -> None:
    while staff:
        worker = staff.pop()
        worker.pipe.close()
        worker.process.terminate()
        worker.process.join()


def work(pipe: Connection, loop: Loop) -> None:
    """What a process does: train the jobs that come, until nobody sends any."""
    torch.set_num_threads(1)
    end_with_parent()
    known: dict[str, dict[str, Tensor]] = {}
    while True:
        try:
            method, training_config, round_, arrays = pipe.recv()
            jobs = []
            for new, job in change_leaves(np.ndarray, torch.from_numpy, arrays):
                rows = known.setdefault(job.site, {})
                rows |= new
                jobs.append(replace(job, **rows))
            found = loop.fit(method, training_config, round_, jobs)
            pipe.send(change_leaves(Tensor, Tensor.numpy, found))
        except EOFError:
            return
        except Exception as error:  # of a method: it is raised again in the other process
            pipe.send(make_portable(error))


def make_portable(error: Exception) -> Exception:
    """An error that can be sent: errors of other modules need not survive it."""
    sent = error
    if type(error).__module__ != "builtins":
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    sent.add_note(traceback.format_exc())
    return sent


def deal_jobs(steps: Sequence[int], hands: int) -> list[list[int]]:
    """Places of jobs, dealt so that each hand has about as many steps: the longest job first, each
    to the hand with the fewest.

    >>> deal_jobs([5, 1, 3, 4, 1], 2)
    [[0, 1, 4], [3, 2]]
    """
    held: list[list[int]] = [[] for _ in range(hands)]
    total = [0] * hands
    for place in sorted(range(len(steps)), key=lambda place: -steps[place]):
        least = total.index(min(total))
        held[least].append(place)
        total[least] += steps[place]
    return held


def is_same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.dtype == b.dtype and torch.equal(a, b))


def change_leaves(kind: type, change: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with every leaf of a kind changed: tensors travel as arrays, because torch would
    move their memory to where both processes can write.

    ``Any``: what has crossed a pipe has no type, and with its leaves changed a tree has another.
    """
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {name: change_leaves(kind, change, part) for name, part in tree.items()}
    if isinstance(tree, Job):
        return replace(tree, **change_leaves(kind, change, vars(tree)))
    if isinstance(tree, tuple | list):
        parts = [change_leaves(kind, change, part) for part in tree]
        if isinstance(tree, TrainState):
            return TrainState._make(parts)
        if isinstance(tree, Fitted):
            return Fitted._make(parts)
        return parts
    return tree
