"""Algorithms by role, network and versions of an experiment configuration."""

from __future__ import annotations

import inspect
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from dataclasses import fields as fields_of
from functools import cache
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from fallow import strategies, training
from fallow.core.build import build, find
from fallow.core.contract import Untrained
from fallow.core.kinds import show_value
from fallow.core.load_options import LoadOptions
from fallow.core.methods import DataDependentTraining, Method, Methods, Query
from fallow.core.model_vectors import Layout
from fallow.core.names import OWN, NamePolicy, own_class, spell_class
from fallow.core.training_config import TrainingConfig
from fallow.core.types import DTYPES, SiteId, State
from fallow.core.version import __version__
from fallow.core.wording import join_words
from fallow.engine.executors import AUTO, choose_executor, find_executor
from fallow.engine.placement import Placement
from fallow.measurements.evaluation_set import EvaluationSet
from fallow.models import build_model, outline_model
from fallow.privacy.settings import check_fit
from fallow.settings.classes import classes_of
from fallow.settings.config import (
    ExperimentConfig,
    contract_of_training,
    settings_of_training,
)
from fallow.strategies import Random
from fallow.training import FedAvg, personal
from fallow.training.exact_head import ExactHead
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling

WRONG_SITES = "flipped"
"""Word for the sites with wrong labels, in fields that list sites."""


TRAINERS = (training, personal)
"""Packages of training algorithms."""


def is_shared(strategy: Method) -> bool:
    """Return whether a query spends one budget of all sites, by its contract."""
    return strategy.contract.budget_of == "federation"


def methods_of(
    config: ExperimentConfig, flipped: Sequence[SiteId] = (), policy: NamePolicy = OWN
) -> Methods:
    """Return the algorithms of a run by role; ValueError for an unknown name or field.

    ``flipped``: the sites with wrong labels, denoted by the word "flipped" in fields that
    list sites. ``policy``: names that may be resolved; by default all, as in a user's own
    simulations.
    """
    fields = dict(config.training.fields)
    trainer = _find_trainer(config.training.name, policy)
    for name in trainer.contract.site_lists:
        if fields.get(name) == WRONG_SITES:
            fields[name] = tuple(flipped)
    if _takes_training_config(trainer):
        fields["training_config"] = config.completed_training
    method = build(TRAINERS, config.training.name, policy, **fields)
    strategy = build(strategies, config.strategy.name, policy, **config.strategy.fields)
    if config.sites and config.sites < strategy.contract.cohort:
        raise ValueError(
            f"{config.strategy} compares sites and needs at least "
            f"{strategy.contract.cohort}; the experiment configuration has {config.sites}"
        )
    if not method.contract.trains:
        _check_untrained(config, strategy)
    if strategy.contract.not_solved and "least-squares" in method.contract.tags:
        raise ValueError(
            f"{config.strategy} does not support {config.training}: "
            f"{strategy.contract.not_solved}; choose another strategy, or train with "
            "fedavg"
        )
    if method.contract.has_trees:
        _check_trees(config, strategy)
    cohort = math.ceil(config.participation * config.sites - 1e-9)
    if method.contract.everyone and cohort < config.sites:
        raise ValueError(
            f"{config.training} needs all sites in every round, and participation="
            f"{config.participation:g} takes {cohort} of {config.sites}; set participation=1"
        )
    contracts = {
        str(config.strategy): strategy.contract,
        str(config.training): method.contract,
    }
    if config.head == "exact":
        _check_head(config, method)
        contracts["head=exact"] = ExactHead.contract
    first: Query = Random()
    if config.initial_by == "typical":
        first = strategies.Typical()
        contracts["initial_by=typical"] = first.contract
    evaluation_set = None
    if config.evaluation_fraction:
        evaluation_set = EvaluationSet(
            config.evaluation_fraction, config.privacy.secure_sum
        )
        contracts[f"evaluation_fraction={config.evaluation_fraction:g}"] = (
            evaluation_set.contract
        )
    check_fit(config.privacy, contracts, cohort)
    values: Methods = {
        "initial": first,
        "query": strategy,
        "training": method,
        "plain": FedAvg(),
        "scaling": Scaling(is_encoded=config.encoder is not None),
        "retention": Retention(method),
    }
    if config.head == "exact":
        values["head"] = ExactHead()
    if evaluation_set is not None:
        values["evaluation_set"] = evaluation_set
    return values


