"""Live progress of a study: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fallow.core.events import Event
from fallow.core.words import rough_duration
from fallow.settings.recipe import Recipe
from fallow.settings.variants import variant
from fallow.storage.plain import one_line
from fallow.study.cell import StudyRun

QUIET = 10.0  # seconds between plain lines, unless a run ends


@dataclass
class Watch:
    """Takes the events of a study and shows where it stands."""

    recipe: Recipe
    cells: Sequence[StudyRun]
    console: Console
    # phases of training, by cell; of a phase that is under way, the share of its rounds
    done: dict[tuple[str, int], float] = field(default_factory=dict)
    finished: int = 0
    before: float = 0.0  # phases of runs that were finished when the study was opened
    started: float = field(default_factory=time.monotonic)
    shown: float = 0.0

    def __post_init__(self) -> None:
        # a strategy may have its own number of cycles and of rounds
        self.recipes = {cell.query: variant(self.recipe, cell.query) for cell in self.cells}
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
        self.task = self.bar.add_task("starting", total=self.total)

    def __enter__(self) -> Watch:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    @property
    def total(self) -> int:
        """Phases of training of all runs together."""
        return sum(self._phases(cell.query) for cell in self.cells)

    def _phases(self, query: str) -> int:
        return self.recipes[query].cycles + 1

    def __call__(self, event: Event) -> None:
        """Take one event of `fallow.study.study.run_study`."""
        cell = (event["query"], event["seed"])
        kind = event["event"]
        if kind == "round":
            rounds = self.recipes[event["query"]].rounds
            self.done[cell] = event["cycle"] + (event["round"] + 1) / rounds
        elif kind == "scored":
            self.done[cell] = event["cycle"] + 1
        elif kind in ("done", "failed"):
            self.done[cell] = self._phases(event["query"])
            if event.get("cached"):
                self.before += self.done[cell]
            self.finished += 1
        text = one_line(self._text(event))
        self.bar.update(self.task, completed=sum(self.done.values()), description=text)
        now = time.monotonic()
        ends = kind in ("done", "failed", "device")
        if not self.console.is_terminal and (ends or now - self.shown > QUIET):
            self.shown = now
            line = f"{self._share():4.0%}  {text}{self._time_left()}"
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)
        elif kind == "device":
            self.console.print(event["why"], soft_wrap=True, markup=False, highlight=False)
        elif kind == "failed":
            self.console.print(
                f"{text}: {event['why']}", style="red", markup=False, highlight=False
            )

    def _text(self, event: Event) -> str:
        head = f"run {min(self.finished + 1, len(self.cells))} of {len(self.cells)}"
        what = f"{event['query']}, seed {event['seed']}"
        match event["event"]:
            case "round":
                rounds = self.recipes[event["query"]].rounds
                more = f"cycle {event['cycle']}, round {event['round'] + 1} of {rounds}"
            case "query":
                more = f"cycle {event['cycle']}, choosing rows"
            case "scored":
                if event["accuracy"] is not None:
                    good = f"accuracy {event['accuracy']:.3f}"
                else:
                    good = f"mse {event['mse']:.4g}"
                more = f"cycle {event['cycle']}, {event['labelled']} labels, {good}"
            case "encoding":
                more = f"encoding rows, {event['done']:,} of {event['rows']:,}"
            case "device":
                more = event["why"]
            case "failed":
                more = "failed"
            case _ if event.get("cached"):
                more = "done before"
            case _:
                more = "done"
        return f"{head}: {what}: {more}"

    def _share(self) -> float:
        return sum(self.done.values()) / max(self.total, 1)

    def _time_left(self) -> str:
        """How long it will take; nothing before there is something to tell it from."""
        done = sum(self.done.values())
        rest = self.total - done
        ran = done - self.before  # phases of this call
        if rest <= 0 or ran <= 0.03 * self.total:
            return ""
        spent = time.monotonic() - self.started
        return f"  (about {rough_duration(spent * rest / ran)} left)"
