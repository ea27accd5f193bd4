"""Checks that algorithms and model of a configuration support the data."""

from __future__ import annotations

import math

import torch

from fallow.core.contract import Contract
from fallow.core.kinds import show_value
from fallow.core.methods import Method, Methods, Query, SizeLimitedTraining
from fallow.core.model_vectors import Layout
from fallow.core.names import OWN, NamePolicy, spell_class
from fallow.core.streams import stream
from fallow.core.suggestions import refuse_for_task
from fallow.core.types import DTYPES
from fallow.core.wording import join_words
from fallow.data.dataset import Dataset, Task
from fallow.engine.score_metrics import check_metrics
from fallow.experiment.encoding import shape_seen
from fallow.experiment.measuring import check_measurements
from fallow.experiment.methods import ModelMaker, methods_of
from fallow.models.norms import BATCH_OF_ONE, needs_two_rows
from fallow.privacy.settings import check_targets
from fallow.settings.classes import classes_of
from fallow.settings.config import ExperimentConfig

SEVERAL = "several labels per example"
ONE_LABEL = ("coverage", "validation")
"""Settings that apply to one label per example."""
WITHOUT_CLASSES = ("iid", "natural")
"""Partitions that do not depend on classes."""
MOST_SOLVED = 8192
"""Maximum number of features of a closed-form model: the products of all pairs take 0.5 GB."""


def strategies_for(*tasks: str) -> str:
    """Return the names of the query strategies that support all these tasks.

    >>> strategies_for("regression").split(", ")[0]
    'acs-fw'
    """
    known = []
    for cls in classes_of("strategy").values():
        if all(works_on(cls.contract, task) for task in tasks):
            known.append(spell_class(cls))
    return join_words(sorted(known), last="or")


def works_on(contract: Contract, task: str) -> bool:
    """Return whether a query strategy supports the task of the data.

    Without an explicit declaration, it supports regression unless it reads class predictions.
    """
    if task == "multilabel":
        return contract.multilabel or contract.untrained == "features"
    if task != "regression":
        return contract.classes
    if contract.regression is None:
        return not contract.needs
    return contract.regression


def check_strategy(strategy: Query, name: str, task: Task, has: str) -> None:
    """Raise ValueError if a query strategy does not support the task; ``has`` describes the data."""
    if not works_on(strategy.contract, task):
        needs = "is for regression"
        others = strategies_for("classification", "regression")
        if task == "regression":
            needs = "requires classes"
            others = strategies_for(task)
        if task == "multilabel":
            needs = "does not support several labels"
            others = strategies_for(task)
        raise ValueError(f"{name} {needs} and {has}; use {others}")
    refuse_for_task(strategy, task)


def refuse_for_labels(config: ExperimentConfig, methods: Methods, has: str) -> None:
    """Raise ValueError for a component that does not support several labels per example.

    ``has`` describes the data.  Query strategies are checked by `check_strategy`.
    """
    components: dict[str, Method | None] = {
        f"training {config.training}": methods["training"],
        f"head={config.head}": methods.get("head"),
        f"evaluation_fraction={config.evaluation_fraction:g}": methods.get(
            "evaluation_set"
        ),
    }
    for name, method in components.items():
        if method is not None and not method.contract.multilabel:
            remedy = "omit it"
            if method is methods["training"]:
                remedy = f"use {join_words(trainers_of_labels(), last='or')}"
            raise ValueError(f"{name} does not support several labels, and {has}; {remedy}")
    for name in ONE_LABEL:
        value = getattr(config, name)
        if value:
            raise ValueError(
                f"{name} is {show_value(value)}, which does not support several labels, and {has}; "
                "omit it"
            )
    partition = config.partition.name
    if partition.lower() not in WITHOUT_CLASSES and ":" not in partition:  # not one's own
        raise ValueError(
            f"partition={config.partition} splits by class, and {has}; use iid or natural"
        )


