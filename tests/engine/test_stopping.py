"""When training ends early, and from which losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.engine.stopping import Patience, mean_losses
from fallow.training import FedAvg
from tests.engine.jobs import agree, jobs, linear, loop, stacked

CONFIG = TrainingConfig(
    (TrainingStage(12),), 4, Optimizer(lr=0.05, momentum=0.0), patience=2
)


def ending(epochs: int | None, losses: Sequence[float]) -> int:
    """The number of epochs after which it ends; all of them if it does not."""
    patience = Patience(epochs)
    return next((n for n, loss in enumerate(losses, 1) if patience.ends(loss)), len(losses))


@pytest.mark.parametrize(
    ("epochs", "losses", "last"),
    [
        (1, (3.0, 2.0, 2.0, 1.0), 3),  # an equal loss is not a lower one
        (
            2,
            (3.0, 4.0, 2.0, 2.5, 2.4, 1.0),
            5,
        ),  # counted from the lowest, not from the last
        (2, (3.0, 4.0, 2.0, 2.5), 4),
        (2, (1.0, float("nan"), float("nan"), 0.0), 3),  # nothing is lower than NaN
        (None, (1.0, 2.0, 3.0, 4.0), 4),
    ],
)
def test_it_ends_after_so_many_epochs_without_a_lower_loss(
    epochs: int | None, losses: Sequence[float], last: int
) -> None:
    assert ending(epochs, losses) == last


def test_the_mean_loss_weighs_rows_and_leaves_out_sites_that_had_no_step() -> None:
    heard = [
        (torch.tensor([1.0, 2.0]), torch.tensor([4.0, 3.0])),
        (torch.tensor([6.0]), torch.tensor([1.0])),
    ]
    assert mean_losses(heard, 3) == [2.0, 2.0, 0.0]
    assert mean_losses([(torch.tensor(3.0), torch.tensor(2.0))], 1) == [3.0]


def test_training_ends_when_the_loss_of_its_steps_is_no_longer_lower() -> None:
    training_config = replace(
        CONFIG, optimizer=Optimizer(lr=3.0, momentum=0.9)
    )  # it overshoots
    value = jobs(linear, (11,))
    (done,) = loop(linear).fit(FedAvg(), training_config, 0, value)
    epochs = done.steps // 3
    assert epochs < training_config.epochs
    whole = replace(training_config, stages=(TrainingStage(epochs),), patience=None)
    agree(done.sent, loop(linear).fit(FedAvg(), whole, 0, value)[0].sent, atol=0)


def test_a_loss_that_falls_trains_every_epoch() -> None:
    training_config = replace(CONFIG, batch_size=64)
    value = jobs(linear, (11, 8))
    assert [d.steps for d in loop(linear).fit(FedAvg(), training_config, 0, value)] == [
        12,
        12,
    ]


def test_sites_together_end_as_each_ends_alone() -> None:
    value = jobs(linear, (11, 5, 0, 8, 3), weighted=True)
    training_config = replace(CONFIG, optimizer=Optimizer(lr=1.5, momentum=0.9))
    ours, theirs = (
        e(linear).fit(FedAvg(), training_config, 0, value) for e in (stacked, loop)
    )
    steps = {len(job.y): alone.steps for job, alone in zip(value, theirs, strict=True)}
    assert (
        len({n // -(-rows // 4) for rows, n in steps.items() if rows}) > 1
    )  # not all at once
    for a, b in zip(ours, theirs, strict=True):
        agree(a.sent, b.sent)
        assert a.steps == b.steps
