"""Evaluation of the deployed model, and measurements that only a simulation can make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fallow.core.methods import CustomPrediction, FinalTraining
from fallow.core.multilabel import read_answers
from fallow.core.types import SiteId, State, Values
from fallow.engine import predict
from fallow.engine.learner import answer_loss
from fallow.experiment.environment import Simulation
from fallow.experiment.measuring import (
    Measurements,
    add_up,
    find_measurements,
    fold_sums,
    measure_examples,
)
from fallow.experiment.metrics import (
    UNSCORED,
    accuracy,
    balanced_accuracy,
    label_accuracies,
    of_accuracy,
    of_answers,
    per_class_accuracy,
)
from fallow.experiment.scale import in_units
from fallow.measurements.base import ScoredExamples
from fallow.sites import LocalSite
from fallow.sites.view import SiteView

if TYPE_CHECKING:
    from fallow.experiment.record import PseudoLabels, Scores

BROUGHT = "model/"


def redundancy(simulation: Simulation) -> float | None:
    """Return the mean similarity of selected examples to labeled ones of collaborators.

    Similarity is the largest cosine in the features of the site's own average model.  It accesses
    several sites, so it is only available in simulations.  It is None if no collaborator has
    labels.
    """
    outcome = torch.zeros(0)
    for site in simulation.members.values():
        if "selected" in site.memory:
            outcome = torch.cat([outcome, _nearest(site, simulation)])
    if not len(outcome):
        return None
    return float(outcome.mean())


def _nearest(site: LocalSite, simulation: Simulation) -> Tensor:
    """Return the similarity of each selected example of a site, (k,), or (0,) without collaborators."""
    labeled = site.seen[:0]
    for name in collaborators(site):
        other = simulation.members[name]
        labeled = torch.cat([labeled, other.seen[other.bought]])
    rows = site.memory["selected"]["rows"]
    if len(labeled) == 0 or len(rows) == 0:
        return torch.zeros(0)
    view = SiteView(site, 0)
    picked = _directions(view, site.seen[rows])
    known = _directions(view, labeled)
    return (picked @ known.T).amax(1).float()


def _directions(view: SiteView, x: Tensor) -> Tensor:
    """Return normalized features of the site's own average model: (k, ...) -> (k, d)."""
    from fallow.strategies.parts.committee import personal_model  # in simulations

    features, _ = view.look(personal_model(view), x)
    return normalize(features.double(), dim=1)


def collaborators(site: LocalSite) -> list[SiteId]:
    """Return the sites whose models are in the latest average of a site."""
    from fallow.strategies.parts.committee import averages_at_site  # in simulations

    if not averages_at_site(SiteView(site, 0)):
        return []
    brought = sorted(name for name in site.memory if name.startswith(BROUGHT))
    is_in = site.memory["average"]["peers"].tolist()
    result = []
    for name, is_in_average in zip(brought, is_in, strict=True):
        if is_in_average:
            result.append(name.removeprefix(BROUGHT))
    return result


def evaluate(simulation: Simulation, state: State, retained: bool = False) -> Scores:
    """Return the scores of the deployed model on the common test set, or on that of each site.

    For regression, ``mse`` is relative to the variance of the training examples, so that predicting
    their mean yields 1.  Scores that do not apply are None.  If models or test sets differ between
    sites, scores are means over sites (`over_sites.of_accuracy`), and ``per_site`` has the score of
    each site without flipped labels.  ``retained`` evaluates the model with the best validation
    score so far.  Raises ValueError if outputs are not finite.
    """
    sites = [name for name in simulation.members if name not in simulation.flipped]
    test = simulation.dataset
    measurements = find_measurements(
        simulation.config, is_regression=test.task == "regression"
    )
    used = {name: _deployed_model(simulation, name, state, retained) for name in sites}
    is_common = simulation.tests is None and all(model is state for model in used.values())
    if is_common and not isinstance(simulation.methods["training"], CustomPrediction):
        outputs = _predict(simulation, state, simulation.x_test.to(state["w"].dtype))
        scores = _score_common_model(simulation, _finite(outputs, "the model"))
        if measurements:
            sums = _sums(simulation, measurements, outputs, test.y_test)
            return {**scores, **fold_sums(measurements, sums, {})}
        return scores
    rows = simulation.tests or dict.fromkeys(sites, torch.arange(len(simulation.x_test)))
    outputs_of = {
        name: _outputs(simulation, name, used[name], rows[name]) for name in sites
    }
    true = {name: test.y_test[rows[name]] for name in sites}
    if test.task == "regression":
        scores = _score_errors_of_sites(simulation, outputs_of, true)
    elif test.task == "multilabel":
        scores = of_answers(outputs_of, true)
    else:
        guess = {name: outputs.argmax(1) for name, outputs in outputs_of.items()}
        scores = of_accuracy(guess, true, test.n_classes)
    if measurements:
        of_sites = {
            site: _sums(simulation, measurements, outputs_of[site], true[site])
            for site in sites
        }
        total = dict(add_up(of_sites))
        if simulation.tests is None:  # each example is in the sums of every site
            for name, value in total.items():
                total[name] = torch.as_tensor(value) / len(sites)
        return {**scores, **fold_sums(measurements, total, of_sites)}
    return scores


