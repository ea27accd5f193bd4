"""Progress lines of a study that runs in the foreground."""

from __future__ import annotations

import io

from rich.console import Console

import fallow as fl
from fallow.cli.progress import ProgressWatcher
from fallow.study.study_run import StudyRun

CLOSED = "random@training=closed-form"


def test_a_failed_run_is_told_with_its_reason() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=200)
    runs = [StudyRun("random", 0)]
    with ProgressWatcher(fl.ExperimentConfig("a", cycles=1), runs, console) as watch:
        watch(
            {
                "event": "failed",
                "strategy": "random",
                "seed": 0,
                "reason": "the disk is full",
            }
        )
    assert "random, seed 0: failed: the disk is full" in screen.getvalue()


def test_the_rounds_of_a_line_are_those_of_the_strategy() -> None:
    screen = io.StringIO()
    cells = [StudyRun("random", 0), StudyRun(CLOSED, 0)]
    console = Console(file=screen, width=200)
    with ProgressWatcher(
        fl.ExperimentConfig("a", rounds=4, cycles=1), cells, console
    ) as watch:
        for strategy in (CLOSED, "random"):
            watch.shown = -100.0  # time of the next line
            watch(
                {"event": "round", "strategy": strategy, "seed": 0, "cycle": 0, "round": 0}
            )
    first, second = screen.getvalue().splitlines()
    assert first.startswith(" 25%")
    assert "cycle 0, round 1 of 1" in first
    assert second.startswith(" 31%")
    assert "cycle 0, round 1 of 4" in second
