"""Every algorithm gives the same run with every executor and transport."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
import torch
from torch.testing import assert_close

import fallow.strategies
import fallow.training
from fallow.core.build import names
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.core.types import State
from fallow.experiment.event_log import EventLog
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.classes import classes_of
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.each import mark_long
from tests.engine.jobs import DEVICE, some_cells

CONFIG = TrainingConfig(
    (TrainingStage(2),), 8, Optimizer("sgd", 0.05, momentum=0.9, weight_decay=1e-3)
)
# a model takes 8 steps at most: 2 rounds x 2 epochs x 2 batches of its 16 labels
TINY = ExperimentConfig(
    name="tiny",
    data="digits",
    rows=120,
    test_rows=30,
    partition=Spec("dirichlet", {"alpha": 1.0}),
    sites=3,
    model=Spec("mlp", {"hidden": [8]}),
    training_config=CONFIG,
    rounds=2,
    initial=8,
    budget=4,
    cycles=2,
    score_rounds=1,
    dtype="float64",
)


class Ending(NamedTuple):
    """Results of a run: labeled examples in order, models, scores."""

    selected: dict[str, list[int]]
    server: State
    sites: dict[str, State]
    scores: list[float]


def ending(
    config: ExperimentConfig, runtime: Any = "inprocess", executor: Any = "loop"
) -> Ending:
    event_log = EventLog()
    simulation = build_environment(
        replace(config, executor=executor), 0, event_log, runtime=runtime
    )
    records = ExperimentRun(simulation, event_log).go()
    last = event_log.load_step(f"{config.cycles}/train")
    assert last is not None
    return Ending(
        {
            name: [label.row for label in event_log.load_labels(name)]
            for name in simulation.members
        },
        last["state"],
        {name: dict(site.memory["local"]) for name, site in simulation.members.items()},
        [score_of(record) for record in records],
    )


def on_device(config: ExperimentConfig) -> Ending:
    """Run with the code for GPUs, on the CPU or on the device named in the environment."""
    return ending(replace(config, device=DEVICE), executor="auto")  # type: ignore[arg-type]


def score_of(record: Record) -> float:
    """Return the accuracy, or the error up to the order of summation."""
    if record["accuracy"]:
        return record["accuracy"]
    assert record["mse"] is not None
    return round(record["mse"], 10)


def check(ours: Ending, theirs: Ending, atol: float = 1e-10) -> None:
    assert ours.selected == theirs.selected
    assert ours.scores == theirs.scores
    pairs = [(ours.server, theirs.server)]
    pairs += [(ours.sites[name], theirs.sites[name]) for name in ours.sites]
    for a, b in pairs:
        for part in ("w", "stats"):
            assert_close(a[part], b[part], rtol=0, atol=atol)


def check_bytes(config: ExperimentConfig, plain: Ending) -> None:
    """Run with messages as bytes; skip checks that a remote machine lacks."""
    if find_spec("pydantic") is not None:
        check(ending(config, runtime="bytes"), plain, atol=0)


# every strategy and every training algorithm once; pairs would repeat the same code
NUMBERS = ("ACSFW", "BAIT")  # refuse classes
PAIRS = [
    ("FedAvg", strategy) for strategy in classes_of("strategy") if strategy not in NUMBERS
]
# two solvers for regression: see tests/reference/test_fale_golden.py
SOLVERS = ("MaskedSolve", "ServerSolve")
PERSONAL = names(fallow.training.personal)  # have separate tests
OTHERS = [
    name
    for name, cls in names(fallow.training).items()
    if cls.contract.trains
    and cls.contract.classes
    and name not in ("FedAvg", *SOLVERS)
    and name not in PERSONAL
]
PAIRS += [(training, "Typicality") for training in OTHERS]


LONG = (
    "BADGE",
    "DropQuery",
    "FEAL",
    "FairFAL",
    "MaxHerding",
    "Pivotal",
    "ProbCover",
    "Typical",
    "UncertaintyHerding",
)
"""Strategies that do not ask for more of a model than another one in this table."""


REMEMBER = ("AHFAL", "FairFAL", "Pivotal")
"""Strategies that are run for two cycles, of which the second depends on the first."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("training", "strategy"),
    mark_long(PAIRS, [("FedAvg", strategy) for strategy in LONG]),
    ids=["-".join(pair) for pair in PAIRS],
)
def test_loop_stacked_device_and_bytes_agree(training: str, strategy: str) -> None:
    config = replace(TINY, training=Spec(training), strategy=Spec(strategy))
    if strategy not in REMEMBER:
        config = replace(config, cycles=1)
    only = getattr(fallow.training, training).contract.model
    if only:
        config = replace(config, model=Spec(only))
    if only == "trees":
        config = replace(config, training=Spec(training, {"stages": 3}))
    plain = ending(config)
    labels = 24 + 12 * config.cycles
    assert sum(map(len, plain.selected.values())) == labels  # FALE labels as it draws
    if only != "trees":
        check(ending(config, executor="stacked"), plain)
    check(on_device(config), plain)
    check_bytes(config, plain)


