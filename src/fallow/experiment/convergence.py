"""Training loss and baseline score, which only a simulation can compute."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import cross_entropy

from fallow.core.methods import Predicting
from fallow.core.types import State
from fallow.experiment.environment import Simulation
from fallow.sites.view import SiteView


def measure_training_loss(world: Simulation, state: State) -> float | None:
    """Return the loss of the deployed models on the labeled examples of all sites.

    It is 1 for a constant model: cross-entropy is divided by that of equal probabilities,
    squared errors by those of predicting 0.  It is None if models are not trained by
    gradient steps.
    """
    training = world.methods["training"]
    if isinstance(training, Predicting) or "least-squares" in training.contract.tags:
        return None
    total = 0.0
    scale = 0.0
    for site in world.members.values():
        labels = site.labels
        if not len(labels):
            continue
        examples = site.seen[site.labeled].to(state["w"].dtype)
        view = SiteView(site, 0)
        outputs = view.outputs(training.deploy(state, site.memory), examples).double()
        if site.parts.classes:
            total += float(cross_entropy(outputs, labels, reduction="sum"))
            scale += len(labels) * math.log(max(site.parts.classes, 2))
        else:
            targets = labels.double()
            total += float((outputs.squeeze(1) - targets).square().sum())
            scale += float(targets.square().sum())
    if scale == 0 or not math.isfinite(total):
        return None
    return total / scale


def score_of_majority(world: Simulation) -> float | None:
    """Return the accuracy of predicting the most frequent class of the test examples for all.

    If sites have their own test examples, it is the mean over sites, like the scores. It is
    None for regression.
    """
    test = world.dataset
    if test.task == "regression" or not len(test.y_test):
        return None
    majority = torch.bincount(test.y_test.long()).argmax()
    if world.tests is None:
        return float((test.y_test == majority).double().mean())
    shares = []
    for name, rows in world.tests.items():
        if len(rows) and name not in world.flipped:
            shares.append(float((test.y_test[rows] == majority).double().mean()))
    return sum(shares) / len(shares) if shares else None
