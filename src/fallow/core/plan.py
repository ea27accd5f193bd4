"""What local training shall do: a description that travels, never a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Optimiser:
    """The optimiser of every local step; its moments live beside the weights.

    >>> Optimiser("adam", lr=1e-3).betas
    (0.9, 0.999)
    """

    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9  # SGD only
    weight_decay: float = 0.0  # added to the gradient of parameters, never of statistics
    betas: tuple[float, float] = (0.9, 0.999)  # Adam only
    eps: float = 1e-8
    # moments survive from round to round, until a cycle starts afresh
    persist: bool = False

    def __post_init__(self) -> None:
        if self.name not in ("sgd", "adam"):
            raise ValueError(f"optimiser {self.name!r} is unknown; use 'sgd' or 'adam'")
        if not self.lr > 0:
            raise ValueError(f"learning rate {self.lr} must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum {self.momentum} must be at least 0 and below 1")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight decay {self.weight_decay} must be 0 or more")


@dataclass(frozen=True)
class Schedule:
    """The learning rate is multiplied by ``factor`` once for every milestone already reached.

    ``unit`` says what is counted inside a cycle: local epochs (AHFAL, KAFAL) or rounds (LoGo).

    >>> falling = Schedule(milestones=(10, 15), factor=0.1, unit="round")
    >>> [round(falling.at(round_, epoch=0, epochs=5), 4) for round_ in (9, 10, 15)]
    [1.0, 0.1, 0.01]
    """

    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    unit: Literal["epoch", "round"] = "epoch"

    def at(self, round_: int, epoch: int, epochs: int) -> float:
        """The multiplier in local epoch ``epoch`` of ``epochs`` of round ``round_`` (0-based).

        >>> Schedule((260,), 0.1).at(52, 0, 5), Schedule((260,), 0.1).at(51, 4, 5)
        (0.1, 1.0)
        """
        now = round_
        if self.unit == "epoch":
            now = round_ * epochs + epoch
        n_reached = sum(now >= milestone for milestone in self.milestones)
        return self.factor**n_reached


@dataclass(frozen=True)
class Segment:
    """Some epochs on one part of the model (FedRep trains the head, then the body).

    >>> Plan(segments=(Segment(3, "head"), Segment(1, "body"))).epochs
    4
    """

    epochs: int = 1
    part: Literal["all", "head", "body"] = "all"

    def __post_init__(self) -> None:
        if type(self.epochs) is not int or self.epochs < 0:
            raise ValueError(f"a segment of {self.epochs!r} epochs cannot be trained")


@dataclass(frozen=True)
class Plan:
    """Local training at a site: segments of epochs over its labelled rows.

    ``start``: ``"given"`` begins at the model that was sent, ``"scratch"`` at a fresh one drawn at
    the site; any other word is the name of a model that the site remembers.  Two rules end training
    early, after an epoch; without them every epoch is trained.  ``stop_at``: this training accuracy
    is reached (evaluation mode).  ``patience``: for so many epochs the mean training loss, over the
    steps as they were taken, was not lower than before; the last weights are kept.  ``mix``: rows
    of the pool come along with every batch, and numbers from Beta(mix, mix) to mix them with.

    >>> plan = Plan((Segment(5), Segment(2)), batch=16, optimiser=Optimiser(lr=0.05))
    >>> plan.epochs
    7
    """

    segments: tuple[Segment, ...] = (Segment(),)
    batch: int = 32
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    start: str = "given"
    stop_at: float | None = None
    augment: tuple[Literal["flip", "crop2", "crop4"], ...] = ()
    patience: int | None = None
    mix: float | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch size {self.batch} must be at least 1")
        if not self.start:
            raise ValueError(
                "a plan starts 'given', 'scratch' or at a model by its name, not ''"
            )
        if self.patience is not None and self.patience < 1:
            raise ValueError(
                f"a patience of {self.patience} epochs must be at least 1, or None"
            )
        if self.mix is not None and not self.mix > 0:
            raise ValueError(f"mix {self.mix} must be above 0, or None")

    @property
    def epochs(self) -> int:
        return sum(segment.epochs for segment in self.segments)

    def to_dict(self) -> dict[str, object]:
        """The plan as nested plain values, as messages and files have it."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Plan:  # Any: values of JSON
        """The plan that ``to_dict`` described (also after a trip through JSON, which has lists
        for tuples).  Raises TypeError for a field that a plan does not have."""
        optimiser = dict(fields["optimiser"])
        optimiser["betas"] = tuple(optimiser["betas"])
        schedule = dict(fields["schedule"])
        schedule["milestones"] = tuple(schedule["milestones"])
        nested = {
            "segments": tuple(Segment(**segment) for segment in fields["segments"]),
            "optimiser": Optimiser(**optimiser),
            "schedule": Schedule(**schedule),
            "augment": tuple(fields["augment"]),
        }
        return Plan(**{**fields, **nested})