def _check_trees(config: ExperimentConfig, strategy: Method) -> None:
    """Raise ValueError for a strategy or a setting that decision trees do not support."""
    if strategy.contract.needs and strategy.contract.untrained == "no":
        names = join_words(list_untrained("features", "predictions"), last="or")
        raise ValueError(
            f"{config.strategy} does not support {config.training}: decision trees have "
            f"neither gradients nor embeddings; use {names}, or train with fedavg"
        )
    if config.target_scale == "none":
        raise ValueError(
            f"target_scale is 'none', and {config.training} compares gains of squared errors in "
            "standardized units, without which it may not split; omit target_scale"
        )


NO_EFFECT = (
    *("model", "head", "rounds", "participation", "restart", "local_source"),
    *("evaluation_fraction", "stop", "validation", "fresh_first", "score_rounds"),
    *("metrics", "coverage", "measure", "executor", "device", "precision", "target_scale"),
    *("flip",),
)
"""Settings of models, which have no effect if nothing is trained."""


def _check_untrained(config: ExperimentConfig, strategy: Method) -> None:
    """Raise ValueError for a strategy or a setting that needs trained models."""
    if strategy.contract.untrained == "no":
        names = join_words(list_untrained("features", "predictions"), last="or")
        raise ValueError(
            f"{config.strategy} needs a trained model, and training is none; use {names}"
        )
    refuse_without_model(config, NO_EFFECT)


def refuse_without_model(config: ExperimentConfig, names: Sequence[str]) -> None:
    """Raise ValueError for a setting of models that has another value than the default."""
    usual = settings_of_training(config.training.name)
    for field in fields_of(config):
        value = str(getattr(config, field.name))
        if field.name in names and value != str(usual.get(field.name, field.default)):
            raise ValueError(
                f"{field.name} is {show_value(value)}, and training is none: there is no model to "
                "which it applies; omit it"
            )


def list_untrained(*kinds: Untrained) -> list[str]:
    """Return the names of the query strategies that support studies without training.

    >>> list_untrained("predictions")[:2]
    ['badge', 'entropy']
    """
    classes = classes_of("strategy").values()
    return sorted(spell_class(cls) for cls in classes if cls.contract.untrained in kinds)


def check_predictions(config: ExperimentConfig, *, has_predictions: bool) -> None:
    """Raise ValueError if a strategy selects by given predictions and there are none."""
    strategy = build(strategies, config.strategy.name, OWN, **config.strategy.fields)
    if has_predictions or strategy.contract.untrained != "predictions":
        return
    raise ValueError(
        f"{config.strategy} selects by predictions, and the examples have none; add columns "
        "prediction:CLASS or uncertainty, or use "
        f"{join_words(list_untrained('features'), last='or')}"
    )


def check_brought(config: ExperimentConfig, *, has_predictions: bool) -> None:
    """Raise ValueError if predictions of a site do not suit its study."""
    if is_untrained(config):
        check_predictions(config, has_predictions=has_predictions)
    elif has_predictions:
        raise ValueError(
            f"the examples have predictions, which training {config.training} does not read; "
            "remove these columns, or agree on training=none"
        )


def narrow_training(methods: Methods, features: int, classes: int) -> Methods:
    """Return the algorithms with the parts of training that the data allow.

    features: of an encoded example; classes: their number, or 0 for regression.
    """
    training = methods["training"]
    if not isinstance(training, DataDependentTraining):
        return methods
    narrowed = methods.copy()
    narrowed["training"] = training.narrowed_to(features, classes)
    return narrowed


def is_personal(method: Method) -> bool:
    """Return whether a training algorithm trains personalized models."""
    return type(method).__module__.startswith(personal.__name__)


def is_untrained(config: ExperimentConfig) -> bool:
    """Return whether nothing is trained, so that sites only select examples."""
    contract = contract_of_training(config.training.name)
    return contract is not None and not contract.trains


def joins_groups(config: ExperimentConfig) -> bool:
    """Return whether all rows of a group are one case, which is selected and annotated."""
    return is_untrained(config) and config.training.fields.get("cases", "row") == "group"


def with_pages(config: ExperimentConfig, options: LoadOptions) -> LoadOptions:
    """Return the options of a folder of images: if groups are cases, a file is one of its pages."""
    return replace(options, pages="each") if joins_groups(config) else options


def slices_of(config: ExperimentConfig) -> tuple[int, int | None]:
    """Return the distance and the largest number of the slices of a case that are used."""
    fields = config.training.fields
    return fields.get("every", 1), fields.get("central")


def check_cases(config: ExperimentConfig, *, has_groups: bool) -> None:
    """Raise ValueError if groups are cases, and rows have none or are not encoded."""
    if not joins_groups(config):
        return
    if not has_groups:
        raise ValueError(
            "training is none:cases=group, and the rows have no groups; name their column with "
            "--group (group=), or omit cases"
        )
    if config.encoder is None:
        raise ValueError(
            "encoder is none, and features of cases are those of an encoder; set encoder=identity"
        )


