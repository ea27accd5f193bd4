"""The deployed model on held-out rows."""

from __future__ import annotations

from typing import Any

from fallow.core.types import State
from fallow.engine import predict
from fallow.lab.metrics import accuracy, balanced_accuracy, per_class_accuracy
from fallow.lab.world import World


def evaluate(world: World, state: State) -> dict[str, Any]:
    """Scores of the global model on the central test set of a simulation.

    Accuracies for classification, ``mse`` for regression; what does not apply is None.
    """
    test = world.dataset
    outputs = predict(world.model, world.layout, state, test.x_test)
    if test.task == "regression":
        error = (outputs.squeeze(1) - test.y_test).square().mean()
        none = dict.fromkeys(("accuracy", "balanced_accuracy", "per_class"))
        return {**none, "mse": float(error)}
    guess = outputs.argmax(1)
    classes = test.n_classes
    return {
        "accuracy": accuracy(guess, test.y_test),
        "balanced_accuracy": balanced_accuracy(guess, test.y_test, classes),
        "per_class": per_class_accuracy(guess, test.y_test, classes),
        "mse": None,
    }
