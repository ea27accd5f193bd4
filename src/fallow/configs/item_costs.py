"""Cost of a table or figure of a paper, estimated from its settings and measured paces.

The number of training steps follows from the settings.  ``paces.csv`` has the seconds of an
example in training and in prediction, by model and shape, on one core
(``scripts/measure_paces.py``).  No GPU was measured: `GPU_STEP` and `GPU_LOOK` are assumptions.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fallow.catalog import find_entry
from fallow.configs.items import PaperItem
from fallow.core.build import build
from fallow.core.methods import CollaboratorSelection
from fallow.data.partition import partitions
from fallow.data.partition.basic import Counts
from fallow.data.partition.longtail import LongTail, longtail_counts
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import bounds_of, variant
from fallow.study.estimate import count_labels_by_phase

PACES = Path(__file__).parent / "paces.csv"
GPU_STEP = 0.004  # s of a training step, assumed: small networks wait for kernel launches
GPU_LOOK = 4e-6  # s of the prediction of an example, assumed: 4 ms for 1,000 examples
CORES = 2
TEST_EXAMPLES = 10_000  # of a scored round, as in most of the datasets
MODELS_OF_QUERY = 2  # that see the unlabeled pool, at most
TRAINING_EXAMPLES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "cinic10": 180_000,
    "dermamnist": 7_007,
    "fashion_mnist": 60_000,
    "mnist": 60_000,
    "octmnist": 97_477,
    "svhn": 73_257,
}
"""Number of training examples of classification datasets; regression keeps 80 % of the rows."""


class Cost(NamedTuple):
    """Seconds of all studies of an item; ``gpu`` is None if the hours were measured on cores."""

    two_cores: float
    gpu: float | None


class PaceKey(NamedTuple):
    """Model and shape of an example, by which paces are measured."""

    model: str
    shape: str

    @staticmethod
    def of(config: ExperimentConfig) -> PaceKey:
        """Return the key of a configuration."""
        shape = find_entry(config.data).shape
        return PaceKey(str(config.model), "x".join(map(str, shape)))


@dataclass(frozen=True)
class CorePace:
    """Measured seconds of an example on one core."""

    train: float
    look: float


@cache
def read_paces() -> dict[PaceKey, CorePace]:
    """Return the measured paces of ``paces.csv``."""
    with PACES.open(encoding="utf-8", newline="") as lines:
        return {
            PaceKey(row["model"], row["shape"]): CorePace(
                float(row["train_s"]), float(row["look_s"])
            )
            for row in csv.DictReader(lines)
        }


def estimate_cost(configs: Collection[ExperimentConfig]) -> Cost | None:
    """Return the cost of studies; None without studies, or if a pace was not measured."""
    if not configs or not {PaceKey.of(config) for config in configs} <= set(read_paces()):
        return None
    works = [count_work(config) for config in configs]
    two_cores = sum(work.on_core for work in works) / CORES
    return Cost(two_cores, sum(work.on_gpu for work in works))


@dataclass(frozen=True)
class Work:
    """Work of a study.

    Attributes
    ----------
    trained : float
        Number of examples in training steps.
    steps : float
        Number of training steps.
    seen : float
        Number of examples in predictions: tests, queries, and validation of collaborators.
    pace : CorePace
        Seconds of an example.
    """

    trained: float
    steps: float
    seen: float
    pace: CorePace

    @property
    def on_core(self) -> float:
        """Seconds on one core."""
        return self.trained * self.pace.train + self.seen * self.pace.look

    @property
    def on_gpu(self) -> float:
        """Assumed seconds on one GPU."""
        return self.steps * GPU_STEP + self.seen * GPU_LOOK


def count_work(config: ExperimentConfig) -> Work:
    """Count the training steps and predictions of a study, over strategies and seeds.

    Strategies with the same training algorithm share the training on the initial labeled set.
    """
    pool = count_pool(config)
    pace = read_paces()[PaceKey.of(config)]
    trained = 0.0
    steps = 0.0
    seen = 0.0
    begun: set[str] = set()
    for strategy in (*config.strategies, *bounds_of(config)):
        changed = variant(config, strategy)
        training = methods_of(changed)["training"]
        local = changed.completed_training
        key = f"{changed.training} {changed.initial}"
        phases = count_labels_by_phase(changed, pool)
        for cycle, labels in enumerate(phases):
            if cycle < len(phases) - 1:
                seen += MODELS_OF_QUERY * (pool - labels)
            if cycle == 0 and key in begun:
                continue
            begun.add(key)
            examples = labels * changed.rounds * local.epochs
            examples *= training.contract.gradients_per_batch
            trained += examples
            steps += examples / local.examples_per_step
            seen += min(changed.rounds, changed.score_rounds) * TEST_EXAMPLES
            if isinstance(training, CollaboratorSelection):
                load = training.load(changed.sites, changed.rounds, False)
                seen += load.evaluations * changed.validation * labels / changed.sites
    n = config.seeds
    return Work(n * trained, n * steps, n * seen, pace)


def count_pool(config: ExperimentConfig) -> int:
    """Return the number of training examples of all sites.

    >>> from fallow.settings.config import config_from
    >>> tail = {"name": "long-tail", "rho": 20, "inner": "IID"}
    >>> count_pool(config_from({"name": "a", "data": "mnist", "partition": tail}))
    20428
    """
    if config.rows:
        pool = config.rows
    elif config.data in TRAINING_EXAMPLES:
        pool = TRAINING_EXAMPLES[config.data]
    else:
        pool = round(0.8 * find_entry(config.data).rows)
    rule = build(partitions, config.partition.name, **config.partition.fields)
    if isinstance(rule, LongTail):
        classes = find_entry(config.data).classes
        counts = longtail_counts(rule.n_max or pool // classes, classes, rule.rho)
        pool = int(counts.sum())
    if isinstance(rule, Counts):
        pool = sum(sum(row.values()) for row in rule.table)
    return pool


def list_pace_keys(items: Iterable[PaperItem]) -> dict[PaceKey, ExperimentConfig]:
    """Return the models and shapes of all items, each with one of its configurations."""
    keys: dict[PaceKey, ExperimentConfig] = {}
    for item in items:
        for is_reduced in (False, True):
            for config in item.configs(is_reduced=is_reduced):
                keys.setdefault(PaceKey.of(config), config)
    return keys
