"""Objects, names and TOML are equivalent: `Spec.of` is lossless."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from torch import nn

import fallow as fl
from fallow import models as described
from fallow import strategies, training
from fallow.api.objects import ParsedObjects
from fallow.configs.find import load_configs
from fallow.core.build import build, names
from fallow.data.partition import partitions
from fallow.models import networks
from fallow.training import personal
from tests.contracts.strategies import STRATEGIES
from tests.each import each_of

METHODS = [
    fl.FedProx(mu=0.5),
    fl.FedAvg(bn="local"),
    fl.DPFL(budget=3),
    fl.Ditto(),
    fl.KNNPer(),
    fl.PFedGraph(),
    fl.FedRep(),
]
PARTITIONS = [
    fl.Dirichlet(alpha=0.5, cap=True),
    fl.Dirichlet(alpha=0.1),
    fl.ExactDirichlet(alpha=1, sizes=(1.0, 2.0)),
    fl.FedMADirichlet(min_size=3),
    fl.TargetDirichlet(bins=4),
    fl.IID(),
    fl.Natural(),
    fl.Patho(classes=2, min_rule="reject"),
    fl.Shards(classes=3),
    fl.ClassWindows(least=10),
    fl.Counts(({0: 2}, {0: 1, 1: 1})),
    fl.LongTail(rho=10, inner="patho", inner_fields={"classes": 2}),
]
MODELS = [fl.MLP(hidden=[32, 16]), fl.Linear(bias=False), fl.ResNet8(variant="mnist")]
MODELS += [
    fl.MobileNetV1(),
    fl.MobileNetV2(head="1x1"),
    fl.ResNet18(),
    fl.LeNet(),
    fl.LeNetFEMNIST(),
    fl.CNN4(),
    fl.DigitsCNN(),
    fl.Trees(depth=2),
]

EVERYTHING = [
    *[(strategies, strategy) for strategy in STRATEGIES],
    *[((training, personal), method) for method in METHODS],
    *[((training, personal), cls()) for cls in names((training, personal)).values()],
    *[(partitions, partition) for partition in PARTITIONS],
    *[(described, model) for model in MODELS],
]


@each_of("package, item", EVERYTHING)
def test_an_object_comes_back_from_its_words(package: Any, item: Any) -> None:
    spec = fl.Spec.of(item)
    values = _built(package, spec.name, spec.fields)
    assert values == item
    assert fl.Spec.of(values) == spec


@each_of("package, item", EVERYTHING)
def test_an_object_comes_back_from_a_file(package: Any, item: Any) -> None:
    spec = fl.Spec.of(item)
    written = json.loads(json.dumps(dict(spec.fields)))
    again = fl.Spec.of(_built(package, spec.name, written))
    assert json.dumps(dict(again.fields)) == json.dumps(dict(spec.fields))


@each_of("strategy", STRATEGIES)
def test_a_strategy_comes_back_from_the_text_of_the_command_line(strategy: Any) -> None:
    spec = fl.Spec.parse(ParsedObjects().text(strategy))
    assert build(strategies, spec.name, **spec.fields) == strategy


def _built(package: Any, name: str, value: Any) -> Any:
    if package is described:
        known = {n.lower(): c for n, c in vars(described).items() if isinstance(c, type)}
        return known[name](**value)
    return build(package, name, **value)


def test_every_partition_and_model_is_in_the_table() -> None:
    assert {type(p).__name__ for p in PARTITIONS} == set(names(partitions))
    assert {type(m).__name__ for m in MODELS} == set(names(networks))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_described_model_has_the_settings_of_the_network(model: Any) -> None:
    import inspect

    network = getattr(networks, type(model).__name__)
    known = list(inspect.signature(network).parameters.values())[2:]
    assert {p.name: p.default for p in known} == {f.name: f.default for f in fields(model)}


WORDY = ("long-tail", "fed-ma-dirichlet")  # configurations also write their defaults

PLAIN = [r for r in load_configs().values() if r.partition.name not in WORDY]


@each_of("config", PLAIN)
def test_the_words_of_every_recipe_are_those_of_its_objects(
    config: fl.ExperimentConfig,
) -> None:
    """Check that an object draws the same partition as the text of a configuration.

    The text names the random stream.
    """
    partition = config.partition
    built = build(partitions, partition.name, **partition.fields)
    assert str(fl.Spec.of(built)) == str(partition)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (fl.AHFAL(tau=15), "ahfal:tau=15.0"),
        (fl.AHFAL, "ahfal"),
        (fl.Dirichlet(alpha=np.float64(0.3)), "dirichlet:alpha=0.3"),
        (fl.Dirichlet(alpha=1), "dirichlet:alpha=1.0"),
        (fl.CoreSet(), "core-set"),
        (fl.MLP(hidden=[8]), "mlp:hidden=[8]"),
        (partial(fl.MLP, hidden=[8]), "mlp:hidden=[8]"),
        ("ahfal:tau=15", "ahfal:tau=15"),
        (fl.FedProx(training_config=fl.TrainingConfig(batch_size=1)), "fedprox"),
    ],
)
def test_an_object_is_spelled_as_one_types_it(value: Any, text: str) -> None:
    assert str(fl.Spec.of(value)) == text


def test_a_class_of_a_package_is_called_by_its_module() -> None:
    assert fl.Spec.of(nn.Linear).name == "torch.nn.modules.linear:Linear"


@pytest.mark.parametrize("value", [3, None, [fl.Random()], lambda: 0])
def test_what_names_nothing_is_refused_with_what_to_give(value: Any) -> None:
    with pytest.raises(
        ValueError,
        match="is not a strategy, training algorithm, partition or model; give an object",
    ):
        fl.Spec.of(value)


def test_a_module_with_weights_is_no_query() -> None:
    with pytest.raises(ValueError, match="strategy is a module with weights"):
        ParsedObjects().spec(nn.Linear(2, 2), "strategy")


def test_the_tables_hold_dataclasses() -> None:
    assert all(is_dataclass(value) for _, value in EVERYTHING)
