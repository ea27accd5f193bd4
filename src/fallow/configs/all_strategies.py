"""Comparison of all query strategies, which two cores finish with ten seeds.

It has 8,000 examples at ten sites, a small dense network (all sites train at once), and 15
rounds of 2 epochs. 10 % of the examples are labeled initially, and 5 % in each of three
cycles. MNIST is balanced; Fashion-MNIST has a long tail with rho = 20, as in FairFAL's
experiments. The score of a cycle is the mean over its last five rounds. Each strategy uses
the local model of its paper.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec

MNIST = ExperimentConfig(
    name="strategies/mnist",
    title="All strategies: MNIST, 8,000 examples, Dirichlet 0.1",
    data="mnist",
    rows=8000,
    test_rows=2000,
    model=Spec("mlp"),
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.01, momentum=0.9)
    ),
    strategies=(
        "random",
        "entropy",
        "core_set",
        "badge",
        "ksas",
        "logo",
        "fairfal",
        "ahfal",
    ),
    strategy=Spec("ahfal"),
    reference="random",
)

FASHION = replace(
    MNIST,
    name="strategies/fashion-lt",
    title="All strategies: Fashion-MNIST, long tail with rho 20, Dirichlet 0.1",
    data="fashion_mnist",
    rows=24_000,  # 7,828 examples remain
    partition=Spec(
        "long-tail",
        {
            "rho": 20,
            "n_max": 2300,
            "inner": "ExactDirichlet",
            "inner_fields": {"alpha": 0.1},
        },
    ),
)

# AHFAL's Figure 2: strategies with the local model only, and with both models
LOCAL = ("entropy", "badge", "core_set", "noise_stability:draws=10")
GLOBAL_AWARE = ("logo", "feal", "ksas")

EXPERIMENTS = (
    MNIST,
    replace(
        MNIST,
        name="strategies/tradeoff",
        title="Local against global-aware strategies (AHFAL Figure 2): MNIST, 8,000 examples",
        strategies=("random", *LOCAL, *GLOBAL_AWARE),
        bounds=(),
        seeds=4,
    ),
    replace(
        MNIST,
        name="strategies/mnist-alpha1",
        title="All strategies: MNIST, 8,000 examples, Dirichlet 1.0",
        partition=Spec("exact-dirichlet", {"alpha": 1.0}),
    ),
    FASHION,
    replace(
        FASHION,
        name="strategies/fashion-lt-alpha100",
        title="All strategies: Fashion-MNIST, long tail with rho 20, Dirichlet 100",
        partition=Spec(
            "long-tail",
            {
                "rho": 20,
                "n_max": 2300,
                "inner": "ExactDirichlet",
                "inner_fields": {"alpha": 100},
            },
        ),
    ),
)
