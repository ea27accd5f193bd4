"""Exchanges that the agreed configuration permits, their positions in a run, and its start.

Every instruction carries the key of its exchange as typed fields. A site compares the fields with its
own copy of the configuration and rejects an instruction for a cycle, round or step that does not
exist there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import final

from fallow.core.exchange_key import ExchangeKey, StepName
from fallow.core.messages import Request
from fallow.core.refusal import Refusal
from fallow.experiment.one_pass import is_one_pass
from fallow.settings.config import ExperimentConfig

RUN = re.compile(r"([0-9a-f]{10})-[0-9a-f]{16}")
"""Name of a run: second and nanosecond of its start, and a random number."""
AHEAD = 86400  # largest lead of the coordinator's clock in seconds
ENCODING: tuple[StepName, ...] = ("cells", "encoder", "encode")
"""Imputation before encoding, fitting of the encoder, and its distribution to all sites."""
TUNING: tuple[StepName, ...] = ("targets", "tune", "encode", "features")
"""Exchanges that choose a field of the encoder by the initial labeled set, in order."""
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
INSTRUCTION: tuple[tuple[StepName, ...], ...] = (
    (
        *("hello", "describe", "cells", "encoder", "encode", "features", "initial"),
        *("tune", "round", "query", "finish"),
    ),
    ("draw",),
    ("best", "ask", "targets"),
    ("last", "close"),
    ("tally",),
    ("head",),
    ("score",),
)
"""Steps of a round, query or phase in their order."""


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
    """Exchanges of a run in order.

    ``is_tuned``: a field of the encoder is chosen by the initial labels.
    """

    config: ExperimentConfig
    is_tuned: bool = False

    def find_position(self, key: ExchangeKey) -> InstructionPosition:
        """Return the position of an instruction.

        Raises ValueError for a key that the configuration does not permit.
        """
        step = key.step
        if step == "progress":
            raise Refusal(
                f"instruction {key} belongs to no exchange of this study: sites perform only "
                "the exchanges of the agreed configuration"
            )
        cycle = key.cycle
        if key.phase == "initial" and step in ("ask", "close", "initial"):
            cycle = -1
        elif step == "finish":
            cycle = self.config.cycles
        why = self._refusal(key, cycle)
        if why:
            raise Refusal(f"instruction {key} is not part of this study: {why}")
        if key.phase == "tuned":
            phase = (-1, 2 + TUNING.index(step))
        else:
            phase = self._phase(key, cycle)
        rank: tuple[int, ...] = (*phase, _within(step), key.turn)
        if key.is_delivery:  # the delivery follows the first part of a relay
            rank += (1,)
        return InstructionPosition(key=key, cycle=cycle, rank=rank)

    def check(self, request: Request, position: InstructionPosition) -> None:
        """Raise ValueError unless the request has the owner, cycle and round of its key.

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

    def _refusal(self, key: ExchangeKey, cycle: int) -> str | None:
        """Return why the configuration has no such exchange, or None if it has."""
        config = self.config
        kind = key.step
        if key.phase == "tuned" and not self.is_tuned:
            return "no field of its encoder is chosen by labels"
        if self.is_tuned and key.phase == "initial" and kind in ("encode", "features"):
            return "a field of the encoder is chosen by the initial labels before examples are encoded"
        once = ("hello", "describe", *ENCODING, "features", "tune", "finish")
        if cycle == -1 or kind in once:
            return None
        is_query = kind in ("query", "draw", "ask", "close", "tally")
        first, last = self._cycles(is_query)
        if not first <= cycle <= last:
            what = "trains"
            if is_query:
                what = "queries"
            return f"it {what} in cycles {first} to {last}, not in {cycle}"
        if key.round >= config.rounds:
            return (
                f"a cycle has {config.rounds} rounds, numbered from 0, but no round "
                f"{key.round}"
            )
        if key.part >= config.queries_per_cycle:
            return f"a cycle has {config.queries_per_cycle} queries"
        if kind in ("draw", "tally") and not config.evaluation_fraction:
            return "no examples are drawn at random"
        scored = config.rounds - config.score_rounds
        if kind == "score" and key.round < scored:
            return f"models are scored from round {scored} on, not in round {key.round}"
        if kind == "head" and config.head != "exact":
            return "the last layer is not solved again"
        if kind in ("last", "head") and key.round < config.rounds - 1:
            return f"the final exchange follows round {config.rounds - 1}"
        return None

    def _cycles(self, is_query: bool) -> tuple[int, int]:
        """Return the first and the last cycle with queries or training."""
        last = self.config.cycles
        if is_query:  # no query follows the last training
            last -= 1
        first = 0
        if self.is_one_pass:
            first = last
        return first, last

    @cached_property
    def is_one_pass(self) -> bool:
        """Return whether examples are selected once for the budget of all cycles.

        The result is cached, because it requires building the algorithms for every instruction.
        """
        return is_one_pass(self.config)

    def _phase(self, key: ExchangeKey, cycle: int) -> tuple[int, int]:
        """Return a sort key that increases from step to step of a run.

        In a cycle, the query follows the training of the same number. With the protocol one_pass,
        training follows the query of the previous number.
        """
        kind = key.step
        if kind == "hello":
            return (-2, 0)
        if kind == "describe":
            return (-2, 1)
        if kind in ENCODING:
            return (-2, 2 + ENCODING.index(kind))
        if kind == "features":
            return (-1, 0)
        if cycle == -1:
            return (-1, 1)
        if kind == "finish":
            return (2 * cycle + 2, 0)
        if kind == "targets":
            return (2 * cycle, 0)
        if kind in ("query", "draw", "ask", "close", "tally"):
            return (2 * cycle + 1, key.part)
        return (2 * cycle, 1 + key.round)

    # -- counts ------------------------------------------------------------------------------

    @property
    def scores(self) -> int:
        """Return how often a run scores models."""
        first, last = self._cycles(is_query=False)
        return (last - first + 1) * min(self.config.score_rounds, self.config.rounds)


def _within(kind: StepName) -> int:
    """Return the position of a part of a step (`INSTRUCTION`)."""
    for at, kinds in enumerate(INSTRUCTION):
        if kind in kinds:
            return at
    raise KeyError(kind)


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
