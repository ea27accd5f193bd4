"""What a finished step of a run left, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from fallow.core.disclosure import DisclosureEntry
from fallow.core.methods import Memo
from fallow.core.types import Answer, SiteId, State
from fallow.experiment.record import Audited, Evaluation, PseudoLabels


class StepCosts(TypedDict):
    """What any step cost."""

    revealed: list[DisclosureEntry]  # what left the sites
    seconds: float


class FinishedQuery(StepCosts):
    """Rows were chosen and their labels bought."""

    memo: Memo  # what the method remembers across cycles
    # of the first labels: units of features, "mean" and "std"
    scale: NotRequired[State | None]
    encoder: NotRequired[State]  # of the first labels: what rows are encoded by
    targets: NotRequired[
        State | None
    ]  # with a choice by first labels: units of numbers to predict, "mean" () and "std" ()
    pseudo_labels: NotRequired[PseudoLabels | None]
    ended: NotRequired[str]  # at real sites: why nobody was waited for any more
    people: NotRequired[dict[SiteId, Answer]]  # and how far the people of each site came


class FinishedAudit(StepCosts):
    """What rows that were drawn by chance said of a model."""

    audit: Audited


class FinishedStop(TypedDict):
    """Whether a run ended after a cycle, and why."""

    is_over: bool
    chance: float | None  # that more labels bring too little; None: too few scores
    why: str


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


class RowsAbout(TypedDict):
    """What predicting needs to know of rows."""

    classes: Sequence[str]  # empty for numbers to predict
    columns: Sequence[str]  # names of the features of a table, else empty
    shape: Sequence[int]  # of a row as it was measured
    # features that are 1 where a cell was empty, each with the column that it marks
    marks: NotRequired[Sequence[Sequence[str]]]
    ids: NotRequired[str]  # the column of IDs; without one it is "id"


class FittedEncoder(TypedDict):
    """What an encoder was fitted to, and the digest of both."""

    state: State
    digest: str


class TrainedModel(TypedDict):
    """What the file of a trained model holds: weights, and what predicting needs beside them."""

    state: State | None  # None: sites have models of their own
    about: RowsAbout
    scale: State | None  # of features
    targets: State | None  # units of numbers to predict: "mean" () and "std" ()
    encoder: NotRequired[FittedEncoder]
    sites: NotRequired[dict[SiteId, State]]  # those that have a model of their own


class FinishedModel(TypedDict):
    """What is deployed at the end: one model, or those of ``sites`` that have their own."""

    state: State | None
    sites: NotRequired[dict[SiteId, State]]
