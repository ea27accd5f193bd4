"""Progress of a study, in training phases, counted from its events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fallow.core.events import Event
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import variant
from fallow.study.study_run import StudyRun

ENOUGH = 0.03  # seconds of this process before the remaining time is displayed


@dataclass
class StudyProgress:
    """Counter of completed training phases.

    A phase is the training of one cycle, or of a bound. ``done`` has the number of phases
    by run, including the completed fraction of the current one.
    """

    config: ExperimentConfig
    cells: Sequence[StudyRun]
    done: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: int = 0  # runs
    before: float = 0.0  # phases of runs that were done when the study was opened
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # a strategy may have its own number of cycles and of rounds
        self._configs = {
            cell.strategy: variant(self.config, cell.strategy) for cell in self.cells
        }

    @property
    def total(self) -> int:
        """Number of phases of all runs."""
        return sum(self._count_phases(cell.strategy) for cell in self.cells)

    @property
    def phases_done(self) -> float:
        """Number of completed phases."""
        return sum(self.done.values())

    @property
    def share(self) -> float:
        """Return the completed fraction, from 0 to 1."""
        return self.phases_done / max(self.total, 1)

    def count_rounds(self, strategy: str) -> int:
        """Return the number of rounds in one phase of a strategy."""
        return self._configs[strategy].rounds

    def take(self, event: Event) -> None:
        """Update the counts with an event of `fallow.study.study.run_study`."""
        run = (event["strategy"], event["seed"])
        match event["event"]:
            case "round":
                rounds = self.count_rounds(event["strategy"])
                self.done[run] = event["cycle"] + (event["round"] + 1) / rounds
            case "scored":
                self.done[run] = event["cycle"] + 1
            case "done" | "failed":
                self.done[run] = self._count_phases(event["strategy"])
                self.ended += 1
                if event.get("cached"):
                    self.before += self.done[run]

    def describe_run(self) -> str:
        """Describe the current run, such as ``run 3 of 10``."""
        return f"run {min(self.ended + 1, len(self.cells))} of {len(self.cells)}"

    def estimate_left(self) -> float | None:
        """Return the seconds until the end; None before there is a basis for it, and at the
        end.
        """
        rest = self.total - self.phases_done
        ran = self.phases_done - self.before
        if rest <= 0 or ran <= ENOUGH * self.total:
            return None
        return (time.monotonic() - self.started) * rest / ran

    def _count_phases(self, strategy: str) -> int:
        return self._configs[strategy].cycles + 1
