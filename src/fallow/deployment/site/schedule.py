"""Exchanges that the agreed configuration permits, and their positions in a run.

Every exchange has a key such as ``2/train/7/score/0``. A site parses the key with its own copy of
the configuration and rejects an instruction for a cycle, round or step that does not exist there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

from fallow.core.messages import Request
from fallow.core.refusal import Refusal
from fallow.experiment.one_pass import is_one_pass
from fallow.settings.recipe import Recipe
from fallow.transport.relays import ANEW, DELIVER

Part = Literal[
    "hello",
    "cells",
    "encoder",
    "encode",
    "features",
    "initial",
    "tune",
    "new",
    "targets",
    "round",
    "best",
    "last",
    "head",
    "score",
    "query",
    "draw",
    "ask",
    "close",
    "tally",
    "finish",
]
NUMBER = r"(?P<{}>0|[1-9][0-9]{{0,8}})"
TURN = NUMBER.format("turn")
CYCLE = NUMBER.format("cycle")
ROUND = NUMBER.format("round")
QUERY = rf"{CYCLE}/query(?:-(?P<part>[1-9][0-9]{{0,8}}))?"
KEYS: dict[Part, re.Pattern[str]] = {
    "hello": re.compile(rf"0/hello/{TURN}"),
    "cells": re.compile(rf"0/initial/cells/{TURN}"),
    "encoder": re.compile(rf"0/initial/encoder/{TURN}"),
    "encode": re.compile(rf"0/(?:initial|tuned)/encode/{TURN}"),
    "features": re.compile(rf"0/(?:initial|tuned)/features/{TURN}"),
    "tune": re.compile(rf"0/tuned/{TURN}"),
    "initial": re.compile(rf"0/initial/{TURN}"),
    "ask": re.compile(rf"(?:0/initial|{QUERY})/ask/{TURN}"),
    "close": re.compile(rf"(?:0/initial|{QUERY})/close/{TURN}"),
    "new": re.compile(rf"(?:{CYCLE}/train|0/tuned)/new/{TURN}"),
    "targets": re.compile(rf"(?:{CYCLE}/train|0/tuned)/targets/{TURN}"),
    "round": re.compile(rf"{CYCLE}/train/{ROUND}/{TURN}"),
    "best": re.compile(rf"{CYCLE}/train/{ROUND}/best/{TURN}"),
    "last": re.compile(rf"{CYCLE}/train/{ROUND}/last/{TURN}"),
    "head": re.compile(rf"{CYCLE}/train/{ROUND}/head/{TURN}"),
    "score": re.compile(rf"{CYCLE}/train/{ROUND}/score/{TURN}"),
    "query": re.compile(rf"{QUERY}/{TURN}"),
    "draw": re.compile(rf"{CYCLE}/query/audit/{TURN}"),
    "tally": re.compile(rf"{CYCLE}/audit/{TURN}"),
    "finish": re.compile(rf"model/finish/{TURN}"),
}
ENCODING: tuple[Part, ...] = ("cells", "encoder", "encode")
"""Imputation before encoding, fitting of the encoder, and its distribution to all sites."""
TUNED = "0/tuned"
TUNING: tuple[Part, ...] = ("new", "targets", "tune", "encode", "features")
"""Exchanges that choose a field of the encoder by the initial labeled set, in order."""
TIMES = re.compile(r"[1-9][0-9]{0,8}")
"""Number of a repetition in a key."""
OWNER: dict[Part, str] = {
    "hello": "people",
    "cells": "filling",
    "encoder": "encoder",
    "encode": "encoding",
    "features": "scaling",
    "initial": "initial",
    "tune": "tuning",
    "new": "contribution",
    "targets": "scaling",
    "round": "training",
    "best": "retention",
    "last": "training",
    "head": "head",
    "score": "people",
    "query": "query",
    "draw": "audit",
    "tally": "audit",
    "ask": "people",
    "close": "people",
    "finish": "people",
}
"""Owner of the client functions in each part of a run."""
PHASES: tuple[tuple[Part, ...], ...] = (
    (
        *("hello", "cells", "encoder", "encode", "features", "initial", "tune", "new"),
        *("round", "query", "finish"),
    ),
    ("draw",),
    ("best", "ask", "targets"),
    ("last", "close"),
    ("tally",),
    ("head",),
    ("score",),
)
"""Parts of a step in their order."""


@final
@dataclass(frozen=True)
class OrderPlace:
    """Position of an instruction in a run.

    Parameters
    ----------
    step
        Step in the event log: ``2/query`` for a query and its consequences, ``2/train/7`` for a round.
    asks
        Key without the turn.
    cycle
        Cycle, -1 for the initial labeled set.
    round
        Round in the cycle, or 0.
    part
        Part of the cycle's label budget.
    turn
        Number of earlier exchanges under the same key.
    rank
        Increases from exchange to exchange. A repeated exchange, with a key such as
        ``2/train/7/0~1``, keeps its rank (`going_back`).
    """

    kind: Part
    step: str
    asks: str
    cycle: int
    round: int
    part: int
    turn: int
    rank: tuple[int, ...]
    is_anew: bool = False

    @property
    def owner(self) -> str:
        """Return the owner of the client functions that an instruction at this position requests."""
        return OWNER[self.kind]


def _split_key(key: str) -> tuple[str, str, str]:
    """Split a key into the original key, the mark of a repetition, and its number."""
    return key.removesuffix(DELIVER).partition(ANEW)


def ends_study(key: str) -> bool:
    """Return whether a key is that of the last exchange of a study.

    >>> (
    ...     ends_study("model/finish/0"),
    ...     ends_study("model/finish/0~1"),
    ...     ends_study("2/query/0"),
    ... )
    (True, True, False)
    """
    asked, _, _ = _split_key(key)
    return KEYS["finish"].fullmatch(asked) is not None


@final
@dataclass(frozen=True)
class RunSchedule:
    """Exchanges of a run in order."""

    recipe: Recipe

    def find_position(self, key: str) -> OrderPlace:
        """Return the position of an instruction's key.

        Raises ValueError for a key that the configuration does not permit.
        """
        asked, mark, times = _split_key(key)
        is_written_so = not mark or TIMES.fullmatch(times) is not None
        for kind, pattern in KEYS.items():
            match = pattern.fullmatch(asked)
            if match is not None and is_written_so:
                return self._place(key, kind, asked, match.groupdict())
        raise Refusal(
            f"instruction {key!r:.80} belongs to no exchange of this study: sites "
            "perform only the exchanges of the agreed configuration"
        )

    def check(self, request: Request, position: OrderPlace) -> None:
        """Raise ValueError unless the request has the owner, cycle and round of its key.

        If a cycle has several queries, they are numbered consecutively (`Run._query`).
        """
        cycle = position.cycle
        if position.kind == "query":
            cycle = position.cycle * self.recipe.queries_per_cycle + position.part
        elif position.kind == "initial":
            cycle = 0
        wanted = (position.owner, cycle, position.round)
        if (request.owner, request.cycle, request.round) != wanted:
            raise Refusal(
                f"instruction {request.key} is of {request.owner!r} in cycle "
                f"{request.cycle}, round {request.round}; by its key it must be of "
                f"{position.owner!r} in cycle {cycle}, round {position.round}"
            )

    def _place(
        self, key: str, kind: Part, asked: str, groups: dict[str, str | None]
    ) -> OrderPlace:
        cycle = int(groups.get("cycle") or 0)
        round_ = int(groups.get("round") or 0)
        part = int(groups.get("part") or 0)
        turn = int(groups["turn"] or 0)
        is_first = asked.startswith("0/initial/")
        if is_first and kind in ("ask", "close", "initial"):
            cycle = -1
        elif kind == "finish":
            cycle = self.recipe.cycles
        why = self._refusal(kind, cycle=cycle, round_=round_, part=part)
        if why:
            raise Refusal(f"instruction {key} is not part of this study: {why}")
        asks = asked.rpartition("/")[0]
        step = asks
        if kind in ("draw", "ask", "close", "best", "last", "head", "score"):
            step = asks.rpartition("/")[0]
        if asked.startswith(f"{TUNED}/"):
            phase = (-1, 2 + TUNING.index(kind))
        else:
            phase = self._phase(kind, cycle=cycle, round_=round_, part=part)
        rank: tuple[int, ...] = (*phase, _within(kind), turn)
        if key.endswith(DELIVER):  # a delivery follows the sending leg of a relay
            rank += (1,)
        return OrderPlace(
            kind=kind,
            step=step,
            asks=asks,
            cycle=cycle,
            round=round_,
            part=part,
            turn=turn,
            rank=rank,
            is_anew=ANEW in key,
        )

    def _refusal(self, kind: Part, *, cycle: int, round_: int, part: int) -> str | None:
        """Return why the configuration has no such exchange, or None if it has."""
        recipe = self.recipe
        if cycle == -1 or kind in ("hello", *ENCODING, "features", "tune", "finish"):
            return None
        is_query = kind in ("query", "draw", "ask", "close", "tally")
        first, last = self._cycles(is_query)
        if not first <= cycle <= last:
            what = "trains"
            if is_query:
                what = "queries"
            return f"it {what} in cycles {first} to {last}, not in {cycle}"
        if round_ >= recipe.rounds:
            return (
                f"a cycle has {recipe.rounds} rounds, numbered from 0, but no round "
                f"{round_}"
            )
        if part >= recipe.queries_per_cycle:
            return f"a cycle has {recipe.queries_per_cycle} queries"
        if kind in ("draw", "tally") and not recipe.audit:
            return "no examples are drawn at random"
        scored = recipe.rounds - recipe.score_rounds
        if kind == "score" and round_ < scored:
            return f"models are scored from round {scored} on, not in round {round_}"
        if kind == "head" and recipe.head != "exact":
            return "the last layer is not solved again"
        if kind in ("last", "head") and round_ < recipe.rounds - 1:
            return f"the final exchange follows round {recipe.rounds - 1}"
        return None

    def _cycles(self, is_query: bool) -> tuple[int, int]:
        """Return the first and the last cycle with queries or training."""
        last = self.recipe.cycles
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
        return is_one_pass(self.recipe)

    def _phase(self, kind: Part, *, cycle: int, round_: int, part: int) -> tuple[int, int]:
        """Return a sort key that increases from step to step of a run.

        In a cycle, the query follows the training of the same number. With the protocol one_pass,
        training follows the query of the previous number.
        """
        if kind == "hello":
            return (-2, 0)
        if kind in ENCODING:
            return (-2, 1 + ENCODING.index(kind))
        if kind == "features":
            return (-1, 0)
        if cycle == -1:
            return (-1, 1)
        if kind == "finish":
            return (2 * cycle + 2, 0)
        if kind in ("new", "targets"):
            return (2 * cycle, 0)
        if kind in ("query", "draw", "ask", "close", "tally"):
            return (2 * cycle + 1, part)
        return (2 * cycle, 1 + round_)

    # -- counts ------------------------------------------------------------------------------

    @property
    def scores(self) -> int:
        """Return how often a run scores models."""
        first, last = self._cycles(is_query=False)
        return (last - first + 1) * min(self.recipe.score_rounds, self.recipe.rounds)


def _within(kind: Part) -> int:
    """Return the position of a part of a step (`PHASES`)."""
    for at, kinds in enumerate(PHASES):
        if kind in kinds:
            return at
    raise KeyError(kind)
