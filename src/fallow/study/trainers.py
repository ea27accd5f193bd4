"""Training algorithms of the strategies of a study, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields

from fallow.core.methods import DataDependentTraining
from fallow.core.wording import count_noun, join_some
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig, config_from, contract_of_training
from fallow.settings.variants import variant
from fallow.study.records import StudyRecords
from fallow.study.statistics import LEVEL, lowest_p, seeds_needed

Width = Callable[[str], int | None]
"""From a strategy to the number of features of its closed-form classifier, or None if
unknown.
"""
SOURCES = {
    "none": "the columns",
    "auto": "features",
    "fourier": "random Fourier features",
    "convolution": "random convolution features",
    "hashed-text": "hashed n-grams of texts",
}


def describe_trainers(
    config: ExperimentConfig,
    strategies: Iterable[str],
    width: Width,
    classes: int,
) -> str:
    """Return training algorithm, model or encoder, and last layer of the strategies,
    without duplicates.

    classes: their number, or 0 for regression.

    >>> from fallow.settings.spec import Spec
    >>> config = ExperimentConfig("a", rounds=3, model=Spec("mlp"))
    >>> strategies = ["random", "random@training=fedprox"]
    >>> describe_trainers(config, strategies, lambda _: None, classes=3)
    'fedavg and fedprox of mlp (3 rounds of 2 epochs, sgd with lr 0.01, batch size 16)'
    """
    trainers: dict[str, list[str]] = {}  # by training algorithm
    for strategy in strategies:
        changed = variant(config, strategy)
        what = _describe_model(changed, width(strategy), classes)
        name = str(changed.training)
        same = trainers.setdefault(what, [])
        if name not in same:
            same.append(name)
    return "; ".join(f"{join_some(same)} {what}" for what, same in trainers.items())


def _describe_model(config: ExperimentConfig, features: int | None, classes: int) -> str:
    """Return model or encoder, training configuration and last layer."""
    contract = contract_of_training(config.training.name)
    if contract is not None and "least-squares" in contract.tags:
        kind = "classifier" if classes else "regressor"
        encoder = str(config.encoder or "none")
        count = ""
        if features is not None and encoder != "none":
            count = f"{features:,} "
        source = SOURCES.get(encoder, f"features of encoder {encoder}")
        extras = describe_extras(config, features, classes)
        return f"(ridge) {kind} on {count}{source}{extras}"
    inputs = ""
    if config.features is not None:
        inputs = f" on features of {config.features}"
    elif config.encoder is not None:
        inputs = f" on features of encoder {config.encoder}"
    if contract is not None and not contract.trains:
        return inputs.strip()
    if contract is not None and contract.has_trees:
        return f"of {config.completed_model}{inputs}"
    head = ""
    if config.head == "exact":
        head = ", last layer in closed form"
    training_config = config.completed_training
    return (
        f"of {config.model}{inputs} ({count_noun(config.rounds, 'round')} of "
        f"{count_noun(training_config.epochs, 'epoch')}, {training_config.optimizer.name} with lr "
        f"{training_config.optimizer.learning_rate:g}, batch size "
        f"{training_config.examples_per_step}{head})"
    )


def describe_extras(config: ExperimentConfig, features: int | None, classes: int) -> str:
    """Return whether the training algorithm also learns from unlabeled examples, and why not."""
    training = methods_of(config)["training"]
    if not isinstance(training, DataDependentTraining):
        return ""
    described = training.describe_extras(features, classes)
    return f", {described}" if described else ""


def describe_trained(study: StudyRecords) -> str:
    """Return `describe_trainers` for a stored study, or "" if its settings are of another
    version.
    """
    known = {field.name for field in fields(ExperimentConfig)}
    settings = {k: value for k, value in study.study.config.items() if k in known}
    widths = {}
    classes = 0 if study.is_regression else 1
    for cell in study.cells:
        for record in cell.records:
            if "features" in record:
                widths[cell.strategy] = record["features"]
            classes = max(classes, len(record.get("labeled_per_class") or []))
    try:
        config = config_from({"name": study.study.name, **settings})
        return describe_trainers(
            config,
            study.strategies or study.study.strategies,
            widths.get,
            classes,
        )
    except ValueError:
        return ""


def describe_power(strategies: int, seeds: int) -> str:
    """Return a sentence if the paired test cannot reach p = 0.05; "" otherwise.

    >>> describe_power(3, 5)
    'With 5 seeds and 2 comparisons, the smallest attainable p is 0.125; 7 seeds can reach 0.05.'
    """
    comparisons = strategies - 1
    if comparisons < 1 or lowest_p(seeds, comparisons) <= LEVEL:
        return ""
    return (
        f"With {count_noun(seeds, 'seed')} and {count_noun(comparisons, 'comparison')}, "
        f"the smallest attainable p is {lowest_p(seeds, comparisons):.3g}; "
        f"{seeds_needed(comparisons)} seeds can reach {LEVEL}."
    )
