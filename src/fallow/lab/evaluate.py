"""The deployed model on held-out rows."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch

from fallow.core.types import State
from fallow.engine import predict
from fallow.lab.metrics import accuracy, balanced_accuracy, per_class_accuracy
from fallow.lab.world import World
from fallow.runtimes.view import SiteView


def evaluate(world: World, state: State) -> dict[str, Any]:
    """Scores of the deployed model on the central test set of a simulation.

    Accuracies for classification, ``mse`` for regression; what does not apply is None.  Where
    sites deploy different models, scores are means over sites and ``per_site`` holds each one's.
    Raises ValueError when outputs are not finite.
    """
    method = world.methods["training"]
    used = {name: method.deploy(state, site.memory) for name, site in world.members.items()}
    if all(model is state for model in used.values()):
        return {**_scores(world, state), "per_site": None}
    found = {name: _scores(world, model) for name, model in used.items()}
    measure = "mse" if world.dataset.task == "regression" else "accuracy"
    keys = next(iter(found.values()))
    mean = {key: _mean([scores[key] for scores in found.values()]) for key in keys}
    return {**mean, "per_site": {name: scores[measure] for name, scores in found.items()}}


def pseudo_labels(world: World) -> dict[str, Any] | None:
    """How right the sites' own models are about their pools, before labels are bought: accuracy
    over all pools and recall of each class.  It reads hidden labels, so only a simulation has it.

    None for regression, and where every pool is empty.
    """
    if world.dataset.task == "regression":
        return None
    sites = {name: site for name, site in world.members.items() if len(site.pool)}
    guess = [SiteView(site, 0).logits("local").argmax(1) for site in sites.values()]
    if not guess:
        return None
    true = torch.cat([world.oracle.hidden[name][site.pool] for name, site in sites.items()]).long()
    found, classes = torch.cat(guess), world.dataset.n_classes
    return {
        "accuracy": accuracy(found, true),
        "per_class": per_class_accuracy(found, true, classes),
    }


def _mean(values: list[Any]) -> Any:
    """The mean over sites of a score, of a list of scores class by class, or None of None."""
    if isinstance(values[0], list):
        return [_mean(list(of_class)) for of_class in zip(*values, strict=True)]
    return None if values[0] is None else fmean(values)


def _scores(world: World, state: State) -> dict[str, Any]:
    test = world.dataset
    outputs = predict(world.model, world.layout, state, test.x_test.to(state["w"].dtype))
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(
            "the model gives NaN or infinite outputs: training diverged; lower the learning "
            "rate (plan.optimiser.lr)"
        )
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
