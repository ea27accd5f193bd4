"""The training configuration of a training algorithm, as an object or by keywords."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fallow import training
from fallow.core.build import names
from fallow.core.step_training import StepTraining
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.training import FedAvg, FedProx, personal

WHOLE = TrainingConfig(
    (TrainingStage(3),), 8, Optimizer("sgd", lr=0.2, momentum=0.5, weight_decay=0.1)
)
STEPS = [
    cls for cls in names((training, personal)).values() if issubclass(cls, StepTraining)
]


@pytest.mark.parametrize("algorithm", STEPS)
def test_keywords_give_the_same_configuration_as_the_whole(
    algorithm: type[StepTraining],
) -> None:
    keywords = algorithm(
        lr=0.2, epochs=3, batch_size=8, optimizer="sgd", momentum=0.5, weight_decay=0.1
    )
    assert keywords.training_config == WHOLE
    assert keywords == algorithm(WHOLE)


def test_a_keyword_completes_a_configuration() -> None:
    fed_prox = FedProx(TrainingConfig(batch_size=8), lr=0.2, mu=0.5)
    assert fed_prox.training_config == TrainingConfig(
        batch_size=8, optimizer=Optimizer(lr=0.2)
    )
    assert fed_prox.mu == 0.5


def test_a_keyword_may_be_an_optimizer() -> None:
    fed_avg = FedAvg(optimizer=Optimizer("adam", eps=1e-6), lr=0.002)
    assert fed_avg.training_config.optimizer == Optimizer("adam", 0.002, eps=1e-6)


def test_what_was_given_can_be_read_and_survives_a_replacement() -> None:
    fed_avg: Any = FedAvg(lr=0.2, epochs=3)  # fields of InitVar are typed as absent
    assert (fed_avg.lr, fed_avg.epochs, fed_avg.batch_size, fed_avg.momentum) == (
        0.2,
        3,
        None,
        0.9,
    )
    local = replace(fed_avg, bn="local")
    assert local.training_config == fed_avg.training_config
    assert "lr=0.2" in repr(fed_avg)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FedAvg(WHOLE, lr=0.3), "lr is 0.2 in FedAvg's training_config and 0.3"),
        (lambda: FedAvg(WHOLE, epochs=4), "stages is .* give it once"),
        (lambda: FedAvg(lr=0.3, optimizer=Optimizer(lr=0.2)), "lr is 0.3 .* and 0.2"),
        (lambda: FedAvg(lr="0.1"), "lr is '0.1'; it must be a number"),  # type: ignore[arg-type]
        (lambda: FedAvg(batch_size="8"), "batch_size is '8'"),  # type: ignore[arg-type]
        (lambda: FedAvg(epochs=0), "epochs is 0, so nothing is trained; give 1 or more"),
        (lambda: FedAvg(epochs=0.5), "epochs is 0.5"),  # type: ignore[arg-type]
        (
            lambda: FedAvg(optimizer="adma"),
            "optimizer.name is 'adma'; it must be 'sgd', 'adam' or 'adamw'",
        ),
        (lambda: FedAvg(optimizer="adam", momentum=0.5), "'adam' does not use momentum"),
        (lambda: Optimizer(betas=(0.5, 0.5)), "'sgd' does not use betas"),
        (lambda: Optimizer("adamw", lr=0.1), "'adamw' without weight decay is 'adam'"),
        (lambda: Optimizer(eps=0.1), "'sgd' does not use eps"),
    ],
)
def test_a_value_that_would_be_ignored_or_cannot_be_is_refused(
    make: Callable[[], object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make()
