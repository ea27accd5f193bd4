"""The training loss and the score of the majority class, beside values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import fallow as fl

QUICK: dict[str, Any] = {
    "cycles": 0,
    "initial": 0.2,
    "rounds": 3,
    "score_rounds": 2,
    "progress": False,
}


def test_the_training_loss_is_that_of_the_model_on_the_labeled_examples() -> None:
    world = fl.Federation("iris", fl.IID(), sites=3)
    run = fl.run(world, "random", training="fedavg", model="mlp", **QUICK)
    held = world.rows()
    shares = []
    for site, rows in run.labels.groupby("site"):
        x = world.dataset.x[held[site]][rows["row"].tolist()]
        outputs = run.model(x)  # type: ignore[operator]
        shares += cross_entropy(
            outputs, torch.tensor(rows["value"].tolist()).long(), reduction="none"
        ).tolist()
    expected = sum(shares) / len(shares) / math.log(3)
    assert run.records["training_loss"].iloc[-1] == pytest.approx(expected, rel=1e-5)
    counts = torch.bincount(world.dataset.y_test)
    assert run.records["majority"].iloc[-1] == pytest.approx(
        float(counts.max()) / len(world.dataset.y_test)
    )


def test_models_that_are_solved_for_have_none() -> None:
    run = fl.run("iris", "random", cycles=0, sites=3, progress=False)
    assert run.records["training_loss"].isna().all()


def test_a_run_that_learns_nothing_has_the_majority_in_its_repr() -> None:
    world = fl.Federation("diabetes", fl.IID(), sites=3)
    run = fl.run(world, "random", training="fedavg", lr=1e-9, **QUICK)
    assert "predicting the mean has 1" in repr(run)
    assert run.records["training_loss"].iloc[-1] > 0.9