def _sums(
    simulation: Simulation, measurements: Measurements, outputs: Tensor, true: Tensor
) -> Values:
    """Return the test counts and the sums of measurements of these examples."""
    counts: Values = {"rows": float(len(true))}
    if simulation.dataset.task == "regression":
        outputs = in_units(outputs.squeeze(1), simulation.targets)
    elif simulation.dataset.task == "classification":
        counts["hits"] = float((outputs.argmax(1) == true).sum())
    n_labels = len(simulation.dataset.labels)
    examples = ScoredExamples(outputs, true, n_labels)
    return counts | measure_examples(measurements, examples)


def _predict(simulation: Simulation, state: State, x: Tensor) -> Tensor:
    """Return the outputs of the global model, (m, c), computed on the device of the run."""
    passes = next(iter(simulation.members.values())).parts.passes
    if passes is not None:
        return passes.predict(state, x)
    return predict(simulation.model, simulation.layout, state, x)


def one_model(simulation: Simulation, state: State) -> State | None:
    """Return the model that all sites deploy, or None if they differ."""
    deploy = simulation.methods["training"].deploy
    models = [_weights(deploy(state, site.memory)) for site in simulation.members.values()]
    if not _are_alike(models):
        return None
    return models[0]


def own_models(simulation: Simulation, state: State) -> dict[SiteId, State]:
    """Return the final model of each site, or none if all are equal or prediction needs more."""
    training = simulation.methods["training"]
    if isinstance(training, CustomPrediction):
        return {}
    is_retained = simulation.config.validation > 0 and not isinstance(
        training, FinalTraining
    )
    models = {}
    for name in simulation.members:
        used = _deployed_model(simulation, name, state, is_retained)
        models[name] = _weights(used)
    if _are_alike(list(models.values())):
        return {}
    return models


def _weights(model: State) -> State:
    """Return the model without other state of its algorithm."""
    return {"w": model["w"], "stats": model["stats"]}


def _are_alike(models: Sequence[State]) -> bool:
    """Return whether all models have equal weights."""
    first = models[0]
    for other in models[1:]:
        for part in first:
            if not torch.equal(other[part], first[part]):
                return False
    return True


def _deployed_model(
    simulation: Simulation, name: SiteId, state: State, retained: bool
) -> State:
    memory = simulation.members[name].memory
    if retained and "best" in memory:
        return memory["best"]
    return simulation.methods["training"].deploy(state, memory)


def _outputs(simulation: Simulation, name: SiteId, state: State, rows: Tensor) -> Tensor:
    x = simulation.x_test[rows].to(state["w"].dtype)
    outputs = SiteView(simulation.members[name], 0).outputs(state, x)
    return _finite(outputs, f"the model of site {name}")


def _finite(outputs: Tensor, whose: str) -> Tensor:
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(
            f"{whose} has NaN or infinite outputs: training diverged; lower the learning "
            "rate (lr)"
        )
    return outputs


def pseudo_labels(simulation: Simulation) -> PseudoLabels | None:
    """Return the accuracy of the local models on their pools before labeling.

    The result has the accuracy over all pools, the recall of each class, and the `redundancy` of the
    selected examples.  It uses hidden labels, so it is only available in simulations.  It is None for
    other tasks, for empty pools, and with ``protocol=one_pass``, where no model exists yet.
    """
    if simulation.dataset.task != "classification":
        return None
    sites = {name: site for name, site in simulation.members.items() if len(site.pool)}
    for site in sites.values():
        if len(site.labeled) and "local" not in site.memory:
            return None
    guess = [SiteView(site, 0).logits("local").argmax(1) for site in sites.values()]
    if not guess:
        return None
    hidden = [simulation.oracle.hidden[name][site.pool] for name, site in sites.items()]
    true = torch.cat(hidden).long()
    result = torch.cat(guess)
    return {
        "accuracy": accuracy(result, true),
        "per_class": per_class_accuracy(result, true, simulation.dataset.n_classes),
        "redundancy": redundancy(simulation),
    }


