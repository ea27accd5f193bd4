"""Where a run stands, on one line: in terminals and notebooks, once it takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from fallow.core.events import Event
from fallow.core.words import duration
from fallow.settings.recipe import Recipe
from fallow.study.cell import StudyRun
from fallow.study.names import label
from fallow.study.progress import StudyProgress

QUIET = 2.0  # seconds before anything is shown
AGAIN = 0.2  # seconds between two lines
WIDTH = 100  # columns; every line fills them, so that it covers the last one: notebooks know \r alone


def is_notebook() -> bool:
    """Whether a notebook shows what is written."""
    return "ipykernel" in sys.modules


@dataclass
class Progress:
    """Takes the events of a study; writes one line that replaces itself.

    shown: True, False, or None for "where somebody looks": a terminal or a notebook.
    """

    recipe: Recipe
    cells: Sequence[StudyRun]
    shown: bool | None = None
    to: TextIO = field(default_factory=lambda: sys.stderr)
    last: float = 0.0
    has_line: bool = False

    def __post_init__(self) -> None:
        if self.shown is None:
            self.shown = is_notebook() or self.to.isatty()
        self.progress = StudyProgress(self.recipe, self.cells)

    def tell(self, line: str) -> None:
        """Write a line that stays, unless it is empty or nothing is shown."""
        if self.shown and line:
            self.to.write(f"{line}\n")
            self.to.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self.has_line:
            self.to.write(f"\r{'':{WIDTH}}\r")
            self.to.flush()

    def __call__(self, event: Event) -> None:
        """Take one event, as `fallow.study.study.run_study` tells them."""
        self.progress.take(event)
        now = time.monotonic()
        is_long = now - self.progress.started > QUIET
        if self.shown and is_long and now - self.last > AGAIN:
            self.last = now
            self.has_line = True
            self.to.write(f"\r{self._line(event):{WIDTH}}")
            self.to.flush()

    def _line(self, event: Event) -> str:
        where = event["event"]
        if "cycle" in event:
            where = f"cycle {event['cycle']}"
        if event["event"] == "encoding":
            where = f"encoding rows, {event['done']:,} of {event['rows']:,}"
        left = ""
        seconds = self.progress.estimate_left()
        if seconds is not None:
            left = f", about {duration(seconds)} left"
        run = self.progress.describe_run()
        name = label(str(event["strategy"]), {})
        share = f"{self.progress.share:4.0%}"
        text = f"fallow {share}{left}  {run}: {name}, seed {event['seed']}, {where}"
        return text[:WIDTH]
