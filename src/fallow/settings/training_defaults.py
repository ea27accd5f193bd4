"""Default training configurations, by model family, and for regression.

The values were measured by ``scripts/measure_training_defaults.py``.  See
studies/training-defaults.md for the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.spec import Spec

DENSE = TrainingConfig((TrainingStage(5),), 16, Optimizer(lr=0.1))
CONVOLUTIONAL = TrainingConfig((TrainingStage(5),), 16, Optimizer(lr=0.03))
REGRESSION = TrainingConfig((TrainingStage(5),), 16, Optimizer(lr=0.01))
"""Default for regression. Squared errors are unbounded, and larger steps diverge."""
FAMILIES: Mapping[str, TrainingConfig] = {
    "linear": DENSE,
    "mlp": DENSE,
    "digitscnn": CONVOLUTIONAL,
    "lenet": CONVOLUTIONAL,
    "lenetfemnist": CONVOLUTIONAL,
    "cnn4": CONVOLUTIONAL,
    "resnet8": CONVOLUTIONAL,
    "resnet18": CONVOLUTIONAL,
    "mobilenetv1": CONVOLUTIONAL,
    "mobilenetv2": CONVOLUTIONAL,
}
"""Default of each built-in network of classes, by its class in lower case."""
CUSTOM = CONVOLUTIONAL
"""Default of custom models."""
ADAM_LR = 0.001
CLOSED_FORM = Spec("closed-form")
CLOSED_FORM_LABELS = Spec("closed-form-labels")


def choose_training(training: Spec, task: str) -> Spec:
    """Return the training algorithm for a task: several labels have a closed form of their own.

    >>> str(choose_training(Spec("closed-form"), "multilabel"))
    'closed-form-labels'
    """
    if task == "multilabel" and training == CLOSED_FORM:
        return CLOSED_FORM_LABELS
    return training


def complete_training(config: TrainingConfig, model: str) -> TrainingConfig:
    """Fill in the defaults of a model family; ``model`` is its name in settings.

    >>> complete_training(TrainingConfig(batch_size=8), "mlp").optimizer.lr
    0.1
    """
    family = model.lower().replace("-", "").replace("_", "")
    return complete_from(config, FAMILIES.get(family, CUSTOM))


def complete_from(config: TrainingConfig, defaults: TrainingConfig) -> TrainingConfig:
    """Fill in defaults; the default learning rate applies to SGD only."""
    if config.optimizer.is_adaptive:
        defaults = replace(defaults, optimizer=Optimizer("adam", lr=ADAM_LR))
    return config.completed(defaults)
