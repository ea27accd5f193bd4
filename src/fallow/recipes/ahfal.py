"""AHFAL's experiments: full protocol of the paper, and forms that two cores finish.

The full recipes follow the paper's section 7 and its public settings: N=10 sites of equal size,
100 rounds of 5 local epochs, SGD 0.1 with momentum 0.9 and weight decay 5e-4, batch 128, learning
rate x 0.1 after 260 local epochs, 10 % first labels and 5 % a cycle, equal budgets.  MNIST: 10
rounds of 10 epochs.  The partition is the one with exact margins, which keeps both the sizes of
sites and the totals of classes.

The ``-mini`` recipes: 8,000 rows, LeNet, SGD 0.02, batch 16, 15 rounds of 2 epochs; the score of a
cycle is the mean over its last five rounds, because one round swings by several points.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.plan import Optimiser, Plan, Schedule, Segment
from fallow.lab.recipe import Recipe
from fallow.lab.spec import Published, Spec

ABLATION = {
    "ahfal": "AHFAL",
    "ahfal:toggle=never": "AHFAL without toggling",
    "entropy": "AHFAL without toggling and class balance",
}
ROWS = {"random": "Random", "entropy": "Entropy", "ahfal": "AHFAL"}
FIVE = ("random", "entropy", "ahfal", "ahfal:toggle=never", "ahfal:balance=none")

PAPER_SGD = Optimiser(lr=0.1, momentum=0.9, weight_decay=5e-4, persist=True)

CIFAR10 = Recipe(
    name="ahfal/cifar10",
    title="AHFAL Table 1: CIFAR-10, Dirichlet 0.1, full protocol",
    data="cifar10",
    model=Spec("resnet8"),
    plan=Plan((Segment(5),), 128, PAPER_SGD, Schedule((260,), 0.1, "epoch"),
              augment=("flip", "crop4")),
    rounds=100,
    cycles=5,
    score_rounds=1,
    channels_last=True,
    query=Spec("ahfal"),
    reference="ahfal",
    seeds=3,
    published=Published("ahfal-table1", "alpha=0.1", ROWS),
)  # fmt: skip

MNIST = replace(
    CIFAR10,
    name="ahfal/mnist",
    title="AHFAL Table 8: MNIST, Dirichlet 0.1, full protocol",
    data="mnist",
    model=Spec("resnet8", {"variant": "mnist"}),
    plan=replace(CIFAR10.plan, segments=(Segment(10),), augment=("crop2",)),
    rounds=10,
    cycles=6,
    published=Published("ahfal-table8", "dataset=MNIST alpha=0.1", ROWS),
)

MNIST_MINI = Recipe(
    name="ahfal/mnist-mini",
    title="AHFAL against its ablations: MNIST, 8,000 rows, Dirichlet 0.1",
    data="mnist",
    rows=8000,
    test_rows=2000,
    model=Spec("lenet"),
    plan=Plan((Segment(2),), 16, Optimiser(lr=0.02, momentum=0.9)),
    queries=FIVE,
    query=Spec("ahfal"),
    reference="ahfal",
    seeds=4,
    published=Published("ahfal-table8", "dataset=MNIST alpha=0.1", ROWS),
)

CIFAR10_MINI = replace(
    MNIST_MINI,
    name="ahfal/cifar10-mini",
    title="AHFAL Table 1: CIFAR-10, 8,000 rows, Dirichlet 0.1",
    data="cifar10",
    queries=("random", "entropy", "ahfal"),
    seeds=3,
    published=Published("ahfal-table1", "alpha=0.1", ROWS),
)


def at(recipe: Recipe, alpha: float) -> Recipe:
    """The recipe at another Dirichlet alpha; its name says so."""
    shown = f"{alpha:g}"
    published = recipe.published and replace(
        recipe.published,
        setting=recipe.published.setting.replace("alpha=0.1", f"alpha={alpha:.1f}"),
    )
    return replace(
        recipe,
        name=f"{recipe.name}-alpha{shown}",
        title=recipe.title.replace("Dirichlet 0.1", f"Dirichlet {shown}"),
        partition=replace(recipe.partition, fields={"alpha": alpha}),
        published=published,
    )


RECIPES = (
    MNIST_MINI,
    at(MNIST_MINI, 1.0),
    CIFAR10_MINI,
    at(CIFAR10_MINI, 1.0),
    MNIST,
    at(MNIST, 0.5),
    at(MNIST, 1.0),
    CIFAR10,
    at(CIFAR10, 0.3),
    at(CIFAR10, 0.5),
    at(CIFAR10, 1.0),
    replace(
        CIFAR10,
        name="ahfal/ablation",
        title="AHFAL Table 6: ablation on CIFAR-10, Dirichlet 0.1, full protocol",
        queries=tuple(ABLATION),
        published=Published("ahfal-table6", "alpha=0.1", ABLATION),
    ),
    replace(
        CIFAR10_MINI,
        name="ahfal/ablation-mini",
        title="AHFAL Table 6: ablation on CIFAR-10, 8,000 rows, Dirichlet 0.1",
        queries=tuple(ABLATION),
        published=Published("ahfal-table6", "alpha=0.1", ABLATION),
    ),
)
