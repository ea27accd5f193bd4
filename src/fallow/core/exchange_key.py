"""Keys of exchanges: their position in a run as typed fields, and one canonical text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, final

Phase = Literal[
    "hello",
    "describe",
    "initial",
    "tuned",
    "train",
    "query",
    "evaluation",
    "finish",
    "progress",
]
StepName = Literal[
    "hello",
    "describe",
    "cells",
    "encoder",
    "encode",
    "features",
    "initial",
    "tune",
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
    "progress",
]
STEPS: Mapping[Phase, tuple[StepName, ...]] = {
    "hello": ("hello",),
    "describe": ("describe",),
    "initial": ("initial", "cells", "encoder", "encode", "features", "ask", "close"),
    "tuned": ("tune", "targets", "encode", "features"),
    "train": ("round", "targets", "best", "last", "head", "score"),
    "query": ("query", "draw", "ask", "close"),
    "evaluation": ("tally",),
    "finish": ("finish",),
    "progress": ("progress",),
}
"""Steps of each phase. The first one is its main step, whose name is not part of the text."""
IN_ROUND: tuple[StepName, ...] = ("round", "best", "last", "head", "score")
"""Steps of a round of training."""
TEXT_OF: Mapping[StepName, str] = {"draw": "evaluation"}
"""Text of a step that differs from its name."""
SINGLE: Mapping[Phase, str] = {
    "hello": "0/hello",
    "describe": "0/describe",
    "initial": "0/initial",
    "tuned": "0/tuned",
    "finish": "model",
}
"""Text of the phases that a run has once."""
LARGEST = 10**9
"""Upper bound of the numbers in a key."""


@final
@dataclass(frozen=True)
class ExchangeKey:
    """Position of an exchange in a run.

    ``str(key)`` is the canonical text, used in databases, logs and digests. It is never parsed.
    Raises ValueError for fields that do not belong together.

    Parameters
    ----------
    phase
        Part of a run: ``describe`` is the description of the data, ``initial`` the initial
        labeled set, ``tuned`` the choice of an encoder's field, ``progress`` a
        progress request without effects.
    step
        Step of the phase.
    cycle
        Cycle, from 0. It is 0 in phases that a run has once.
    part
        Query in the cycle, from 0.
    round
        Round in the cycle, from 0.
    turn
        Number of earlier exchanges of the same step.
    retry
        Number of times that the phase was repeated.
    is_delivery
        Whether this is the second leg of a relay, which delivers peer messages.

    >>> key = ExchangeKey("train", "score", cycle=2, round=7)
    >>> str(key), key.step_name, key.phase_name
    ('2/train/7/score/0', '2/train/7/score', '2/train')
    >>> str(ExchangeKey("query", "query", cycle=1, part=1, turn=3, retry=2))
    '1/query-1/3~2'
    """

    phase: Phase
    step: StepName
    cycle: int = 0
    part: int = 0
    round: int = 0
    turn: int = 0
    retry: int = 0
    is_delivery: bool = False

    def __post_init__(self) -> None:
        if self.phase not in tuple(STEPS):
            raise ValueError(
                f"phase is {self.phase!r:.40}; it must be one of {', '.join(STEPS)}"
            )
        if self.step not in STEPS[self.phase]:
            raise ValueError(
                f"step is {self.step!r:.40}; the phase {self.phase} has "
                f"{', '.join(STEPS[self.phase])}"
            )
        for name in ("cycle", "part", "round", "turn", "retry"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < LARGEST:
                raise ValueError(
                    f"{name} is {_show(value)}; it must be a whole number from 0 to "
                    f"{LARGEST - 1}"
                )
        if type(self.is_delivery) is not bool:
            raise ValueError(
                f"is_delivery is {_show(self.is_delivery)}; it must be true or false"
            )
        self._check_unused()

    def _check_unused(self) -> None:
        """Raise ValueError for a number that the step does not have."""
        unused: list[str] = []
        if self.phase in SINGLE or self.phase == "progress":
            unused.append("cycle")
        if self.phase != "query" or self.step == "draw":
            unused.append("part")
        if self.step not in IN_ROUND:
            unused.append("round")
        for name in unused:
            if getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)}; the step {self.step} of the phase "
                    f"{self.phase} has none, so it must be 0"
                )

    def __str__(self) -> str:
        text = f"{self.step_name}/{self.turn}"
        if self.retry:
            text = f"{text}~{self.retry}"
        if self.is_delivery:
            return f"{text}/deliver"
        return text

    @property
    def phase_name(self) -> str:
        """Return the name of the phase in the event log, such as ``2/train``."""
        if self.phase == "progress":
            return "progress"
        if self.phase in SINGLE:
            return SINGLE[self.phase]
        if self.part:
            return f"{self.cycle}/{self.phase}-{self.part}"
        return f"{self.cycle}/{self.phase}"

    @property
    def step_name(self) -> str:
        """Return the text of the step without the numbers of its exchanges."""
        text = self.phase_name
        if self.step in IN_ROUND:
            text = f"{text}/{self.round}"
        is_main = self.step == STEPS[self.phase][0]
        if is_main and self.phase != "finish":
            return text
        return f"{text}/{TEXT_OF.get(self.step, self.step)}"

    @property
    def first(self) -> ExchangeKey:
        """Return the key of the first exchange of the same step."""
        return replace(self, turn=0, retry=0, is_delivery=False)

    @property
    def request(self) -> ExchangeKey:
        """Return the key without retries and legs, as the event log has it."""
        return replace(self, retry=0, is_delivery=False)

    @property
    def main(self) -> ExchangeKey:
        """Return the first key of the round, query or initial labeled set that a step belongs to."""
        if self.step in IN_ROUND or self.step in ("draw", "ask", "close"):
            return replace(self.first, step=STEPS[self.phase][0])
        return self.first

    def to_dict(self) -> dict[str, str | int | bool]:
        """Return the fields for a database or a message, which `read_key` reads."""
        return {name: getattr(self, name) for name in FIELDS}


FIELDS = tuple(field.name for field in fields(ExchangeKey))


def read_key(tree: object) -> ExchangeKey:
    """Return the key with the fields of `ExchangeKey.to_dict`. Raises ValueError otherwise.

    >>> read_key(ExchangeKey("evaluation", "tally", cycle=1).to_dict()).step_name
    '1/evaluation'
    """
    if not isinstance(tree, dict):
        raise ValueError(f"the key of an exchange is {_show(tree)} and has no fields")
    unknown = sorted(str(name) for name in tree.keys() - set(FIELDS))
    if unknown:
        raise ValueError(f"{unknown[0]!r:.40} is not a field of the key of an exchange")
    missing = [name for name in FIELDS if name not in tree]
    if missing:
        raise ValueError(f"the key of an exchange has no field {missing[0]!r}")
    return ExchangeKey(**tree)


def _show(value: object) -> str:
    """Return a value as text for a message; huge integers and long texts are shortened.

    >>> _show(10**5000), _show(-1)
    ('beyond all numbers', '-1')
    """
    if isinstance(value, int) and abs(value) > 10**40:
        return "beyond all numbers"
    return f"{value!r:.40}"