def trainers_of_labels() -> list[str]:
    """Return the names of the training algorithms for several labels per example.

    >>> trainers_of_labels()
    ['closed-form-labels', 'fedavg', 'fedprox']
    """
    classes = classes_of("training").values()
    return sorted(spell_class(cls) for cls in classes if cls.contract.multilabel)


def check_task(
    config: ExperimentConfig, dataset: Dataset, policy: NamePolicy = OWN
) -> None:
    """Raise ValueError if an algorithm does not support the task or the model.

    ``policy`` determines which names are resolved.
    """
    methods = methods_of(config, policy=policy)
    trainer: Contract = methods["training"].contract
    has = f"{config.data} has classes"
    if dataset.task == "regression":
        has = f"{config.data} is a regression task"
    if dataset.task == "multilabel":
        has = f"{config.data} has {SEVERAL}"
        refuse_for_labels(config, methods, has)
    check_strategy(methods["query"], str(config.strategy), dataset.task, has)
    if dataset.task == "regression":
        check_targets(config.privacy, config.target_scale)
    if dataset.task == "regression" and trainer.regression is False:
        raise ValueError(f"{config.training} requires classes and {has}; use fedavg")
    if dataset.task == "classification" and not trainer.classes:
        is_for = "several labels" if trainer.multilabel else "regression"
        raise ValueError(f"{config.training} is for {is_for} and {has}; use fedavg")
    if dataset.task != "regression" and config.target_scale != "labeled":
        raise ValueError(
            f"target_scale is {config.target_scale!r}, and {has}; it scales the targets of "
            "regression: set target_scale=labeled"
        )
    check_metrics(config.metrics, dataset.task)
    check_measurements(config, dataset.task)
    shape = shape_seen(config, tuple(dataset.x.shape[1:]), policy)
    width = math.prod(shape)
    n_models = max(len(dataset.labels), 1)  # products are sent for each label
    if "least-squares" in trainer.tags and width * math.sqrt(n_models) > MOST_SOLVED:
        raise ValueError(
            f"{config.training} solves for a linear model of {width:,} features. More "
            f"than {MOST_SOLVED:,} need too much memory ({8 * n_models * width**2 / 2**30:.1f} GB at "
            "each site for their products); use an encoder with fewer features, such as "
            "fourier:features=4096, or a training algorithm with gradient steps"
        )
    if isinstance(methods["training"], SizeLimitedTraining):
        methods["training"].check_size(width, dataset.n_outputs)
    if config.completed_training.examples_per_step == 1:
        maker = ModelMaker(config, shape, dataset.n_outputs, policy)
        row = torch.zeros(1, *shape, dtype=DTYPES[config.dtype])
        if needs_two_rows(maker.build(stream(0, "template")), row):
            raise ValueError(BATCH_OF_ONE)
    if trainer.no_batch_norm:
        maker = ModelMaker(config, shape, dataset.n_outputs, policy)
        layout = Layout.of(maker.build(stream(0, "template")))
        if sum(layout.buffer_sizes) > 0:  # running statistics
            raise ValueError(
                f"{config.training} does not support batch norm, which {config.model} has: "
                f"{trainer.no_batch_norm}"
            )
    model = config.model.name
    has_trees = model.lower() == "trees"
    if has_trees != trainer.has_trees:
        way_out = "set model=trees, or omit it"
        if has_trees:
            names = [
                spell_class(cls)
                for cls in classes_of("training").values()
                if cls.contract.has_trees
            ]
            way_out = f"set training={join_words(names, last='or')}, or another model"
        raise ValueError(f"{config.training} does not train {config.model}; {way_out}")
    is_linear = model.lower() == "linear" or ":" in model  # an explicit choice is accepted
    if trainer.model == "linear" and not is_linear:
        raise ValueError(
            f"{config.training} solves for a linear model, and the model is "
            f"{config.model}; set model=linear, or use a training algorithm with gradient "
            "steps, such as training=fedavg"
        )
