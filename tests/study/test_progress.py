"""Progress of a study, and the estimate of its remaining time."""

from __future__ import annotations

import pytest

import fallow as fl
from fallow.study.progress import StudyProgress
from fallow.study.study_run import StudyRun


def test_runs_that_were_done_before_tell_nothing_of_the_time_that_is_left() -> None:
    cells = [StudyRun("random", seed) for seed in range(4)]
    progress = StudyProgress(fl.ExperimentConfig("a", rounds=4, cycles=1), cells)
    progress.started -= 10.0
    for seed in (0, 1):
        progress.take({"event": "done", "strategy": "random", "seed": seed, "cached": True})
    assert progress.share == 0.5
    assert progress.estimate_left() is None
    progress.take({"event": "scored", "strategy": "random", "seed": 2, "cycle": 0})
    assert progress.share == 0.625
    # one phase took ten seconds, three remain
    assert progress.estimate_left() == pytest.approx(30.0, abs=1.0)
    assert progress.describe_run() == "run 3 of 4"


def test_at_the_end_nothing_is_left() -> None:
    progress = StudyProgress(fl.ExperimentConfig("a", cycles=1), [StudyRun("random", 0)])
    progress.take({"event": "failed", "strategy": "random", "seed": 0, "reason": "no rows"})
    assert progress.share == 1.0
    assert progress.estimate_left() is None
