"""Results of finished steps, as stored in the event log, and a cache of training phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from fallow.core.methods import Memo
from fallow.core.types import SiteId, State, Values
from fallow.data.example_spec import ExampleSpec
from fallow.storage.errors import StorageError
from fallow.storage.files import load_tree, save_tree, sweep

if TYPE_CHECKING:
    from fallow.experiment.record import (
        DisclosureEntry,
        Evaluation,
        PseudoLabels,
    )
    from fallow.measurements.evaluation_set import EvaluationScore
    from fallow.measurements.prediction_sets import SetRule


class StepCosts(TypedDict):
    """Cost of a step."""

    revealed: list[DisclosureEntry]  # what left the sites
    seconds: float


class FinishedQuery(StepCosts):
    """Result of a query: selected examples and acquired labels."""

    memo: Memo  # state of the strategy across cycles
    # of the initial labels: units of features, "mean" and "std"
    scale: NotRequired[State | None]
    encoder: NotRequired[State]  # state of the encoder, after the initial labels
    # with a choice by initial labels: units of regression targets, "mean" () and "std" ()
    targets: NotRequired[State | None]
    pseudo_labels: NotRequired[PseudoLabels | None]
    ended: NotRequired[str]  # at real sites: reason for the end of labeling
    annotators: NotRequired[dict[SiteId, Values]]  # labeling progress of each site


class FinishedEvaluation(StepCosts):
    """Error of a model on the evaluation set."""

    evaluation_set: EvaluationScore


class FinishedStop(TypedDict):
    """Decision to stop after a cycle, with its reason."""

    is_over: bool
    chance: float | None  # probability of too small a gain; None: too few scores
    reason: str


class PhaseResults(StepCosts):
    """Results of the rounds of a training phase, without the model."""

    rows: list[Evaluation]
    labels: dict[SiteId, list[int]]  # those that train, by class or in one number
    targets: State | None  # units of regression targets: "mean" () and "std" ()
    validation: int  # labels held back for validation, at all sites
    sums: NotRequired[Values]  # aggregates of a closed-form model, to be attacked


class TrainedPhase(PhaseResults):
    """Results of a training phase, with its model."""

    state: State


class SavedModel(TypedDict):
    """Location of a model: a checkpoint file and its SHA-256."""

    file: str
    sha256: str


class FinishedPhase(PhaseResults):
    """Training phase in the event log; with a folder, the model is a file."""

    state: State | SavedModel


class FittedEncoder(TypedDict):
    """State of a fitted encoder, and the digest of both."""

    state: State
    digest: str


class TrainedModel(TypedDict):
    """Content of a model file: weights and preprocessing."""

    state: State | None  # None: sites have personalized models
    example_spec: ExampleSpec
    scale: State | None  # of features
    targets: State | None  # units of regression targets: "mean" () and "std" ()
    encoder: NotRequired[FittedEncoder]
    sites: NotRequired[dict[SiteId, State]]  # personalized models
    prediction_sets: NotRequired[SetRule]  # with the setting coverage


class FinishedModel(TypedDict):
    """Deployed model at the end, or one model per site in ``sites``."""

    state: State | None
    sites: NotRequired[dict[SiteId, State]]


Memory = Mapping[SiteId, Mapping[str, State]]
"""Memory of each site at the end of a cycle."""


class SharedPhase(TypedDict):
    """Stored training phase."""

    done: TrainedPhase
    memory: Memory


@dataclass(frozen=True)
class Phases:
    """Folder of finished training phases; ``folder=None`` stores nothing."""

    folder: Path | None = None

    def load(self, key: str) -> SharedPhase | None:
        """Load a phase, or return None if it is missing or damaged."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            phase: SharedPhase = load_tree(path, path.parent)
        except StorageError:
            return None
        return phase

    def save(self, key: str, done: TrainedPhase, memory: Memory) -> None:
        path = self._path(key)
        if path is not None:
            sweep(path.parent, f"{path.name}.*")
            save_tree(path, SharedPhase(done=done, memory=memory))

    def _path(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{key}.safetensors"
