"""FairFAL's experiments: long tails over ten sites, in the full protocol and in small
variants.

The full recipes follow LoGo's settings, as FairFAL does: the 4-layer net, 100 rounds of 5
epochs, SGD 0.01 with momentum 0.9 and weight decay 1e-5, batch 64, learning rate x 0.1 from
the 77th round, 5 % initial labels and 5 % per cycle up to 45 %.  The training set has a
long tail with rho = 20, and the test set is balanced.  Fallow does not include OctMNIST and
DermaMNIST.

The published results are from reading notes, not from the paper.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.recipes.all_strategies import FASHION
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Published, Spec

ROWS = {
    "random": "Random",
    "entropy": "Entropy",
    "badge": "BADGE",
    "core_set": "Core-Set",
    "ksas@training=kcfu": "KAFAL",
    "logo": "LoGo",
    "ifal": "IFAL",
    "fairfal": "FairFAL",
}
ABLATION = {
    "fairfal:kappa=1": "with global prototypes",
    "fairfal:kappa=2": "with two stages kappa=2",
    "fairfal:kappa=3": "with two stages kappa=3",
    "fairfal": "with two stages kappa=4",
    "fairfal:kappa=5": "with two stages kappa=5",
}
SWITCHES = ("fairfal:prototypes=false", "fairfal:query_model=opposite")
SELECTOR = (
    "random",
    "entropy",
    "entropy:model=global",
    "core_set",
    "core_set:model=global",
)
SGD = Optimizer(lr=0.01, momentum=0.9, weight_decay=1e-5)


def tail(alpha: float, rho: float = 20, **fields: int) -> Spec:
    """Return a long tail over the classes, distributed over sites with exact margins.

    >>> tail(0.1, n_max=700).fields["n_max"]
    700
    """
    inner = {"inner": "ExactDirichlet", "inner_fields": {"alpha": alpha}}
    return Spec("long-tail", {"rho": rho, **fields, **inner})


CIFAR10 = Recipe(
    name="fairfal/cifar10",
    title="FairFAL: CIFAR-10, long tail with rho 20, Dirichlet 0.1, full protocol",
    data="cifar10",
    partition=tail(0.1),
    model=Spec("cnn4"),
    training_config=TrainingConfig(
        (TrainingStage(5),), 64, SGD, Schedule((76,), 0.1, "round"), augment=("flip",)
    ),
    rounds=100,
    local_training_config=TrainingConfig(
        (TrainingStage(50),), 64, SGD, Schedule((37,), 0.1, "epoch"), stop_at=0.99
    ),
    initial=0.05,
    budget=0.05,
    cycles=8,
    budget_allocation="equal_rounded",
    score_rounds=1,
    channels_last=True,
    strategies=tuple(ROWS),
    strategy=Spec("fairfal"),
    reference="fairfal",
    seeds=5,
    published=Published("fairfal-final", "dataset=CIFAR-10", ROWS),
)
FMNIST = replace(
    CIFAR10,
    name="fairfal/fmnist",
    title="FairFAL: Fashion-MNIST, long tail with rho 20, Dirichlet 0.1, full protocol",
    data="fashion_mnist",
    published=Published("fairfal-final", "dataset=FMNIST", ROWS),
)
CIFAR100 = replace(
    CIFAR10,
    name="fairfal/cifar100",
    title="FairFAL: CIFAR-100, long tail with rho 20, Dirichlet 0.1, full protocol",
    data="cifar100",
    published=Published("fairfal-final", "dataset=CIFAR-100", ROWS),
)
CIFAR10_MINI = replace(
    CIFAR10,
    name="fairfal/cifar10-mini",
    title="FairFAL: CIFAR-10, long tail with rho 20 of 8,000 rows, Dirichlet 0.1",
    rows=8000,  # 2,379 examples remain
    test_rows=2000,
    partition=tail(0.1, n_max=700),
    model=Spec("lenet"),
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.02, momentum=0.9)
    ),
    rounds=10,
    cycles=4,
    score_rounds=5,
    channels_last=False,
    bounds=(),
    seeds=2,
    published=Published("fairfal-curve", "labeled=25%", ROWS),
)
FMNIST_MINI = replace(
    FASHION,
    name="fairfal/fmnist-mini",
    title="FairFAL: Fashion-MNIST, long tail with rho 20 of 24,000 rows, Dirichlet 0.1",
    strategies=tuple(ROWS),
    reference="fairfal",
    bounds=(),
    seeds=3,
    published=Published("fairfal-final", "dataset=FMNIST", ROWS),
)
ABLATION_MINI = replace(
    FMNIST_MINI,
    name="fairfal/ablation-mini",
    title="FairFAL's ablation: Fashion-MNIST, long tail with rho 20 of 24,000 rows, Dirichlet 0.1",
    strategies=(*ABLATION, *SWITCHES),
    published=Published("fairfal-ablation", "alpha=0.1", ABLATION),
)


def at(recipe: Recipe, alpha: float, rho: float = 20) -> Recipe:
    """Return the configuration with another alpha and rho, which are part of its name.

    >>> at(CIFAR10, 100, rho=1).name
    'fairfal/cifar10-alpha100-rho1'
    """
    name = f"{recipe.name}-alpha{alpha:g}"
    if rho != 20:
        name += f"-rho{rho:g}"
    title = recipe.title.replace("Dirichlet 0.1", f"Dirichlet {alpha:g}")
    fields = {**recipe.partition.fields, "rho": rho, "inner_fields": {"alpha": alpha}}

    published = None
    printed = recipe.published
    if printed is not None and printed.setting == "alpha=0.1" and rho == 20:
        published = replace(printed, setting=f"alpha={alpha:g}")
    return replace(
        recipe,
        name=name,
        title=title.replace("rho 20", f"rho {rho:g}"),
        partition=replace(recipe.partition, fields=fields),
        published=published,
    )


SELECTOR_MINI = replace(
    FMNIST_MINI,
    name="fairfal/selector-mini",
    title="FairFAL's query models: Fashion-MNIST, rho 20 of 24,000 rows, Dirichlet 0.1",
    strategies=SELECTOR,
    reference="random",
    seeds=6,
    published=None,
)

# without a long tail, with about the same number of examples
BALANCED_MINI = replace(SELECTOR_MINI, partition=tail(0.1, n_max=740))

RECIPES = (
    FMNIST_MINI,
    CIFAR10_MINI,
    ABLATION_MINI,
    at(ABLATION_MINI, 100),
    SELECTOR_MINI,
    at(SELECTOR_MINI, 100),
    at(BALANCED_MINI, 0.1, 1),
    at(BALANCED_MINI, 100, 1),
    FMNIST,
    at(FMNIST, 100),
    CIFAR10,
    at(CIFAR10, 100),
    CIFAR100,
    replace(
        at(CIFAR100, 100),
        published=Published("fairfal-cifar100", "alpha=100", {"fairfal": "FairFAL"}),
    ),
    replace(
        CIFAR10,
        name="fairfal/ablation",
        title="FairFAL's ablation: CIFAR-10, long tail with rho 20, Dirichlet 0.1, full protocol",
        strategies=(*ABLATION, *SWITCHES),
        published=Published("fairfal-ablation", "alpha=0.1", ABLATION),
    ),
)
