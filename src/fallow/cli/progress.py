"""Progress of a study: a progress bar in a terminal, and plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fallow.core.events import Event, describe_score
from fallow.core.wording import rough_duration
from fallow.settings.config import ExperimentConfig
from fallow.storage.plain import one_line
from fallow.study.progress import StudyProgress
from fallow.study.study_run import StudyRun

QUIET = 10.0  # seconds between plain lines, unless a run ends


@dataclass
class ProgressWatcher:
    """Progress display of a study."""

    config: ExperimentConfig
    cells: Sequence[StudyRun]
    console: Console
    shown: float = 0.0

    def __post_init__(self) -> None:
        self.progress = StudyProgress(self.config, self.cells)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.percentage:3.0f}%"),
            BarColumn(24),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.task = self.bar.add_task("starting", total=self.progress.total)

    def __enter__(self) -> ProgressWatcher:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Handle one event of `fallow.study.study.run_study`."""
        self.progress.take(event)
        kind = event["event"]
        text = one_line(self._text(event))
        self.bar.update(self.task, completed=self.progress.phases_done, description=text)
        now = time.monotonic()
        ends = kind in ("done", "failed", "device")
        if not self.console.is_terminal and (ends or now - self.shown > QUIET):
            self.shown = now
            line = f"{self.progress.share:4.0%}  {text}{self._time_left()}"
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)
        elif kind == "device":
            self.console.print(
                event["reason"], soft_wrap=True, markup=False, highlight=False
            )
        elif kind == "failed":
            self.console.print(text, style="red", markup=False, highlight=False)

    def _text(self, event: Event) -> str:
        head = self.progress.describe_run()
        run_name = f"{event['strategy']}, seed {event['seed']}"
        match event["event"]:
            case "round":
                rounds = self.progress.count_rounds(event["strategy"])
                detail = f"cycle {event['cycle']}, round {event['round'] + 1} of {rounds}"
            case "query":
                detail = f"cycle {event['cycle']}, selecting examples"
            case "scored":
                labels = f"cycle {event['cycle']}, {event['labeled']} labels"
                detail = f"{labels}, {describe_score(event)}"
            case "encoding":
                detail = f"encoding examples, {event['done']:,} of {event['rows']:,}"
            case "device":
                detail = event["reason"]
            case "failed":
                detail = f"failed: {event['reason']}"
            case _ if event.get("cached"):
                detail = "done before"
            case _:
                detail = "done"
        return f"{head}: {run_name}: {detail}"

    def _time_left(self) -> str:
        """Return the estimated remaining time, or "" before there is a basis for it."""
        seconds = self.progress.estimate_left()
        if seconds is None:
            return ""
        return f"  (about {rough_duration(seconds)} left)"
