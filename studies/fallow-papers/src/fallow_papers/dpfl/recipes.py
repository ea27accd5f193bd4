"""DPFL's experiments: Tables 1 to 3, random graphs, flipped labels and group synergy, in
the full protocol of the paper and in small variants for two cores.

Strategies differ in their training algorithms; all labels are acquired before the first
round.  The full recipes follow the paper's appendix F: 100 sites, SGD with momentum 0.9 and
weight decay 1e-3, 20 % of every site's labels for validation, test examples by class
shares, and the best model of every site on its validation examples.  CIFAR-10: 100 rounds
of 5 epochs, learning rate 0.01, batch 16; crops and flips are the public code's.  Budgets
count the site itself, as its algorithms do.

Every configuration also runs the controls of DPFL: local training, FedAvg scored after
local training, a complete graph and a random graph.  They measure the value of the
selection.  All rounds are scored, so that records contain the graph of each.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Published, Spec


def by(training: str) -> str:
    """Return a strategy with this training algorithm; the selected examples do not matter.

    >>> by("dpfl:budget=5")
    'random@training=dpfl:budget=5'
    """
    return f"random@training={training}"


def table1(sites: int) -> dict[str, str]:
    """Return the strategies of Table 1, whose budgets are fractions of the sites."""
    budgets = {
        f"{share:g}N": by(f"dpfl:budget={round(share * sites)}")
        for share in (0.2, 0.1, 0.05)
    }
    return {
        by("local"): "Local",
        "random": "FedAvg",
        by("fed-avg-ft"): "FedAvg+FT",
        by("fed-prox:mu=0.1"): "FedProx",
        by("fed-prox-ft"): "FedProx+FT",
        by("apfl"): "APFL",
        by("per-fed-avg"): "PerFedAvg",
        by("ditto"): "Ditto",
        by("fed-rep"): "FedRep",
        by("knn-per"): "kNN-Per",
        by("p-fed-graph"): "pFedGraph",
        by("dpfl"): "DPFL B_c=inf",
        **{strategy: f"DPFL B_c={name}" for name, strategy in budgets.items()},
    }


TABLE1 = table1(100)
CONTROLS = (by("fed-avg-post"), by("dpfl:graph=full"))
BUDGETS: dict[str, int | None] = {"inf": None, "20": 20, "10": 10, "5": 5}


def random_graphs(*budgets: int) -> tuple[str, ...]:
    """Return random graphs, drawn once, with as many collaborators as DPFL may have."""
    return tuple(by(f"dpfl:graph=static:budget={b}") for b in budgets)


def vary(
    field: str, values: tuple[int, ...], budgets: dict[str, int | None] = BUDGETS
) -> dict[str, str]:
    """Return DPFL with several values of a field and several budgets, named as in Tables 2
    and 3.

    >>> vary("period", (5,), {"inf": None})
    {'random@training=dpfl:period=5': 'DPFL period=5 B_c=inf'}
    """
    rows = {}
    for value in values:
        for name, budget in budgets.items():
            training = f"dpfl:{field}={value}"
            if budget is not None:
                training += f":budget={budget}"
            rows[by(training)] = f"DPFL {field}={value} B_c={name}"
    return rows


PAPER_SGD = Optimizer(lr=0.01, momentum=0.9, weight_decay=1e-3)
PATHO = Spec("patho")
DIR = Spec("fed-ma-dirichlet", {"alpha": 0.1, "min_size": 20})

CIFAR10 = Recipe(
    name="dpfl/cifar10-patho",
    title="DPFL Table 1: CIFAR-10, 100 sites of 3 classes, full protocol",
    data="cifar10",
    partition=PATHO,
    sites=100,
    model=Spec("lenet"),
    training_config=TrainingConfig(
        (TrainingStage(5),), 16, PAPER_SGD, augment=("flip", "crop4")
    ),
    rounds=100,
    score_rounds=100,
    initial=1.0,
    cycles=0,
    budget_allocation="proportional",
    validation=0.2,
    test="own",
    channels_last=True,
    strategies=(*TABLE1, *CONTROLS, *random_graphs(20, 10, 5)),
    reference=by("dpfl:budget=10"),
    seeds=3,
    bounds=(),
    published=Published("dpfl-table1", "dataset=CIFAR10 partition=Patho(3)", TABLE1),
)
CIFAR10_DIR = replace(
    CIFAR10,
    name="dpfl/cifar10-dir0.1",
    title="DPFL Table 1 and random graphs (Figure 3): CIFAR-10, 100 sites, Dir(0.1), full protocol",
    partition=DIR,
    published=Published("dpfl-table1", "dataset=CIFAR10 partition=Dir(0.1)", TABLE1),
)
CINIC10 = replace(
    CIFAR10,
    name="dpfl/cinic10-patho",
    title="DPFL Table 1: CINIC-10, 200 sites of 3 classes, full protocol",
    data="cinic10",
    sites=200,
    training_config=replace(CIFAR10.training_config, augment=()),  # as in the public code
    rounds=50,
    score_rounds=50,
    strategies=(*table1(200), *CONTROLS, *random_graphs(40, 20, 10)),
    reference=by("dpfl:budget=20"),
    published=Published("dpfl-table1", "dataset=CINIC10 partition=Patho(3)", table1(200)),
)
CINIC10_DIR = replace(
    CINIC10,
    name="dpfl/cinic10-dir0.1",
    title="DPFL Table 1: CINIC-10, 200 sites, Dir(0.1), full protocol",
    partition=DIR,
    published=Published("dpfl-table1", "dataset=CINIC10 partition=Dir(0.1)", table1(200)),
)
FEMNIST = replace(
    CIFAR10,
    name="dpfl/femnist",
    title="DPFL Table 1: ten letters of FEMNIST, 100 sites of 3 letters, full protocol",
    data="femnist_letters",
    partition=Spec("class-windows"),
    model=Spec("lenet-femnist"),
    training_config=TrainingConfig((TrainingStage(2),), 10, replace(PAPER_SGD, lr=0.001)),
    rounds=50,  # appendix F; section 4.1 says 100
    score_rounds=50,
    published=Published("dpfl-table1", "dataset=FEMNIST", TABLE1),
)


def table(
    recipe: Recipe, name: str, *, title: str, number: int, rows: dict[str, str]
) -> Recipe:
    """Return the configuration of Table 2 or 3, in which all rows are DPFL."""
    return replace(
        recipe,
        name=f"dpfl/{name}",
        title=title,
        strategies=tuple(rows),
        reference=next(iter(rows)),
        published=Published(f"dpfl-table{number}", "", rows),
    )


def with_flipped_labels(
    recipe: Recipe, name: str, sites: int, budgets: tuple[int, ...]
) -> Recipe:
    """Return the configuration with wrong labels at some sites, which affect graphs."""
    some = [by("local"), "random", by("dpfl"), *(by(f"dpfl:budget={b}") for b in budgets)]
    where = recipe.title.partition(": ")[2].removesuffix(", full protocol")
    return replace(
        recipe,
        name=f"dpfl/{name}",
        flip=sites,
        reference=by("dpfl"),
        published=None,
        title=f"DPFL among {sites} sites with flipped labels: {where}",
        strategies=(*some, by("dpfl:guard=loop"), *CONTROLS, *random_graphs(*budgets)),
    )


# -- small -----------------------------------------------------------------------------

BASELINES = tuple(TABLE1)[:11]
WITHOUT_BUDGET = {
    strategy: row for strategy, row in TABLE1.items() if "budget" not in strategy
}
FEW: dict[str, int | None] = {"inf": None, "5": 5}

DIGITS = replace(
    CIFAR10,
    name="dpfl/digits-mini",
    title="DPFL and all its baselines: digits, 20 sites of 3 classes",
    data="digits",
    partition=replace(PATHO, fields={"min_samples": 2}),
    sites=20,
    model=Spec("mlp"),
    training_config=TrainingConfig((TrainingStage(2),), 8, replace(PAPER_SGD, lr=0.02)),
    rounds=14,  # DPFL's preprocessing takes two of them
    score_rounds=14,
    channels_last=False,
    strategies=(
        *BASELINES,
        by("dpfl"),
        by("dpfl:budget=5"),
        by("dpfl:budget=5:guard=loop"),
        *CONTROLS,
        *random_graphs(5),
        by("dpfl:graph=resampled:budget=5"),
        by("dpfl:graph=degree:budget=5"),
    ),
    reference=by("dpfl"),
    seeds=5,
    published=None,
)
CIFAR10_MINI = replace(
    CIFAR10,
    name="dpfl/cifar10-patho-mini",
    title="DPFL Table 1: CIFAR-10, 2,000 rows, 20 sites of 3 classes",
    rows=2000,
    test_rows=2000,
    sites=20,
    training_config=TrainingConfig((TrainingStage(2),), 16, PAPER_SGD),
    rounds=20,
    score_rounds=20,
    strategies=(
        by("local"),
        "random",
        by("fed-avg-ft"),
        by("ditto"),
        by("dpfl"),
        by("dpfl:budget=5"),
        by("dpfl:budget=3"),
        *CONTROLS,
        *random_graphs(5),
    ),
    reference=by("dpfl"),
    published=Published(
        "dpfl-table1", "dataset=CIFAR10 partition=Patho(3)", WITHOUT_BUDGET
    ),
)
WRITERS = replace(
    DIGITS,
    name="dpfl/mnist-writers-mini",
    title="DPFL with persons: MNIST, the 20 most frequent writers",
    data="mnist",
    resplit=True,  # MNIST's own test digits are from other writers
    partition=Spec("natural"),
    strategies=(
        by("local"),
        "random",
        by("fed-avg-ft"),
        by("ditto"),
        by("dpfl"),
        by("dpfl:budget=5"),
        *CONTROLS,
        *random_graphs(5),
    ),
)

# Appendix A: examples by class of the three sites. All three together help the first, but
# pairs do not.
THREE = [
    {"0": 50, "4": 50, "6": 50, "8": 50},
    {"0": 300, "6": 300, "1": 200, "3": 200},
    {"4": 300, "8": 300, "5": 200, "7": 200},
]
PAIRS = ("[[1],[0],[]]", "[[2],[],[0]]", "[[1,2],[0,2],[0,1]]")
SYNERGY = replace(
    CIFAR10,
    name="dpfl/synergy",
    title="Group synergy (DPFL, appendix A): three sites of CIFAR-10, in pairs and together",
    partition=Spec("counts", {"table": THREE}),
    sites=3,
    strategies=(
        by("local"),
        *(by(f"dpfl:graph=full:tau_init=0:reach={p}") for p in PAIRS),
        by("dpfl:tau_init=0"),
    ),
    reference=by("local"),
    seeds=5,
    published=None,
)


def one_way(recipe: Recipe, name: str) -> Recipe:
    """Let sites with flipped labels send and never average (mode 1 of section 4.5)."""
    title = recipe.title.replace("labels:", "labels that never average:")
    strategies = (by("local"), by("dpfl"), by("dpfl:alone=flipped"))
    return replace(recipe, name=f"dpfl/{name}", title=title, strategies=strategies)


FLIP = with_flipped_labels(CIFAR10, "flip", sites=40, budgets=(10,))
FLIP_MINI = with_flipped_labels(DIGITS, "flip-mini", sites=8, budgets=(5,))
RECIPES = (
    DIGITS,
    FLIP_MINI,
    one_way(FLIP_MINI, "flip-one-way-mini"),
    replace(
        DIGITS,
        name="dpfl/tau-init-mini",
        title="DPFL's epochs before the first graph (Table 2): digits",
        strategies=(by("dpfl"), *vary("tau_init", (1, 2), FEW), by("dpfl:budget=5")),
    ),
    replace(
        DIGITS,
        name="dpfl/period-mini",
        title="DPFL's rounds between two graphs (Table 3): digits",
        strategies=(
            by("dpfl"),
            *vary("period", (2, 5), FEW),
            by("dpfl:budget=5"),
            by("dpfl:period=5:between=local"),
        ),
    ),
    WRITERS,
    CIFAR10_MINI,
    replace(
        CIFAR10_MINI,
        name="dpfl/cifar10-dir0.1-mini",
        title="DPFL Table 1: CIFAR-10, 2,000 rows, 20 sites, Dir(0.1)",
        partition=replace(DIR, fields={"alpha": 0.1, "min_size": 10}),
        published=Published(
            "dpfl-table1", "dataset=CIFAR10 partition=Dir(0.1)", WITHOUT_BUDGET
        ),
    ),
    replace(
        SYNERGY,
        name="dpfl/synergy-mini",
        title="Group synergy (DPFL, appendix A): three sites of CIFAR-10, 30 rounds",
        test_rows=4000,
        training_config=TrainingConfig((TrainingStage(5),), 16, PAPER_SGD),
        rounds=30,
        score_rounds=30,
    ),
    CIFAR10,
    CIFAR10_DIR,
    CINIC10,
    CINIC10_DIR,
    FEMNIST,
    table(
        CIFAR10,
        "tau-init",
        title="DPFL Table 2: epochs before the first graph, CIFAR-10, Patho(3)",
        number=2,
        rows=vary("tau_init", (1, 5, 10)),
    ),
    replace(
        table(
            CIFAR10_DIR,
            "period",
            title="DPFL Table 3: rounds between two graphs, CIFAR-10, Dir(0.1)",
            number=3,
            rows=vary("period", (1, 5, 10, 20)),
        ),
        seeds=1,
    ),
    FLIP,
    one_way(FLIP, "flip-one-way"),
    with_flipped_labels(CIFAR10_DIR, "flip-dir0.1", sites=40, budgets=(10,)),
    SYNERGY,
)
