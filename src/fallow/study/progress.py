"""How much of a study is done, counted in phases of training from the events that it tells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fallow.core.events import Event
from fallow.settings.recipe import Recipe
from fallow.settings.variants import variant
from fallow.study.cell import StudyRun

ENOUGH = 0.03  # of a study, done by this process, before it is said how long the rest takes


@dataclass
class StudyProgress:
    """Counts what is done.

    A phase is the training of one cycle, or of a bound.  ``done`` has them by run; of one that is
    under way, the share of its rounds.
    """

    recipe: Recipe
    cells: Sequence[StudyRun]
    done: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: int = 0  # runs
    before: float = 0.0  # phases of runs that were done when the study was opened
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # a strategy may have its own number of cycles and of rounds
        self._recipes = {
            cell.strategy: variant(self.recipe, cell.strategy) for cell in self.cells
        }

    @property
    def total(self) -> int:
        """Phases of all runs together."""
        return sum(self._count_phases(cell.strategy) for cell in self.cells)

    @property
    def phases_done(self) -> float:
        """Phases that are done."""
        return sum(self.done.values())

    @property
    def share(self) -> float:
        """Return the completed fraction, from 0 to 1."""
        return self.phases_done / max(self.total, 1)

    def count_rounds(self, strategy: str) -> int:
        """The rounds of one phase of a strategy."""
        return self._recipes[strategy].rounds

    def take(self, event: Event) -> None:
        """Count what one event of `fallow.study.study.run_study` tells."""
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
        """Which of the runs is under way: ``run 3 of 10``."""
        return f"run {min(self.ended + 1, len(self.cells))} of {len(self.cells)}"

    def estimate_left(self) -> float | None:
        """Seconds until the end; None before there is something to tell it from, and at the end."""
        rest = self.total - self.phases_done
        ran = self.phases_done - self.before
        if rest <= 0 or ran <= ENOUGH * self.total:
            return None
        return (time.monotonic() - self.started) * rest / ran

    def _count_phases(self, strategy: str) -> int:
        return self._recipes[strategy].cycles + 1
