"""AHFAL's experiments: Tables 1 to 9, sensitivity and oracle study, in the paper's full
protocol and in small variants for two cores.

The full recipes follow the paper's section 7 and its public settings: N=10 sites of equal
size, 100 rounds of 5 local epochs, SGD 0.1 with momentum 0.9 and weight decay 5e-4, batch
128, learning rate x 0.1 after 260 local epochs, 10 % initial labels and 5 % per cycle,
equal budgets. MNIST: 10 rounds of 10 epochs. The partition has exact margins for sizes of
sites and numbers of examples per class.

The ``-mini`` recipes: at most 8,000 examples, LeNet, SGD 0.02, batch 16, 15 rounds of 2
epochs; the score of a cycle is the mean over its last five rounds, because single rounds
vary by several points. Recipes that end in ``-code`` run the paper's baselines as its
public code does (``codes/``).
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, Schedule, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Published, Spec

ABLATION = {
    "ahfal": "AHFAL",
    "ahfal:toggle=never": "AHFAL without toggling",
    "entropy": "AHFAL without toggling and class balance",
}
ROWS = {
    "random": "Random",
    "entropy": "Entropy",
    "badge": "BADGE",
    "core_set": "Core-Set",
    "noise_stability": "Noise Stability",
    "logo": "LoGo",
    "ksas": "KAFAL",
    "feal@training=evidential": "FEAL",
    "ahfal": "AHFAL",
}
CODE = {
    "random": "Random",
    "entropy": "Entropy",
    "fallow_papers.ahfal.codes:PixelBADGE": "BADGE",
    "core_set": "Core-Set",
    "fallow_papers.ahfal.codes:PlainNoise": "Noise Stability",
    "fallow_papers.ahfal.codes:PlainLoGo": "LoGo",
    "fallow_papers.ahfal.codes:NaNKSAS": "KAFAL",
    "fallow_papers.ahfal.codes:PlainFEAL": "FEAL",
    "fallow_papers.ahfal.codes:RatioAHFAL": "AHFAL",
}
KCFU = {
    "ksas": "KAFAL (KSAS only)",
    "ksas@training=kcfu": "KAFAL (KSAS + KCFU)",
    "ahfal": "AHFAL",
    "ahfal@training=kcfu": "AHFAL + KCFU",
}
PRIVACY = {
    "ahfal@privacy.epsilon=1": "AHFAL, epsilon 1 a cycle",
    "ahfal@privacy.epsilon=2": "AHFAL, epsilon 2 a cycle",
    "ahfal": "AHFAL",
    "entropy": "best baseline (Entropy)",
}
BEYOND = (
    "ahfal@privacy.epsilon=0.2",
    "ahfal@privacy.epsilon=0.05",
    "ahfal@privacy.secure_sum=true",
)
ORACLE = (
    "random",
    "oracle-histogram:score=random",
    "entropy",
    "oracle-histogram:score=entropy",
    "typicality",
    "oracle-histogram:score=typicality",
)
FIVE = ("random", "entropy", "ahfal", "ahfal:toggle=never", "ahfal:balance=none")

PAPER_SGD = Optimizer(lr=0.1, momentum=0.9, weight_decay=5e-4, persist=True)

CIFAR10 = Recipe(
    name="ahfal/cifar10",
    title="AHFAL Table 1: CIFAR-10, Dirichlet 0.1, full protocol",
    data="cifar10",
    model=Spec("resnet8"),
    training_config=TrainingConfig(
        (TrainingStage(5),),
        128,
        PAPER_SGD,
        Schedule((260,), 0.1, "epoch"),
        augment=("flip", "crop4"),
    ),
    rounds=100,
    cycles=5,
    score_rounds=1,
    channels_last=True,
    strategies=tuple(ROWS),
    strategy=Spec("ahfal"),
    reference="ahfal",
    seeds=3,
    published=Published("ahfal-table1", "alpha=0.1", ROWS),
)

SVHN = replace(
    CIFAR10,
    name="ahfal/svhn",
    title="AHFAL Table 8: SVHN, Dirichlet 0.1, full protocol",
    data="svhn",
    training_config=replace(CIFAR10.training_config, augment=("crop4",)),
    cycles=6,
    published=Published("ahfal-table8", "dataset=SVHN alpha=0.1", ROWS),
)

MNIST = replace(
    CIFAR10,
    name="ahfal/mnist",
    title="AHFAL Table 8: MNIST, Dirichlet 0.1, full protocol",
    data="mnist",
    model=Spec("resnet8", {"variant": "mnist"}),
    training_config=replace(
        CIFAR10.training_config, stages=(TrainingStage(10),), augment=("crop2",)
    ),
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
    training_config=TrainingConfig(
        (TrainingStage(2),), 16, Optimizer(lr=0.02, momentum=0.9)
    ),
    strategies=FIVE,
    strategy=Spec("ahfal"),
    reference="ahfal",
    seeds=4,
    published=Published("ahfal-table8", "dataset=MNIST alpha=0.1", ROWS),
)

CIFAR10_MINI = replace(
    MNIST_MINI,
    name="ahfal/cifar10-mini",
    title="AHFAL Table 1: CIFAR-10, 8,000 rows, Dirichlet 0.1",
    data="cifar10",
    strategies=("random", "entropy", "ahfal"),
    seeds=3,
    published=Published("ahfal-table1", "alpha=0.1", ROWS),
)

TABLE_MINI = replace(
    MNIST_MINI,
    title="AHFAL Tables 2 and 8, all methods: MNIST, 4,000 rows, Dirichlet 0.1",
    name="ahfal/table8-mini",
    rows=4000,
    rounds=10,
    bounds=(),
    strategies=tuple(ROWS),
    seeds=2,
)


def at(recipe: Recipe, alpha: float) -> Recipe:
    """Return the configuration with another Dirichlet alpha, which is part of its name.

    >>> at(CIFAR10, 1.0).name, dict(at(CIFAR10, 1.0).partition.fields)
    ('ahfal/cifar10-alpha1', {'alpha': 1.0})
    """
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


def cell(
    recipe: Recipe,
    name: str,
    *,
    what: str,
    table: str,
    setting: str,
    rows: dict[str, str],
    more: tuple[str, ...] = (),
) -> Recipe:
    """Return the configuration for another table of the paper.

    It has the queries of the table, ``more`` of our own, and its published results. rows:
    strategy -> row of the table; what: number of the table, for the title.

    >>> kcfu = cell(CIFAR10, "kcfu", what="Table 7", table="t", setting="s", rows=KCFU)
    >>> kcfu.name, kcfu.title
    ('ahfal/kcfu', 'AHFAL Table 7: CIFAR-10, Dirichlet 0.1, full protocol')
    """
    _, _, details = recipe.title.partition(": ")
    reference = "random"
    if "ahfal" in rows:
        reference = "ahfal"
    return replace(
        recipe,
        name=f"ahfal/{name}",
        title=f"AHFAL {what}: {details}",
        strategies=(*rows, *more),
        reference=reference,
        published=Published(table, setting, rows),
    )


def budgets(recipe: Recipe, *, initial: float, budget: float, cycles: int) -> Recipe:
    """Return the configuration with another label budget, in fractions of all examples."""
    return replace(recipe, initial=initial, budget=budget, cycles=cycles)


SMALL = replace(
    CIFAR10_MINI,
    rows=4000,
    bounds=(),
    seeds=2,
    title=CIFAR10_MINI.title.replace("8,000", "4,000"),
)
# many labels of few examples
TINY = replace(SMALL, rows=2500, title=SMALL.title.replace("4,000", "2,500"))
CIFAR100 = replace(
    cell(
        CIFAR10,
        "cifar100",
        what="Table 3",
        table="ahfal-table3",
        setting="dataset=CIFAR-100",
        rows=ROWS,
    ),
    data="cifar100",
    title="AHFAL Table 3: CIFAR-100, Dirichlet 1, full protocol",
    partition=Spec("exact-dirichlet", {"alpha": 1.0}),
)
MOBILENET = replace(
    cell(
        CIFAR10,
        "mobilenet",
        what="Table 4",
        table="ahfal-table4",
        setting="model=MobileNetV2",
        rows=ROWS,
    ),
    model=Spec("mobilenetv2"),
)

RECIPES = (
    MNIST_MINI,
    at(MNIST_MINI, 1.0),
    CIFAR10_MINI,
    at(CIFAR10_MINI, 1.0),
    TABLE_MINI,
    at(TABLE_MINI, 0.5),
    at(TABLE_MINI, 1.0),
    cell(
        SMALL,
        "table1-mini",
        what="Table 1",
        table="ahfal-table1",
        setting="alpha=0.1",
        rows=ROWS,
    ),
    cell(
        SMALL,
        "table1-mini-code",
        what="Table 1 as its code runs it",
        table="ahfal-table1",
        setting="alpha=0.1",
        rows=CODE,
    ),
    replace(
        cell(
            SMALL,
            "mobilenet-mini",
            what="Table 4",
            table="ahfal-table4",
            setting="model=MobileNetV2",
            rows=ROWS,
        ),
        title="AHFAL Table 4: CIFAR-10, 200 rows, MobileNetV2, a few steps: the code path",
        rows=200,
        test_rows=50,
        model=Spec("mobilenetv2"),
        training_config=TrainingConfig(
            (TrainingStage(1),), 16, Optimizer(lr=0.02, momentum=0.9)
        ),
        local_training_config=TrainingConfig((TrainingStage(1),), 16),
        rounds=1,
        cycles=1,
        score_rounds=1,
        seeds=1,
    ),
    cell(
        SMALL,
        "privacy-mini",
        what="Table 5",
        table="ahfal-table5",
        setting="alpha=0.1",
        rows=PRIVACY,
        more=BEYOND,
    ),
    cell(
        CIFAR10_MINI,
        "ablation-mini",
        what="Table 6",
        table="ahfal-table6",
        setting="alpha=0.1",
        rows=ABLATION,
    ),
    cell(
        SMALL,
        "kcfu-mini",
        what="Table 7",
        table="ahfal-table7",
        setting="alpha=0.1",
        rows=KCFU,
    ),
    budgets(
        cell(
            SMALL,
            "low-mini",
            what="Table 9, low",
            table="ahfal-table9",
            setting="regime=low",
            rows=ROWS,
        ),
        initial=0.05,
        budget=0.025,
        cycles=3,
    ),
    budgets(
        cell(
            TINY,
            "high-mini",
            what="Table 9, high",
            table="ahfal-table9",
            setting="regime=high",
            rows=ROWS,
        ),
        initial=0.2,
        budget=0.1,
        cycles=3,
    ),
    replace(
        MNIST_MINI,
        name="ahfal/oracle-mini",
        title="AHFAL Figure 4, oracle histogram: MNIST, 4,000 rows, Dirichlet 0.1",
        rows=4000,
        bounds=(),
        strategies=ORACLE,
        reference="random",
        published=None,
    ),
    replace(
        MNIST_MINI,
        name="ahfal/tau-mini",
        title="AHFAL's sensitivity to tau: MNIST, 4,000 rows, Dirichlet 0.1",
        rows=4000,
        bounds=(),
        strategies=("ahfal:tau=10", "ahfal", "ahfal:tau=15"),
        published=None,
    ),
    MNIST,
    at(MNIST, 0.5),
    at(MNIST, 1.0),
    SVHN,
    at(SVHN, 0.5),
    at(SVHN, 1.0),
    CIFAR10,
    at(CIFAR10, 0.3),
    at(CIFAR10, 0.5),
    at(CIFAR10, 1.0),
    cell(
        CIFAR10,
        "cifar10-code",
        what="Table 1 as its code runs it",
        table="ahfal-table1",
        setting="alpha=0.1",
        rows=CODE,
    ),
    CIFAR100,
    MOBILENET,
    cell(
        CIFAR10,
        "privacy",
        what="Table 5",
        table="ahfal-table5",
        setting="alpha=0.1",
        rows=PRIVACY,
        more=BEYOND,
    ),
    cell(
        CIFAR10,
        "ablation",
        what="Table 6",
        table="ahfal-table6",
        setting="alpha=0.1",
        rows=ABLATION,
    ),
    cell(
        CIFAR10,
        "kcfu",
        what="Table 7",
        table="ahfal-table7",
        setting="alpha=0.1",
        rows=KCFU,
    ),
    budgets(
        cell(
            CIFAR10,
            "low",
            what="Table 9, low",
            table="ahfal-table9",
            setting="regime=low",
            rows=ROWS,
        ),
        initial=0.05,
        budget=0.025,
        cycles=4,
    ),
    budgets(
        cell(
            CIFAR10,
            "high",
            what="Table 9, high",
            table="ahfal-table9",
            setting="regime=high",
            rows=ROWS,
        ),
        initial=0.2,
        budget=0.1,
        cycles=4,
    ),
)
