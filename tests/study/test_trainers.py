"""Lines that name training, model or encoder, and head; the smallest possible p."""

from __future__ import annotations

import inspect

import pytest

import fallow as fl
from fallow.study.trainers import describe_power


@pytest.mark.long
def test_a_run_and_a_study_begin_with_what_trains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = {"cycles": 0, "sites": 3, "progress": True}
    fl.run("iris", "random", **quick)  # type: ignore[arg-type]
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(
        "1 strategy (random), 1 seed (0), 120 examples at 3 sites by partition iid; trained by "
        "closed-form (ridge) classifier on 4 features"
    )
    fl.compare("iris", ["random", "margin@training=fedavg"], seeds=2, **quick)  # type: ignore[arg-type]
    lines = capsys.readouterr().err.splitlines()
    assert "; fedavg of linear (15 rounds of 5 epochs, sgd with lr 0.1" in lines[0]
    assert lines[1] == (
        "With 2 seeds and 1 comparison, the smallest attainable p is 0.5; 6 seeds can reach 0.05."
    )


def test_the_default_number_of_seeds_can_reach_significance() -> None:
    seeds = inspect.signature(fl.compare).parameters["seeds"].default
    for strategies in (2, 3, 4):
        assert describe_power(strategies, seeds) == ""
    assert describe_power(4, seeds - 1) != ""
    assert describe_power(1, 1) == ""
