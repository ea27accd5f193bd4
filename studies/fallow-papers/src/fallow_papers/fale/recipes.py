"""FALE (2025), Tables 1 and 2: active regression at ten sites in one pass, with eight other
strategies.

Strategy and training algorithm are separate choices, and the paper compares both at once:
FALE's weighted least squares on the server side with other strategies under FedAvg. Every
configuration therefore also runs FALE's rivals under a training algorithm that converges,
random sampling with the solver on the server side, leverage without weights, and all
labels.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Published, Spec

FALE = "fale@training=server-solve@initial=0"
FALE_MATCHED = (
    # the same number of labels as the other strategies
    "fale@training=server-solve@initial_by=query"
)
FALE_LOCAL = "fale:weights=none@initial=0"
LOGO = "logo@local_source=last_round"  # a linear model's features do not depend on its training
RIVALS = ("random", "bait", "acs-fw", "core-set", "badge", "lcmd", LOGO)
CONTROLS = (
    "random@training=server-solve",
    "badge@training=server-solve",
    "fale:weights=none@training=server-solve@initial=0",  # leverage without weights
    "fale@trainer=10x25@initial=0",  # FALE-local with weights, trained to convergence
    *(f"{rival}@trainer=10x25" for rival in RIVALS),
    "bound:all-labels@training=server-solve",
)
NAMES = {
    FALE: "FALE",
    FALE_LOCAL: "FALE-local",
    "random": "Random",
    "bait": "BAIT",
    "acs-fw": "ACS-FW",
    "core-set": "CoreSet",
    "badge": "BADGE",
    "lcmd": "LCMD",
    LOGO: "LoGo",
}
FULL = Recipe(
    name="fale/protein",
    title="Protein structure: 15,000 labels of ten sites (FALE, Table 2)",
    data="protein",
    resplit=True,
    partition=Spec("target-dirichlet", {"alpha": 5.0}),
    sites=10,
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(25),), 32, Optimizer("adam", 0.01)),
    rounds=1,
    initial=0.01,
    budget_allocation="proportional",
    budget=150,
    queries_per_cycle=30,  # 5 examples of each site at a time
    cycles=10,
    score_rounds=1,
    dtype="float64",
    strategies=(FALE, FALE_MATCHED, FALE_LOCAL, *RIVALS, *CONTROLS),
    reference=FALE,
    bounds=(),
    published=Published("fale-table2", "protein", NAMES),
)
SETS = {  # name: (data, words, row of Table 2)
    "protein": ("protein", "Protein structure", "protein"),
    "kegg": ("kegg", "Metabolic networks", "kegg undir"),
    "diamonds": ("diamonds_onehot", "Prices of diamonds", "diamonds"),
    "ct": ("ct", "CT slices", "ct"),
    "online-video": ("online_video", "Transcoding of videos", "online video"),
    "wec": ("wec_sydney", "Wave energy", "wecs"),
    "sarcos": ("sarcos_full", "A robot's arm", "sarcos"),
    "stock": ("stock", "Stock prices", "stock"),
    "mlr-knn": ("mlr_knn_rng", "Tuning of nearest neighbors", "mlr knn"),
}
OTHERS = {  # not in the paper
    "pol": ("pol", "Telecommunication", None),
    "elevators": ("elevators", "Elevators of an aircraft", None),
    "bike": ("bike", "Bicycles for hire", None),
    "kin40k": ("kin40k", "Forward kinematics", None),
    "california": ("california", "Houses in California", None),
}


def of(name: str, data: str, words: str, row: str | None, recipe: Recipe = FULL) -> Recipe:
    """Return the configuration with another dataset.

    >>> of("bike", "bike", "Bicycles for hire", None).title
    'Bicycles for hire: labels of sites'
    """
    title = f"{words}: labels of sites"
    published = None
    if row is not None:
        title = f"{words}: labels of ten sites (FALE, Table 2)"
        published = Published("fale-table2", row, NAMES)
    return replace(recipe, name=f"fale/{name}", data=data, title=title, published=published)


def mini(recipe: Recipe) -> Recipe:
    """Return the configuration with 3,000 labels, where strategies differ most."""
    return replace(
        recipe,
        name=f"{recipe.name}-mini",
        title=f"{recipe.title}, 3,000 labels",
        budget=30,
        queries_per_cycle=6,
    )


def natural(name: str, data: str, *, words: str, budget: int) -> Recipe:
    """Return the configuration with all natural sites."""
    return replace(
        of(name, data, words, None),
        partition=Spec("natural"),
        sites=0,
        budget=budget,
        queries_per_cycle=1,
    )


IMAGES = replace(
    mini(of("digit-angle", "digit_angle", "Angles of turned digits", None)),
    name="fale/digit-angle",
    title="Angles of rotated digits, as features of a frozen network: an image regression",
    features=Spec("mlp", {"hidden": [128]}),
    resplit=False,
    initial=0.05,
    budget=8,
    queries_per_cycle=2,
)
RECIPES = [
    natural(
        "parkinsons",
        "parkinsons",
        words="Parkinson's disease at home: 42 patients",
        budget=6,
    ),
    natural("school", "school", words="Exam scores of 139 schools", budget=3),
    natural(
        "california-zones",
        "california",
        words="Houses by distance to the coast: 5 zones",
        budget=60,
    ),
    IMAGES,
    *(of(name, *fields) for name, fields in SETS.items()),
    *(mini(of(name, *fields)) for name, fields in {**SETS, **OTHERS}.items()),
]
