"""Benchmark with few labels: tasks for the comparison of query strategies.

A task is a dataset and its partition. Nothing is labeled at first. Budgets are cumulative,
from 2 to 200 labels per class if there are enough examples. Each task is run with
closed-form classifiers on 512 features, and with FedAvg under its name and ``-fedavg``, as
in ``strategies/*``.

The constants of Fallow's own strategies were tuned on the tasks in `TUNED`. These
strategies must be judged by the other tasks only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from fallow.configs import all_strategies as strategies
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.study.advice import AdviceTable, Rules, SimulationFacts

A_CLASS = (2, 5, 10, 20, 50, 100, 200)
"""Number of labels per class after each query."""

RIVALS = (
    "random",
    "margin",
    "entropy",
    "typicality",
    "max_herding",
    "uncertainty_herding",
    "prob_cover",
    "drop_query",
    "core_set",
    "badge",
    "ahfal",
    "fairfal",
    "logo",
)
OURS = (
    "typical",
    "typical_unsure",
)
FEDAVG = "-fedavg"
PICTURES = "convolution:filters=32"  # 512 features
TABLES = "fourier:features=512"


def labels_a_site(classes: int, sites: int, a_class: Sequence[int] = A_CLASS) -> list[int]:
    """Return the number of labels of a site after each query.

    It is the site's share of the labels per class, and increases by at least one each time.

    >>> labels_a_site(classes=10, sites=10)
    [2, 5, 10, 20, 50, 100, 200]
    >>> labels_a_site(classes=6, sites=21)
    [1, 2, 3, 6, 14, 29, 57]
    """
    values: list[int] = []
    for labels in a_class:
        least = 1
        if values:
            least = values[-1] + 1
        values.append(max(least, round(labels * classes / sites)))
    return values


def _task(
    base: ExperimentConfig, *, classes: int, sites: int, per_class: int = A_CLASS[-1]
) -> ExperimentConfig:
    """Return the task with FedAvg. per_class: labels per class that its examples allow."""
    a_class = [labels for labels in A_CLASS if labels <= per_class]
    until = [0, *labels_a_site(classes, sites, a_class)]
    bought = tuple(after - before for before, after in pairwise(until))
    return replace(base, budget=bought, cycles=len(bought))


def _solve(task: ExperimentConfig, encoder: str) -> ExperimentConfig:
    """Return the task with closed-form classifiers."""
    settings = {
        "name": task.name.removesuffix(FEDAVG),
        "title": task.title,
        "training": "closed-form:unlabeled=off",  # as in the published tables
        "encoder": encoder,
        "score_rounds": 1,
    }
    return config_from(settings, task)


MNIST = _task(
    replace(
        strategies.MNIST,
        name="benchmark/mnist-fedavg",
        title="Benchmark: MNIST, 8,000 examples, Dirichlet 0.1",
        initial=0,
        strategies=RIVALS + OURS,
        strategy=Spec("margin"),
        bounds=(),
        seeds=30,
    ),
    classes=10,
    sites=10,
)


def _simulation(
    task: ExperimentConfig, name: str, title: str, **settings: Any
) -> ExperimentConfig:
    """Return the task with another dataset and partition, under another name."""
    return replace(
        task, name=f"benchmark/{name}{FEDAVG}", title=f"Benchmark: {title}", **settings
    )


def _long_tail(n_max: int, alpha: float) -> Spec:
    """Return classes of ``n_max`` to ``n_max`` / 20 examples, distributed by Dirichlet
    ``alpha``.
    """
    inner = {"inner": "ExactDirichlet", "inner_fields": {"alpha": alpha}}
    return Spec("long-tail", {"rho": 20, "n_max": n_max, **inner})


ALIKE = Spec("exact-dirichlet", {"alpha": 100.0})

FASHION = _simulation(
    MNIST,
    "fashion-lt",
    "Fashion-MNIST, long tail with rho 20, Dirichlet 0.1",
    data=strategies.FASHION.data,
    rows=strategies.FASHION.rows,
    partition=strategies.FASHION.partition,
)
CIFAR = _simulation(
    MNIST, "cifar10", "CIFAR-10, 8,000 examples, Dirichlet 0.1", data="cifar10"
)
CIFAR_ALIKE = _simulation(
    CIFAR,
    "cifar10-alpha100",
    "CIFAR-10, 8,000 examples, Dirichlet 100",
    partition=ALIKE,
)
CIFAR_TAIL = _simulation(
    CIFAR,
    "cifar10-lt",
    "CIFAR-10, long tail with rho 20, Dirichlet 0.1",
    rows=strategies.FASHION.rows,
    partition=_long_tail(2300, 0.1),
)
CIFAR_TAIL_ALIKE = _simulation(
    CIFAR_TAIL,
    "cifar10-lt-alpha100",
    "CIFAR-10, long tail with rho 20, Dirichlet 100",
    partition=_long_tail(2300, 100.0),
)
DIGITS = _task(
    _simulation(
        MNIST,
        "digits",
        "digits of 8 x 8 pixels, Dirichlet 0.1",
        data="digits",
        rows=None,
        test_rows=None,
    ),
    classes=10,
    sites=10,
    per_class=100,
)
DIGITS_ALIKE = _simulation(
    DIGITS,
    "digits-alpha100",
    "digits of 8 x 8 pixels, Dirichlet 100",
    partition=ALIKE,
)
DIGITS_TAIL = _task(
    _simulation(
        DIGITS,
        "digits-lt",
        "digits of 8 x 8 pixels, long tail with rho 20, Dirichlet 0.1",
        partition=_long_tail(130, 0.1),  # of 1,437 examples, 420 remain
    ),
    classes=10,
    sites=10,
    per_class=20,
)
DIGITS_TAIL_ALIKE = _simulation(
    DIGITS_TAIL,
    "digits-lt-alpha100",
    "digits of 8 x 8 pixels, long tail with rho 20, Dirichlet 100",
    partition=_long_tail(130, 100.0),
)
WRITERS = _task(
    _simulation(
        MNIST,
        "writers",
        "digits of the 20 most frequent writers of MNIST",
        rows=None,
        test_rows=None,
        resplit=True,  # MNIST's own test digits are by other people
        partition=Spec("natural"),
        sites=20,
    ),
    classes=10,
    sites=20,
    per_class=100,
)
HOSPITALS = _task(
    _simulation(
        MNIST,
        "heart",
        "heart disease in four hospitals",
        data="heart",
        rows=None,
        test_rows=None,
        resplit=True,
        partition=Spec("natural"),
        sites=0,
        training_config=MNIST.training_config,
    ),
    classes=2,
    sites=4,
)

TRAINED = (
    MNIST,
    FASHION,
    DIGITS,
    DIGITS_ALIKE,
    DIGITS_TAIL,
    DIGITS_TAIL_ALIKE,
    WRITERS,
    CIFAR,
    CIFAR_ALIKE,
    CIFAR_TAIL,
    CIFAR_TAIL_ALIKE,
    HOSPITALS,
)
ENCODERS = {"heart": TABLES}
SOLVED = tuple(_solve(task, ENCODERS.get(task.data, PICTURES)) for task in TRAINED)
TUNED = ("benchmark/mnist", "benchmark/fashion-lt")
EXPERIMENTS = (*SOLVED, *TRAINED)


def classes_of(task: ExperimentConfig) -> int:
    """Return the number of classes of a task's data.

    >>> [classes_of(task) for task in (DIGITS, HOSPITALS)]
    [10, 2]
    """
    return {"heart": 2}.get(task.data, 10)


FOLDER = Path(__file__).parent / "published"
SCORES = FOLDER / "few-labels.csv"
SIMULATIONS = FOLDER / "few-labels-tasks.csv"
RULES = Rules(reference="random", usual="typical-unsure", trainer="closed-form")


@lru_cache(maxsize=1)
def read_table() -> AdviceTable:
    """Read the scores of each strategy by task, seed and labels, and the properties of each
    task.

    The file has names as in Python; strategies have the names of the command line here.

    >>> "typical-unsure" in set(read_table().scores["strategy"])
    True
    """
    import pandas as pd

    simulations = {}
    for row in pd.read_csv(SIMULATIONS).itertuples(index=False):
        simulations[str(row.task)] = SimulationFacts(
            classes=int(row.classes),
            sites=int(row.sites),
            apart=float(row.apart),
            uneven=float(row.uneven),
        )
    scores = pd.read_csv(SCORES)
    scores["strategy"] = scores["strategy"].str.replace("_", "-")
    return AdviceTable(scores, simulations)
