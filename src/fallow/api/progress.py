"""Progress line for terminals and notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from fallow.core.events import Event
from fallow.core.wording import duration
from fallow.settings.config import ExperimentConfig
from fallow.study.names import label
from fallow.study.progress import StudyProgress
from fallow.study.study_run import StudyRun

QUIET = 2.0  # seconds before anything is shown
AGAIN = 0.2  # seconds between two lines
WIDTH = 100  # columns; each line is padded to overwrite the last one, since notebooks only support \r


def is_notebook() -> bool:
    """Return whether the output goes to a notebook."""
    return "ipykernel" in sys.modules


@dataclass
class ProgressLine:
    """Progress display that rewrites a single line as a study proceeds.

    Parameters
    ----------
    config : ExperimentConfig
        Experiment configuration of the study.
    cells : sequence of StudyRun
        Runs of the study.
    shown : bool, optional
        Whether to show progress.  Default: only in a terminal or a notebook.
    to : TextIO, default=sys.stderr
        Output stream.
    """

    config: ExperimentConfig
    cells: Sequence[StudyRun]
    shown: bool | None = None
    to: TextIO = field(default_factory=lambda: sys.stderr)
    last: float = 0.0
    has_line: bool = False

    def __post_init__(self) -> None:
        if self.shown is None:
            self.shown = is_notebook() or self.to.isatty()
        self.progress = StudyProgress(self.config, self.cells)

    def tell(self, line: str) -> None:
        """Write a permanent line, unless it is empty or progress is hidden."""
        if self.shown and line:
            self.to.write(f"{line}\n")
            self.to.flush()

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self.has_line:
            self.to.write(f"\r{'':{WIDTH}}\r")
            self.to.flush()

    def __call__(self, event: Event) -> None:
        """Handle one event of `fallow.study.study.run_study`."""
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
            where = f"encoding examples, {event['done']:,} of {event['rows']:,}"
        left = ""
        seconds = self.progress.estimate_left()
        if seconds is not None:
            left = f", about {duration(seconds)} left"
        run = self.progress.describe_run()
        name = label(str(event["strategy"]), {})
        share = f"{self.progress.share:4.0%}"
        text = f"fallow {share}{left}  {run}: {name}, seed {event['seed']}, {where}"
        return text[:WIDTH]
