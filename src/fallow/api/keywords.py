"""Types of the arguments of `fallow.run`, `fallow.compare` and `fallow.select`, for editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from torch import nn

from fallow.core.load_options import LoadKeywords
from fallow.core.methods import Query, TrainingAlgorithm
from fallow.core.training_config import Optimizer, Schedule, TrainingConfig
from fallow.models.architectures import Architecture
from fallow.privacy.settings import Privacy
from fallow.settings.budgets import BudgetAllocation, LabelBudget
from fallow.settings.config import Device, Precision
from fallow.settings.spec import Published, Spec

Written = str | Spec | Mapping[str, object]
"""A component by name, such as ``"ahfal:tau=15"``."""

StrategyLike = Written | Query | Callable[..., object]
"""A query strategy, its class, its name, or a function of ``(view, n)``."""

Strategies = Sequence[object] | StrategyLike
"""Query strategies. Type checkers treat a list of several classes as a list of objects."""

TrainingLike = Written | TrainingAlgorithm | Callable[..., TrainingAlgorithm]
"""A training algorithm, its class or its name."""

ModelLike = Written | Architecture | nn.Module | Callable[..., Architecture | nn.Module]
"""A model by its settings or its name, or a PyTorch module, its class or a factory."""

Component = object
"""A partition, an encoder or a network: an object, its class or its name."""


class RunSettings(LoadKeywords, total=False):
    """Settings of a `ExperimentConfig` that `fallow.run` accepts in addition to its own arguments.

    ``fallow settings`` and the settings reference describe each of them.
    """

    name: str | None
    title: str | None
    data: str | None
    rows: int | None
    test_rows: int | None
    resplit: bool | None
    features: Component | None
    encoder: Component | None
    standardize: Literal["auto", "federated", "ranges", "none"] | None
    target_scale: Literal["labeled", "oracle", "none"] | None
    partition: Component | None
    sites: int | None
    flip: int | None
    head: Literal["trained", "exact"] | None
    training_config: TrainingConfig | Mapping[str, object] | None
    participation: float | None
    restart: Literal["fresh", "continue"] | None
    local_source: Literal["auto", "last_round", "scratch", "finetune"] | None
    local_training_config: TrainingConfig | Mapping[str, object] | None
    initial_by: Literal["random", "typical", "query"] | None
    queries_per_cycle: int | None
    evaluation_fraction: float | None
    stop: str | None
    protocol: Literal["auto", "cycles", "one_pass"] | None
    budget_allocation: BudgetAllocation | None
    validation: float | None
    fresh_first: bool | None
    privacy: Privacy | Mapping[str, object] | None
    test: Literal["common", "own"] | None
    score_rounds: int | None
    metrics: Sequence[str] | None
    coverage: float | None
    measure: Sequence[str] | None
    executor: str | None
    channels_last: bool | None
    device: Device | None
    precision: Precision | None
    dtype: Literal["float32", "float64"] | None
    published: Published | Mapping[str, object] | None
    lr: float | None
    epochs: int | None
    batch_size: int | None
    optimizer: Literal["sgd", "adam", "adamw"] | Optimizer | None
    momentum: float | None
    weight_decay: float | None
    schedule: Schedule | Mapping[str, object] | None
    milestones: Sequence[int] | None
    augment: Sequence[Literal["flip", "crop2", "crop4"]] | None
    patience: int | None
    stop_at: float | None


class CompareSettings(RunSettings, total=False):
    """Settings that `fallow.compare` accepts, including those that are arguments of
    `fallow.run`.
    """

    training: TrainingLike | None
    model: ModelLike | None
    budget: LabelBudget | Sequence[LabelBudget] | None
    initial: LabelBudget | None
    cycles: int | None
    rounds: int | None
    bounds: Sequence[Literal["all-labels", "pooled"]] | bool | None