def _score_common_model(simulation: Simulation, outputs: Tensor) -> Scores:
    """Return the scores of one model on all test examples, from outputs of shape (m, c)."""
    test = simulation.dataset
    if test.task == "regression":
        return {**UNSCORED, "mse": _error(simulation, outputs, test.y_test)}
    if test.task == "multilabel":
        of_all = of_answers({"": outputs}, {"": test.y_test})
        return {
            **UNSCORED,
            "accuracy": of_all["accuracy"],
            "balanced_accuracy": of_all["balanced_accuracy"],
            "per_class": of_all["per_class"],
        }
    guess = outputs.argmax(1)
    classes = test.n_classes
    return {
        **UNSCORED,
        "accuracy": accuracy(guess, test.y_test),
        "balanced_accuracy": balanced_accuracy(guess, test.y_test, classes),
        "per_class": per_class_accuracy(guess, test.y_test, classes),
    }


def _score_errors_of_sites(
    simulation: Simulation, outputs: dict[SiteId, Tensor], true: dict[SiteId, Tensor]
) -> Scores:
    """Return the mean squared errors of all sites with test examples."""
    per_site: dict[SiteId, float | None] = {}
    for name, predicted in outputs.items():
        per_site[name] = None
        if len(predicted):
            per_site[name] = _error(simulation, predicted, true[name])
    errors = [error for error in per_site.values() if error is not None]
    return {**UNSCORED, "per_site": per_site, "mse": fmean(errors)}


def _error(simulation: Simulation, outputs: Tensor, true: Tensor) -> float:
    away = in_units(outputs.squeeze(1), simulation.targets) - true
    return float(away.double().square().mean()) / simulation.variance


def measure_training_loss(simulation: Simulation, state: State) -> float | None:
    """Return the loss of the deployed models on the labeled examples of all sites.

    It is 1 for a constant model: cross-entropy is divided by that of equal probabilities,
    squared errors by those of predicting 0.  It is None if models are not trained by
    gradient steps.
    """
    training = simulation.methods["training"]
    if isinstance(training, CustomPrediction) or training.contract.is_solved:
        return None
    total = 0.0
    scale = 0.0
    for site in simulation.members.values():
        labels = site.labels
        if not len(labels):
            continue
        examples = site.seen[site.labeled].to(state["w"].dtype)
        view = SiteView(site, 0)
        outputs = view.outputs(training.deploy(state, site.memory), examples).double()
        if site.parts.n_labels:
            total += float(answer_loss(outputs, labels).sum())
            scale += len(labels) * math.log(2)
        elif site.parts.classes:
            total += float(cross_entropy(outputs, labels, reduction="sum"))
            scale += len(labels) * math.log(max(site.parts.classes, 2))
        else:
            targets = labels.double()
            total += float((outputs.squeeze(1) - targets).square().sum())
            scale += float(targets.square().sum())
    if scale == 0 or not math.isfinite(total):
        return None
    return total / scale


def score_of_majority(simulation: Simulation) -> float | None:
    """Return the accuracy of predicting the most frequent class of the test examples for all.

    If sites have their own test examples, it is the mean over sites, like the scores. It is
    None for regression.  With several labels, it is the accuracy of the most frequent answer to each.
    """
    test = simulation.dataset
    if test.task == "multilabel":
        return _score_of_frequent_answers(test.y_test, len(test.labels))
    if test.task == "regression" or not len(test.y_test):
        return None
    majority = torch.bincount(test.y_test.long()).argmax()
    if simulation.tests is None:
        return float((test.y_test == majority).double().mean())
    shares = []
    for name, rows in simulation.tests.items():
        if len(rows) and name not in simulation.flipped:
            shares.append(float((test.y_test[rows] == majority).double().mean()))
    return sum(shares) / len(shares) if shares else None


def _score_of_frequent_answers(true: Tensor, n_labels: int) -> float | None:
    """Return the mean accuracy over labels of predicting the most frequent answer to each."""
    share = read_answers(true, n_labels).nanmean(0)  # (L,)
    constant = torch.where(share > 0.5, 1.0, -1.0).expand(len(true), n_labels)
    known = [score for score in label_accuracies(constant, true) if score is not None]
    return fmean(known) if known else None
