"""What a finished step of a run left, as the journal keeps it."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from fallow.core.disclosure import DisclosureEntry
from fallow.core.methods import Memo
from fallow.core.types import Answer, SiteId, State
from fallow.experiment.record import Evaluation, PseudoLabels


class StepCosts(TypedDict):
    """What any step cost."""

    revealed: list[DisclosureEntry]  # what left the sites
    seconds: float


class FinishedQuery(StepCosts):
    """Rows were chosen and their labels bought."""

    memo: Memo  # what the method remembers across cycles
    scale: NotRequired[
        State | None
    ]  # of the first labels: units of features, "mean" and "std"
    encoder: NotRequired[State]  # of the first labels: what rows are encoded by
    targets: NotRequired[
        State | None
    ]  # with a choice by first labels: units of numbers to predict, "mean" () and "std" ()
    pseudo_labels: NotRequired[PseudoLabels | None]
    ended: NotRequired[str]  # at real sites: why nobody was waited for any more
    people: NotRequired[dict[SiteId, Answer]]  # and how far the people of each site came


class PhaseResults(StepCosts):
    """What the rounds of a training phase left beside the model."""

    rows: list[Evaluation]
    labels: dict[SiteId, list[int]]  # those that train, by class or in one number
    targets: State | None  # units of numbers to predict: "mean" () and "std" ()
    held: int  # labels held back for validation, at all sites


class TrainedPhase(PhaseResults):
    """A training phase with its model at hand."""

    state: State


class SavedModel(TypedDict):
    """Where a model stands: a file among the checkpoints, and its SHA-256."""

    file: str
    sha256: str


class FinishedPhase(PhaseResults):
    """A training phase as the journal keeps it: with a folder the model is a file there."""

    state: State | SavedModel


class FinishedModel(TypedDict):
    """What is deployed at the end: one model, or those of ``sites`` that have their own."""

    state: State | None
    sites: NotRequired[dict[SiteId, State]]
