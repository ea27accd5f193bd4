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
from fallow.settings.variants import variant
from fallow.study.cell import StudyRun
from fallow.study.names import label

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
    begun: float = field(default_factory=time.monotonic)
    # phases of training that are done, by run; of one that is under way, the share of its rounds
    done: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: int = 0
    last: float = 0.0
    has_line: bool = False

    def __post_init__(self) -> None:
        if self.shown is None:
            self.shown = is_notebook() or self.to.isatty()
        # a strategy may have its own number of cycles and of rounds
        self.recipes = {cell.query: variant(self.recipe, cell.query) for cell in self.cells}

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self.has_line:
            self.to.write(f"\r{'':{WIDTH}}\r")
            self.to.flush()

    @property
    def total(self) -> int:
        """Phases of training of all runs together."""
        return sum(self._phases(cell.query) for cell in self.cells)

    def _phases(self, query: str) -> int:
        return self.recipes[query].cycles + 1

    def __call__(self, event: Event) -> None:
        """Take one event, as `fallow.study.study.run_study` tells them."""
        cell = (event["query"], event["seed"])
        kind = event["event"]
        if kind == "round":
            rounds = self.recipes[event["query"]].rounds
            self.done[cell] = event["cycle"] + (event["round"] + 1) / rounds
        elif kind in ("done", "failed"):
            self.done[cell] = self._phases(event["query"])
            self.ended += 1
        now = time.monotonic()
        if self.shown and now - self.begun > QUIET and now - self.last > AGAIN:
            self.last = now
            self.has_line = True
            self.to.write(f"\r{self._line(event, now - self.begun):{WIDTH}}")
            self.to.flush()

    def _line(self, event: Event, spent: float) -> str:
        done = sum(self.done.values()) / max(self.total, 1)
        run = f"run {min(self.ended + 1, len(self.cells))} of {len(self.cells)}"
        where = event["event"]
        if "cycle" in event:
            where = f"cycle {event['cycle']}"
        if event["event"] == "encoding":
            where = f"encoding rows, {event['done']:,} of {event['rows']:,}"
        left = ""
        if 0.03 < done < 1:
            left = f", about {duration(spent * (1 - done) / done)} left"
        name = label(str(event["query"]), {})
        text = f"fallow {done:4.0%}  {run}: {name}, seed {event['seed']}, {where}{left}"
        return text[:WIDTH]
