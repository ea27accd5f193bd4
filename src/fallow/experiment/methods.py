"""The methods of a recipe by the part they play, and what they need to train."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass, replace

from torch import nn

from fallow import strategies, training
from fallow.core.build import build, find
from fallow.core.methods import Method, Methods, Query
from fallow.core.names import OWN, NamePolicy
from fallow.core.own import own_class
from fallow.core.training_config import TrainingConfig
from fallow.core.types import SiteId
from fallow.engine.executors import AUTO, choose_executor, find_executor
from fallow.engine.placement import Placement
from fallow.experiment.audit import Audit
from fallow.privacy import check_fit
from fallow.settings.recipe import Recipe
from fallow.strategies import Random, Typical
from fallow.training import FedAvg, personal
from fallow.training.exact_head import ExactHead
from fallow.training.retention import Retention
from fallow.training.scaling import Scaling

WRONG_SITES = "flipped"
"""The word that stands for the sites whose labels are wrong, in a field that lists sites."""


def is_shared(strategy: Method) -> bool:
    """Whether a query spends one budget of all sites, as its contract says."""
    return strategy.contract.budget_of == "federation"


def methods_of(
    recipe: Recipe, flipped: Sequence[SiteId] = (), policy: NamePolicy = OWN
) -> Methods:
    """The methods of a run by the part they play; ValueError for an unknown name or field.

    ``flipped``: the sites whose labels are wrong, which the word "flipped" stands for in a field
    of the training method that lists sites.  ``policy``: which names resolve; by default all, as in
    a person's own simulations.
    """
    trainers = (training, personal)
    fields = dict(recipe.training.fields)
    trainer = own_class(recipe.training.name) or find(
        trainers, recipe.training.name, policy
    )
    for name in trainer.contract.site_lists:
        if fields.get(name) == WRONG_SITES:
            fields[name] = tuple(flipped)
    if _takes_training_config(trainer):
        fields["training_config"] = recipe.completed_training
    method = build(trainers, recipe.training.name, policy, **fields)
    strategy = build(strategies, recipe.strategy.name, policy, **recipe.strategy.fields)
    if recipe.sites and recipe.sites < strategy.contract.cohort:
        raise ValueError(
            f"{recipe.strategy} compares sites and needs at least {strategy.contract.cohort}; the "
            f"recipe has {recipe.sites}"
        )
    if strategy.contract.not_solved and "least-squares" in method.contract.tags:
        raise ValueError(
            f"{recipe.strategy} does not suit {recipe.training}: {strategy.contract.not_solved}; "
            "choose another strategy, or train with fedavg"
        )
    cohort = math.ceil(recipe.participation * recipe.sites - 1e-9)
    if method.contract.everyone and cohort < recipe.sites:
        raise ValueError(
            f"{recipe.training} needs all sites in every round, and participation="
            f"{recipe.participation:g} takes {cohort} of {recipe.sites}; set participation=1"
        )
    contracts = {
        str(recipe.strategy): strategy.contract,
        str(recipe.training): method.contract,
    }
    if recipe.head == "exact":
        _check_head(recipe, method)
        contracts["head=exact"] = ExactHead.contract
    first: Query = Random()
    if recipe.initial_by == "typical":
        first = Typical()
        contracts["initial_by=typical"] = first.contract
    audit = None
    if recipe.audit:
        privacy = recipe.privacy
        audit = Audit(recipe.audit, privacy.secure_sum, privacy.waits_for)
        contracts[f"audit={recipe.audit:g}"] = audit.contract
    check_fit(recipe.privacy, contracts, cohort)
    values: Methods = {
        "initial": first,
        "query": strategy,
        "training": method,
        "plain": FedAvg(),
        "scaling": Scaling(is_encoded=recipe.encoder is not None),
        "retention": Retention(method),
    }
    if recipe.head == "exact":
        values["head"] = ExactHead()
    if audit is not None:
        values["audit"] = audit
    return values


def _takes_training_config(trainer: type) -> bool:
    """Whether sites train by steps under it; other algorithms solve for their model."""
    if not is_dataclass(trainer):
        return "training_config" in inspect.signature(trainer).parameters
    return any(item.name == "training_config" and item.init for item in fields_of(trainer))


def _check_head(recipe: Recipe, method: Method) -> None:
    """Raise ValueError where the common model has no head to solve for."""
    if "least-squares" in method.contract.tags:
        raise ValueError(
            f"head is 'exact', and {recipe.training} solves for its model anyway; leave out head"
        )
    if type(method).__module__.startswith(personal.__name__):
        raise ValueError(
            f"head is 'exact', and with {recipe.training} each site has a model of its own; leave "
            "out head, or train one model for all"
        )


def local_training_config(recipe: Recipe, strategy: Method) -> TrainingConfig | None:
    """How the local model that ``strategy`` looks at is made; None where it is the last round's."""
    source = recipe.local_source
    if source == "auto":
        source = strategy.contract.local_source
    if source == "last_round":
        return None
    if source == "scratch":
        return replace(recipe.local_training_config, start="scratch")
    return replace(recipe.local_training_config, start="given")


def executor_of(recipe: Recipe, model: nn.Module, policy: NamePolicy = OWN) -> str:
    """Which executor trains: the one for devices where the recipe names a device; else ``auto``
    stacks the library's linear and dense models and loops over the rest.  A user's own model may
    mix rows, which no layer says, so it is stacked on request.
    """
    name = recipe.executor
    if recipe.device != "none":
        name = "device"
    if name == AUTO:
        return choose_executor(model, is_built_in=":" not in recipe.model.name)
    executor = find_executor(name, policy)
    if not executor.can_train(model):
        way_out = "executor 'loop' or 'auto'"
        if recipe.device != "none":
            way_out = "device 'none'"
        raise ValueError(
            f"executor {name!r} trains {executor.models} only; model {recipe.model.name} needs "
            f"{way_out}"
        )
    return name


def placement_of(recipe: Recipe) -> Placement | None:
    """Where models are computed; None where the recipe names no device.  Raises ValueError where
    this machine has none of that kind."""
    if recipe.device == "none":
        return None
    return Placement.open(recipe.device, recipe.precision)