def has_gradient_steps(config: ExperimentConfig) -> bool:
    """Return whether the training algorithm of a configuration has gradient steps at sites."""
    return _takes_training_config(_find_trainer(config.training.name, OWN))


def _find_trainer(name: str, policy: NamePolicy) -> type[Any]:  # of all signatures
    """Return a class of training algorithms. Raises ValueError for an unknown name."""
    return own_class(name) or find(TRAINERS, name, policy)


def _takes_training_config(trainer: type) -> bool:
    """Return whether sites train by gradient steps; other algorithms have a closed-form
    solution.
    """
    if not is_dataclass(trainer):
        return "training_config" in inspect.signature(trainer).parameters
    return any(item.name == "training_config" and item.init for item in fields_of(trainer))


def _check_head(config: ExperimentConfig, method: Method) -> None:
    """Raise ValueError if the last layer cannot be solved in closed form."""
    if method.contract.is_solved:
        raise ValueError(
            f"head is 'exact', and {config.training} has a closed-form solution "
            "anyway; omit head"
        )
    if is_personal(method):
        raise ValueError(
            f"head is 'exact', and {config.training} trains personalized models; omit "
            "head, or train a global model"
        )


def local_training_config(
    config: ExperimentConfig, strategy: Method
) -> TrainingConfig | None:
    """Return the training of the local model for ``strategy``; None for the model of the
    last round.
    """
    source = config.local_source
    if source == "auto":
        source = strategy.contract.local_source
    if source == "last_round":
        return None
    if source == "scratch":
        return replace(config.local_training_config, start="scratch")
    return replace(config.local_training_config, start="given")


def executor_of(
    config: ExperimentConfig, model: nn.Module, policy: NamePolicy = OWN
) -> str:
    """Return the executor of local training.

    It is the one for devices if the configuration names a device. Otherwise ``auto`` stacks
    built-in linear and dense models, and trains others one by one. A custom model may mix
    examples, which cannot be detected, so it is stacked only on request.
    """
    name = config.executor
    if config.device != "none":
        name = "device"
    if name == AUTO:
        return choose_executor(model, is_built_in=":" not in config.model.name)
    executor = find_executor(name, policy)
    if not executor.can_train(model):
        way_out = "executor 'loop' or 'auto'"
        if config.device != "none":
            way_out = "device 'none'"
        raise ValueError(
            f"executor {name!r} trains {executor.models} only; model {config.model.name} needs "
            f"{way_out}"
        )
    return name


def placement_of(config: ExperimentConfig) -> Placement | None:
    """Return the device of models, or None without one.

    Raises ValueError if this machine has no such device.
    """
    if config.device == "none":
        return None
    return Placement.open(config.device, config.precision)


@dataclass(frozen=True)
class ModelMaker:
    """Creates networks with random weights, in the precision of the configuration.

    shape: of an encoded example; outputs: number of classes, or 1 for regression; policy:
    names that may be resolved, by default all, as in a user's own simulations.
    """

    config: ExperimentConfig
    shape: tuple[int, ...]
    outputs: int
    policy: NamePolicy = OWN

    def build(self, generator: torch.Generator) -> nn.Module:
        """Create a network. Raises ValueError for an unknown name or field."""
        spec = self.config.completed_model
        model = build_model(
            spec.name, self.shape, self.outputs, generator, self.policy, **spec.fields
        )
        return model.to(DTYPES[self.config.dtype])

    def outline(self) -> Layout | None:
        """Return the shapes of a network's weights, without memory for them; None for a
        custom class.
        """
        spec = self.config.completed_model
        if ":" in spec.name:
            return None
        return outline_model(spec.name, self.shape, self.outputs, **spec.fields)

    def draw_weights(self, layout: Layout, generator: torch.Generator) -> State:
        """Return the initial weights of a new network as flat vectors."""
        return layout.flatten(self.build(generator), DTYPES[self.config.dtype])


@cache
def versions() -> dict[str, str]:
    """Return the versions of the interpreter and of numerical libraries."""
    libraries = ("torch", "numpy", "scipy", "scikit-learn")
    return {
        "python": platform.python_version(),
        "fallow": __version__,
        **{name: version(name) for name in libraries},
    }


def versions_of(config: ExperimentConfig) -> dict[str, str]:
    """Return `versions`, and those of the device if the configuration names one."""
    placement = placement_of(config)
    if placement is None:
        return versions()
    return {**versions(), **placement.describe()}


def threads() -> int:
    return torch.get_num_threads()
