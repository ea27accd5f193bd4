"""Every field of a training algorithm, a partition and an encoder changes a run or is refused."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch

import fallow as fl
from fallow import encoders, training
from fallow.core.build import names
from fallow.core.training_config import KEYWORDS
from fallow.data.partition import partitions

SITES = 5
IRIS = fl.Federation(fl.load("iris"), fl.Dirichlet(alpha=0.5), sites=SITES)
DIABETES = fl.Federation(fl.load("diabetes"), fl.IID(), sites=SITES)
DIGITS = fl.load("digits")
IMAGES = fl.from_arrays(
    DIGITS.x[:200], DIGITS.y[:200], x_test=DIGITS.x_test, y_test=DIGITS.y_test
)
EVEN = tuple(dict.fromkeys(range(10), 4) for _ in range(SITES))

OTHERS: dict[tuple[str, str], Any] = {
    ("APFL", "alpha_lr"): 0.5,
    ("ClosedForm", "penalty"): 0.5,
    ("ClosedForm", "delta"): 1e-5,
    ("ClosedFormHeads", "penalty"): 0.5,
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
    ("DPFL", "between"): {"period": 2},
    ("DPFL", "counts_self"): {"budget": 2},
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
    ("ClosedForm", "shown"): "at real sites, without secure aggregation",
    ("DPFL", "guard"): "where an average has a lower reward than a site's own model",
    ("ClosedFormHeads", "shown"): "at real sites, without secure aggregation",
}
"""Fields that do nothing in these runs, and when they do."""

NEED_FILES = (
    "EfficientNetLite0",
    "ONNX",
    "OpenCLIP",
    "SentenceTransformers",
    "TabPFN",
    "Timm",
)
"""Encoders that load a network: tests/encoders."""

COVERED_ELSEWHERE = ("training_config", *KEYWORDS)
"""Fields of all algorithms that train by steps: tests/api/test_training_settings.py."""


def list_fields(package: ModuleType) -> Iterator[tuple[str, str]]:
    for name, cls in sorted(names(package).items()):
        if name in NEED_FILES:
            continue
        for field in dataclasses.fields(cls):
            if field.init and field.name not in COVERED_ELSEWHERE:
                yield name, field.name


def find_other(package: ModuleType, name: str, field: str) -> Any:
    """Another value of a field, of the same kind as its default."""
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
    """Identify what a run computed: scores, labels and weights, not how it was described."""
    measured = run.records.drop(columns=["seconds", "training", "recipe", "notes"])
    hashed = hashlib.sha256((measured.to_json() + run.labels.to_json()).encode())
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
    if "least-squares" in algorithm.contract.tags:
        settings = {}
    if name.startswith("ClosedForm"):
        settings = {"encoder": "fourier:features=16"}
    if name == "DPFL":
        settings |= {"validation": 0.3, "rounds": 8}  # of which 2 are preprocessing
    is_weighted = "weighted" in {field.name for field in dataclasses.fields(algorithm)}
    run = fl.run(
        IRIS if algorithm.contract.classes else DIABETES,
        "fale" if is_weighted else "random",
        training=algorithm,
        budget=4,
        cycles=1,
        initial=8,
        progress=False,
        **settings,
    )
    return digest(run)


def run_encoder(name: str, fields: Mapping[str, Any]) -> str:
    federation = fl.Federation(IMAGES, fl.IID(), sites=2)
    encoder = getattr(fl, name)(**fields)
    run = fl.run(
        federation, "random", encoder=encoder, initial=20, cycles=0, progress=False
    )
    return digest(run)


def run_partition(name: str, fields: Mapping[str, Any]) -> str:
    data = DIABETES.dataset if name == "TargetDirichlet" else DIGITS
    federation = fl.Federation(data, getattr(fl, name)(**fields), sites=SITES)
    return str({site: rows.tolist() for site, rows in federation.rows().items()})


RUNS = {training: run_training, encoders: run_encoder, partitions: run_partition}
FIELDS = [(package, *field) for package in RUNS for field in list_fields(package)]


@pytest.fixture(scope="module")
def usual() -> dict[tuple[str, str], str]:
    """Results of runs with default values."""
    return {}


@pytest.mark.parametrize(("package", "name", "field"), FIELDS)
def test_a_field_changes_the_run_or_is_refused(
    package: ModuleType, name: str, field: str, usual: dict[tuple[str, str], str]
) -> None:
    beside = BESIDE.get((name, field), {})
    key = (name, str(beside))
    if key not in usual:
        usual[key] = RUNS[package](name, beside)
    value = find_other(package, name, field)
    try:
        changed = RUNS[package](name, {**beside, field: value}) != usual[key]
    except ValueError as error:
        assert field in str(error)
        return
    if (name, field) in CIRCUMSTANCES:
        assert not changed, f"take {name}.{field} out of CIRCUMSTANCES"
    else:
        assert changed, f"{name}({field}={value!r}) computes what {name}() does"


@pytest.mark.parametrize(
    ("algorithm", "fields", "sentence"),
    [
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
        ("DPFL", {"counts_self": False}, "counts_self is False.*set budget or leave"),
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