# draw in the model's precision, so float64 would draw differently
IN_OWN_NUMBERS = ("BALD", "IFAL", "NoiseStability")
SINGLE = 2e-6
"""How far a weight of a run in float32 may be from that of one in float64, after 8 steps, with weights
of up to 2.4.  On a processor the farthest of all cells was 7.2e-8, a factor of 28."""


@pytest.mark.long
@pytest.mark.parametrize(
    "cell", some_cells(["-".join(pair) for pair in PAIRS], few=("FedAvg-Typical",))
)
def test_a_device_in_single_precision_chooses_the_same_rows(cell: str) -> None:
    training, strategy = cell.split("-")
    config = replace(TINY, training=Spec(training), strategy=Spec(strategy))
    only = getattr(fallow.training, training).contract.model
    if only:
        config = replace(config, model=Spec(only))
    single = replace(config, dtype="float32")
    # a tree's threshold may have a rounded value on its other side
    if strategy in IN_OWN_NUMBERS or only == "trees":
        config = single
    plain = ending(config)
    ours = on_device(single)
    assert ours.selected == plain.selected
    assert ours.scores == plain.scores
    pairs = [(ours.server, plain.server)]
    pairs += [(ours.sites[name], plain.sites[name]) for name in ours.sites]
    for a, b in pairs:
        for part in ("w", "stats"):
            assert a[part].dtype == torch.float32
            assert_close(a[part].double(), b[part].double(), rtol=0, atol=SINGLE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("ACSFW", "linear"),
        ("BADGE", "mlp"),
        ("BAIT", "linear"),
        ("CoreSet", "mlp"),
        ("LCMD", "linear"),
        ("LoGo", "linear"),
    ],
)
def test_they_agree_on_numbers(strategy: str, model: str) -> None:
    training_config = replace(CONFIG, optimizer=Optimizer("adam", 0.01))
    config = replace(
        TINY,
        data="diabetes",
        partition=Spec("iid"),
        model=Spec(model),
        training_config=training_config,
    )
    config = replace(config, strategy=Spec(strategy), local_source="last_round")
    plain = ending(config)
    check(ending(config, executor="stacked"), plain)
    check(on_device(config), plain)
    check_bytes(config, plain)


SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"training_config": replace(CONFIG, optimizer=Optimizer("adam", 0.01))},
    "moments persist": {
        "training_config": replace(
            CONFIG, optimizer=replace(CONFIG.optimizer, persist=True)
        )
    },
    "half of the sites": {
        "training_config": replace(
            CONFIG, optimizer=replace(CONFIG.optimizer, persist=True)
        ),
        "participation": 0.5,
        "restart": "continue",
        "rounds": 3,
    },
    "local models from scratch": {
        "local_source": "scratch",
        "local_training_config": TrainingConfig((TrainingStage(3),), 8, stop_at=0.9),
    },
    "local models fine-tuned": {
        "local_source": "finetune",
        "local_training_config": TrainingConfig(
            (TrainingStage(3),), 8, Optimizer("adam", 0.01)
        ),
    },
    "local models that wait for a lower loss": {
        "local_source": "scratch",
        "local_training_config": TrainingConfig(
            (TrainingStage(6),), 8, Optimizer(lr=0.5), patience=1
        ),
    },
    "linear": {"model": Spec("linear")},
}


@pytest.mark.long
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_they_agree_in_every_setting_of_training(settings: dict[str, Any]) -> None:
    config = replace(TINY, strategy=Spec("ahfal"), **settings)
    plain = ending(config)
    check(ending(config, executor="stacked"), plain)
    check(on_device(config), plain)
    check_bytes(config, plain)


@pytest.mark.long
def test_a_network_with_batch_norm_does_not_notice_the_bytes() -> None:
    config = replace(TINY, model=Spec("resnet8"), strategy=Spec("badge"), cycles=1)
    check_bytes(config, ending(config))


IMAGES: dict[str, dict[str, Any]] = {
    "pictures that are augmented": {
        "training_config": replace(CONFIG, augment=("flip", "crop2")),
        "strategy": Spec("noise-stability"),
    },
    "channels last": {"channels_last": True, "strategy": Spec("entropy")},
    "rows of the pool beside": {
        "training": Spec("kcfu"),
        "local_source": "scratch",
        "local_training_config": TrainingConfig((TrainingStage(1),), 8),
        "strategy": Spec("ksas"),
    },
}


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    mark_long(IMAGES.values(), [IMAGES["pictures that are augmented"]]),
    ids=IMAGES,
)
def test_a_network_with_batch_norm_does_not_notice_the_device(
    settings: dict[str, Any],
) -> None:
    config = replace(TINY, model=Spec("resnet8"), cycles=1, **settings)
    check(on_device(config), ending(config))


@pytest.mark.long
def test_a_network_with_dropout_draws_the_same_masks_on_a_device() -> None:
    own = Spec("tests.models.owned:Own", {"width": 6})
    config = replace(TINY, data="iris", test_rows=None, rows=None, model=own)
    config = replace(config, strategy=Spec("bald"))
    check(on_device(config), ending(config))
