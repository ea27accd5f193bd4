"""Runs of a study, and the settings that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fallow.core.names import Classes
from fallow.data.dataset import Dataset
from fallow.experiment.simulation import Runtime
from fallow.settings.config import ExperimentConfig
from fallow.storage.errors import StorageError


@dataclass(frozen=True)
class StudyRun:
    """One run of a study: a query strategy and a seed."""

    strategy: str
    seed: int

    def folder(self, out: Path) -> Path:
        return out / "cells" / self.strategy.replace("/", "_") / f"seed-{self.seed}"


@dataclass(frozen=True)
class Failure:
    """Failed run, with the reason and the traceback."""

    cell: StudyRun
    reason: str
    trace: str = ""


def build_error(failures: Sequence[Failure], runs: int) -> StorageError:
    """Return the error for failed runs out of ``runs``; its note is the first traceback."""
    first = failures[0]
    error = StorageError(
        f"{len(failures)} of {runs} runs failed; the first was {first.cell.strategy} with seed "
        f"{first.cell.seed}: {first.reason}"
    )
    error.add_note(first.trace)
    return error


@dataclass(frozen=True)
class Setup:
    """Settings that every process of a study needs."""

    config: ExperimentConfig
    out: Path
    data_dir: Path | None = None
    threads: int = 1
    runtime: Runtime = "inprocess"
    dataset: Dataset | None = (
        None  # the dataset, if it is loaded; otherwise the configuration names it
    )
    classes: Classes = field(default_factory=dict)  # of the user who runs the study
