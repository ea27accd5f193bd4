import json
from collections.abc import Callable

import pytest
import torch

from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage

WHOLE = TrainingConfig(
    (TrainingStage(2, "head"), TrainingStage(3, "body")),
    128,
    Optimizer("adam", 0.1, betas=(0.8, 0.9), persist=True),
    Schedule((5, 9), 0.5, "round"),
    "scratch",
    0.99,
    ("flip", "crop4"),
    patience=5,
    mix=2.0,
)


def test_a_training_config_survives_json() -> None:
    assert TrainingConfig.from_dict(json.loads(json.dumps(WHOLE.to_dict()))) == WHOLE


def test_epochs_are_those_of_all_segments() -> None:
    assert WHOLE.epochs == 5


def test_milestones_in_epochs_count_over_rounds() -> None:
    schedule = Schedule((4,), 0.1)
    assert [schedule.at(r, e, 2) for r in range(3) for e in range(2)] == [
        1,
        1,
        1,
        1,
        0.1,
        0.1,
    ]


def test_milestones_in_rounds_ignore_epochs() -> None:
    schedule = Schedule((1, 2), 0.5, "round")
    assert [schedule.at(r, 7, 9) for r in range(4)] == [1, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("total", [1, 2, 7])
def test_a_cosine_is_that_of_torch(total: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    for epoch in range(total):
        assert Schedule(cosine=total).at(0, epoch, total) == pytest.approx(
            theirs.get_last_lr()[0]
        )
        optimizer.step()
        theirs.step()
    last = Schedule(cosine=total).at(0, total - 1, total)
    assert Schedule(cosine=total).at(5, 3, total) == last > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrainingConfig(batch_size=0), "batch_size is 0"),
        (lambda: Optimizer(lr=0.0), "lr is 0.0"),
        (lambda: Optimizer(lr=float("nan")), "lr is nan"),
        (lambda: Optimizer("sdg"), "'sdg'"),  # type: ignore[arg-type]  # misspelled
        (lambda: TrainingStage(-1), "epochs is -1"),
        (lambda: TrainingConfig(patience=0), "patience is 0; it must be at least 1"),
        (lambda: Schedule((3,), cosine=9), "the milestones .* and cosine 9; give one"),
        (lambda: Schedule(cosine=0), "cosine is 0; it must be at least 1"),
        (lambda: TrainingConfig(mix=0.0), "mix is 0.0; it must be above 0"),
        (lambda: TrainingConfig(mix=float("nan")), "mix is nan"),
    ],
)
def test_what_cannot_be_trained_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
