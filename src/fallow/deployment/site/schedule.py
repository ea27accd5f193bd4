"""Exchanges that the agreed configuration permits, their positions in a run, and its start.

Every instruction carries the key of its exchange as typed fields. A site looks the key up in the
list of exchanges that its own copy of the configuration leads to (`RunSchedule.list_exchanges`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import final

from fallow.core.exchange_key import ExchangeKey, Phase, StepName
from fallow.core.messages import Request
from fallow.core.methods import FinalTraining, Methods, methods_by_owner
from fallow.core.refusal import Refusal
from fallow.experiment.one_pass import is_one_pass
from fallow.settings.config import ExperimentConfig

RUN = re.compile(r"([0-9a-f]{10})-[0-9a-f]{16}")
"""Name of a run: second and nanosecond of its start, and a random number."""
AHEAD = 86400  # largest lead of the coordinator's clock in seconds
MOST_EXCHANGES = 250_000
"""Largest number of exchanges of a study, because a site lists them: three seconds of CPU."""
OWNER: dict[StepName, str] = {
    "hello": "annotators",
    "describe": "describe",
    "cells": "filling",
    "encoder": "encoder",
    "encode": "encoding",
    "features": "scaling",
    "initial": "initial",
    "tune": "tuning",
    "targets": "scaling",
    "round": "training",
    "best": "retention",
    "last": "training",
    "head": "head",
    "score": "annotators",
    "query": "query",
    "draw": "evaluation_set",
    "tally": "evaluation_set",
    "ask": "annotators",
    "close": "annotators",
    "finish": "annotators",
}
"""Owner of the client functions in each step of a run."""


@final
@dataclass(frozen=True)
class InstructionPosition:
    """Position of an instruction in a run.

    Parameters
    ----------
    key
        Key of the exchange.
    cycle
        Cycle, -1 for the initial labeled set.
    rank
        Increases from exchange to exchange. A repeated exchange keeps its rank (`going_back`).
    """

    key: ExchangeKey
    cycle: int
    rank: tuple[int, ...]

    @property
    def owner(self) -> str:
        """Return the owner of the client functions that an instruction at this position requests."""
        return OWNER[self.key.step]

    @property
    def step(self) -> str:
        """Return the round, query or step as text, such as ``2/query`` or ``2/train/7``."""
        return self.key.main.step_name


@final
@dataclass(frozen=True)
class RunSchedule:
    """Exchanges of a run in order, with the algorithms of a study by role."""

    config: ExperimentConfig
    methods: Methods

    def list_exchanges(self) -> Iterator[ExchangeKey]:
        """Yield the first key of every exchange of a run in order.

        A run may omit the description, scaling of targets that are not labeled, and an empty
        initial labeled set.
        """
        for key in self._list_of_all_steps():
            if key.step in self._steps:
                yield key

    def _list_of_all_steps(self) -> Iterator[ExchangeKey]:
        """Yield the exchanges of a study whose algorithms take part in every step."""
        last = self.config.cycles
        yield ExchangeKey("hello", "hello")
        yield ExchangeKey("describe", "describe")
        if "tuning" in self.methods:  # examples are encoded as the first labels tell
            yield from _list_phase("initial", "cells", "encoder", "initial", "ask", "close")
            yield from _list_phase("tuned", "targets", "tune", "encode", "features")
        else:
            yield from _list_phase("initial", "cells", "encoder", "encode", "features")
            yield from _list_phase("initial", "initial", "ask", "close")
        if self.is_one_pass:
            yield from self._list_query(last - 1)
        else:
            for cycle in range(last):
                yield from self._list_training(cycle)
                yield from self._list_query(cycle)
                yield ExchangeKey("evaluation", "tally", cycle=cycle)
        yield from self._list_training(last)
        yield ExchangeKey("finish", "finish")

    def _list_training(self, cycle: int) -> Iterator[ExchangeKey]:
        rounds = self.config.rounds
        yield ExchangeKey("train", "targets", cycle=cycle)
        for r in range(rounds):
            steps: list[StepName] = ["round", "best"]
            if r == rounds - 1:
                steps += ["last", "head"]
            if r >= rounds - self.config.score_rounds:
                steps += ["score"]
            for step in steps:
                yield ExchangeKey("train", step, cycle=cycle, round=r)

    def _list_query(self, cycle: int) -> Iterator[ExchangeKey]:
        for part in range(self.config.queries_per_cycle):
            yield ExchangeKey("query", "query", cycle=cycle, part=part)
            yield ExchangeKey("query", "draw", cycle=cycle)
            yield ExchangeKey("query", "ask", cycle=cycle, part=part)
            yield ExchangeKey("query", "close", cycle=cycle, part=part)

    @cached_property
    def _steps(self) -> frozenset[StepName]:
        """Return the steps in which an algorithm of the study takes part."""
        owners = methods_by_owner(self.methods)
        steps = {step for step, owner in OWNER.items() if owner in owners}
        training = self.methods["training"]
        if not isinstance(training, FinalTraining):
            steps.discard("last")
        if not training.contract.trains:
            steps -= {"targets", "score"}
        return frozenset(steps)

    @cached_property
    def is_one_pass(self) -> bool:
        """Return whether examples are selected once for the budget of all cycles."""
        return is_one_pass(self.config)

    @cached_property
    def _ranks(self) -> dict[ExchangeKey, int]:
        """Return the number of each exchange in the order of a run, by its first key.

        Raises Refusal for a study that has more exchanges than a site lists.
        """
        self.check_length()
        return {key: rank for rank, key in enumerate(self.list_exchanges())}

    @property
    def scores(self) -> int:
        """Return how often a run scores models."""
        return sum(key.step == "score" for key in self._ranks)

    # -- checks ------------------------------------------------------------------------------

    def check_length(self) -> None:
        """Raise Refusal for a study that has more exchanges than a site lists."""
        exchanges = islice(self.list_exchanges(), MOST_EXCHANGES + 1)
        if sum(1 for _ in exchanges) > MOST_EXCHANGES:
            raise Refusal(
                f"the agreed study has more than {MOST_EXCHANGES:,} exchanges "
                f"(cycles={self.config.cycles}, rounds={self.config.rounds}, "
                f"queries_per_cycle={self.config.queries_per_cycle}); agree on fewer"
            )

    def find_position(self, key: ExchangeKey) -> InstructionPosition:
        """Return the position of an instruction.

        Raises Refusal for a key that the configuration does not lead to.
        """
        first = self._ranks.get(key.first)
        if first is None:
            config = self.config
            raise Refusal(
                f"instruction {key} is not part of this study: the agreed configuration "
                f"leads to no step {key.step_name} (cycles={config.cycles}, "
                f"rounds={config.rounds}, score_rounds={config.score_rounds}, "
                f"queries_per_cycle={config.queries_per_cycle}); start the coordinator "
                "with the agreed study.toml and the same version of Fallow"
            )
        cycle = key.cycle
        if key.phase == "initial" and key.step in ("initial", "ask", "close"):
            cycle = -1
        elif key.step == "finish":
            cycle = self.config.cycles
        # the delivery follows the first part of a relay
        rank = (first, key.turn, int(key.is_delivery))
        return InstructionPosition(key=key, cycle=cycle, rank=rank)

    def check(self, request: Request, position: InstructionPosition) -> None:
        """Raise Refusal unless the request has the owner, cycle and round of its key.

        If a cycle has several queries, they are numbered consecutively (`Run._query`).
        """
        cycle = position.cycle
        if position.key.step == "query":
            cycle = position.cycle * self.config.queries_per_cycle + position.key.part
        elif position.key.step == "initial":
            cycle = 0
        wanted = (position.owner, cycle, position.key.round)
        if (request.owner, request.cycle, request.round) != wanted:
            raise Refusal(
                f"instruction {request.key} is of {request.owner!r} in cycle "
                f"{request.cycle}, round {request.round}; by its key it must be of "
                f"{position.owner!r} in cycle {cycle}, round {position.key.round}"
            )


def _list_phase(phase: Phase, *steps: StepName) -> Iterator[ExchangeKey]:
    for step in steps:
        yield ExchangeKey(phase, step)


# -- start of a run: encoded in its name, and checked by the site --------------------------------


def find_start(run: str) -> float | None:
    """Return the start of a run in seconds since 1970, or None for an invalid name.

    >>> find_start("003b9aca00-0123456789abcdef"), find_start("zzz")
    (1000000000.0, None)
    """
    name = RUN.fullmatch(run)
    if name is None:
        return None
    return float(int(name[1], 16))


def check_run(run: str, now: float) -> None:
    """Raise ValueError for an invalid run, or one more than a day ahead of the site's clock.

    After such a run, no run with an earlier name could be accepted.
    """
    start = find_start(run)
    if start is None:
        raise Refusal(
            f"{run!r:.80} is not a valid run name; a coordinator derives it from the "
            "start time"
        )
    if start > now + AHEAD:
        raise Refusal(
            f"run {run} starts at {format_time(start)} but the time here is "
            f"{format_time(now)}: the clock of the coordinator or of this site is "
            "wrong by more than a day; correct it, and start in a new folder if it "
            "is the coordinator's"
        )


def format_time(seconds: float) -> str:
    """Format a time as ISO text in UTC."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
    except (OverflowError, ValueError, OSError):  # outside the range of the calendar
        return f"second {seconds:.0f} since 1970"
