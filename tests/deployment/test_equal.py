"""Test that simulations and real sites give the same selections, weights and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data import Dataset
from fallow.deployment.model_card import CARD
from fallow.engine.score_metrics import find_metric
from fallow.experiment.event_log import EventLog
from fallow.experiment.one_pass import is_one_pass
from fallow.experiment.record import Record
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.measurements.metrics import list_metrics
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.storage.files import load_tree
from tests.deployment.simulations import NAMES, Federation, federation, photos, rows, ward
from tests.each import mark_long

SETS = "prediction_sets"
"""Field of a model file."""
CONFIG = TrainingConfig((TrainingStage(2),), 8, Optimizer(lr=0.05, momentum=0.9))
COMMON: dict[str, Any] = {
    "model": Spec("linear"),
    "training_config": CONFIG,
    "strategy": Spec("ahfal"),
    "initial": 5,
    "budget": 4,
    "rounds": 2,
    "cycles": 2,
    "score_rounds": 1,
    "dtype": "float64",
}
NUMBERS: dict[str, Any] = {
    "strategy": Spec("fale"),
    "training": Spec("server-solve"),
    "initial_by": "query",
    "cycles": 1,
}
CLOSED: dict[str, Any] = {
    "strategy": Spec("margin"),
    "training": Spec("closed-form", {"shown": "parts"}),
    "encoder": Spec("fourier", {"features": 24}),
    "rounds": 1,
}
STUDIES: dict[str, dict[str, Any]] = {
    "ahfal": {
        "metrics": ("auroc", "f1", "calibration-error"),
        "coverage": 0.8,
        "measure": ("fairness",),
    },
    "a local model from scratch, half of the sites in a round": {
        "strategy": Spec("logo"),
        "participation": 0.5,
        "restart": "continue",
        "model": Spec("mlp", {"hidden": [6]}),
        "local_training_config": TrainingConfig((TrainingStage(3),), 8, stop_at=0.99),
    },
    "models of their own with labels held back": {
        "strategy": Spec("entropy"),
        "training": Spec("dpfl", {"budget": 2}),
        "validation": 0.4,
        "cycles": 1,
        "fresh_first": True,
        "restart": "continue",
    },
    "a last word of each site": {
        "training": Spec("fedavg-ft"),
        "cycles": 1,
        "validation": 0.2,
    },
    "several queries in a cycle": {
        "strategy": Spec("core-set"),
        "queries_per_cycle": 2,
        "cycles": 1,
    },
    "secure sums": {
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
        "metrics": ("sensitivity@0.8", "brier", "average-precision"),
        "coverage": 0.8,
    },
    "an encoder": {"encoder": Spec("tabular", {"features": 8}), "cycles": 1},
    "an encoder of pictures": {
        "encoder": Spec("convolution", {"filters": 4, "patch": 3}),
        "cycles": 1,
    },
    "an encoder that nothing is fitted to": {"encoder": Spec("identity"), "cycles": 1},
    "an encoder with secure sums": {
        "encoder": Spec("fourier", {"features": 24}),
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "a head in closed form": CLOSED,
    "a head in closed form with secure sums": {
        **CLOSED,
        "training": Spec("closed-form"),
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "a head in closed form, of which sites see the head alone": {
        **CLOSED,
        "training": Spec(
            "closed-form", {"reveal": "head", "local_head": "own", "shown": "parts"}
        ),
        "strategy": Spec("ksas"),
        "cycles": 1,
    },
    "unlabeled examples in a head in closed form": {
        **CLOSED,
        "training": Spec("closed-form", {"shown": "parts"}),
        "initial": 14,
        "budget": 3,
        "cycles": 1,
    },
    "unlabeled examples in a head in closed form with secure sums": {
        **CLOSED,
        "training": Spec("closed-form"),
        "initial": 14,
        "budget": 3,
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "a head in closed form for each site": {
        **CLOSED,
        "training": Spec("closed-form-heads", {"shown": "parts"}),
        "cycles": 1,
    },
    "an exact head on a trained body": {
        "head": "exact",
        "model": Spec("mlp", {"hidden": [6]}),
        "cycles": 1,
    },
    "an evaluation set": {"evaluation_fraction": 0.3, "restart": "continue"},
    "an evaluation set with secure sums": {
        **CLOSED,
        "training": Spec("closed-form"),
        "privacy": Privacy(secure_sum=True),
        "evaluation_fraction": 0.3,
    },
    "an evaluation set and a stop": {
        **CLOSED,
        "evaluation_fraction": 0.5,
        "budget": 2,
        "cycles": 5,
        "stop": "when another 1 labels bring less than 90 points with 50 % confidence",
    },
    "an evaluation set of numbers": {
        "strategy": Spec("lcmd"),
        "evaluation_fraction": 0.3,
        "budget": 0.1,
    },
    "an evaluation set of a model for each site": {
        "strategy": Spec("random"),
        "training": Spec("fedavg-ft"),
        "evaluation_fraction": 0.3,
        "cycles": 1,
        "validation": 0.2,
    },
    "typical rows with secure sums": {
        "strategy": Spec("typical", {"least": 2}),
        "initial_by": "typical",
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "typical rows of what is uncertain with secure sums": {
        **CLOSED,
        "training": Spec("closed-form"),
        "strategy": Spec("typical-unsure", {"least": 2}),
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "typical rows of numbers": {
        **CLOSED,
        "strategy": Spec("typical"),
        "initial_by": "typical",
        "cycles": 1,
    },
    "empty cells": {"cycles": 1},
    "empty cells in their units": {"standardize": "none", "cycles": 1},
    "empty cells with secure sums": {"privacy": Privacy(secure_sum=True), "cycles": 1},
    "empty cells and an encoder": {
        "encoder": Spec("fourier", {"features": 24}),
        "cycles": 1,
    },
    "empty cells and an encoder with secure sums": {
        "encoder": Spec("fourier", {"features": 24}),
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "empty cells and a head in closed form with secure sums": {
        **CLOSED,
        "training": Spec("closed-form"),
        "privacy": Privacy(secure_sum=True),
        "cycles": 1,
    },
    "leverage of numbers": {**NUMBERS, "metrics": ("r2", "mae"), "coverage": 0.8},
    "a pivotal sample of numbers": {
        **NUMBERS,
        "strategy": Spec("pivotal"),
        "training": Spec("server-solve", {"ridge": 1e-4}),
    },
    "a pivotal sample of features of numbers, with secure sums": {
        **NUMBERS,
        "strategy": Spec("pivotal"),
        "training": Spec("closed-form"),
        "encoder": Spec("fourier", {"features": 12}),
        "rounds": 1,
        "privacy": Privacy(secure_sum=True),
    },
    "leverage of masked numbers": {
        **NUMBERS,
        "strategy": Spec("fale", {"mode": "fedsvd"}),
        "training": Spec("masked-solve"),
    },
    "numbers cycle by cycle": {
        "strategy": Spec("lcmd"),
        "restart": "continue",
        "cycles": 1,
    },
}

LONG = (
    "a head in closed form",
    "a head in closed form for each site",
    "a head in closed form, of which sites see the head alone",
    "a last word of each site",
    "a pivotal sample of numbers",
    "an evaluation set",
    "an evaluation set of a model for each site",
    "an evaluation set of numbers",
    "an encoder",
    "an encoder that nothing is fitted to",
    "an encoder with secure sums",
    "an exact head on a trained body",
    "empty cells and an encoder",
    "empty cells in their units",
    "empty cells with secure sums",
    "several queries in a cycle",
    "typical rows of numbers",
    "typical rows with secure sums",
    "typical rows of what is uncertain with secure sums",
    "unlabeled examples in a head in closed form",
    "unlabeled examples in a head in closed form with secure sums",
)
"""Studies of experimental strategies, or whose parts occur in shorter tests or in other studies."""


def ground(name: str) -> Dataset:
    if "pictures" in name:
        return photos()
    if "empty cells" in name:
        return ward()
    return rows(NAMES[:3], classes=0 if "numbers" in name else 3)


def config_of(name: str) -> ExperimentConfig:
    return ExperimentConfig("hospitals", **{**COMMON, **STUDIES[name]})


def simulate(simulation: Federation, folder: Path) -> tuple[ExperimentRun, list[Record]]:
    """Simulate the study of the agreement as `fallow run` does."""
    agreed = simulation.agreement
    event_log = EventLog()
    run = ExperimentRun(
        environment_of(agreed.config, agreed.seed, simulation.data, event_log),
        event_log,
        folder=folder,
    )
    one = is_one_pass(agreed.config)
    return run, run.one_pass(agreed.config.cycles) if one else run.go()


def lines(labels: Any) -> list[tuple[Any, ...]]:
    """Return the ledger lines in the order of rows, with rounded weights."""
    return [
        (at.row, at.value, at.cycle, at.is_validation, pytest.approx(at.weight, rel=1e-9))
        for at in sorted(labels)
    ]


def tree(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = load_tree(file, file.parent)
    return values


def assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Check that the models of two files are equal up to rounding."""
    assert set(one["state"]) <= set(other["state"])
    for part, value in one["state"].items():
        assert torch.allclose(value, other["state"][part], rtol=1e-9, atol=1e-8), part


def assert_as_long(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Check that two models differ only by a rotation, which each site draws secretly."""
    assert not torch.allclose(one["state"]["w"], other["state"]["w"])
    for part, value in one["state"].items():
        assert torch.allclose(value.norm(), other["state"][part].norm(), rtol=1e-9), part


@pytest.mark.long
@pytest.mark.parametrize("name", mark_long(STUDIES, LONG))
def test_real_sites_pick_and_learn_what_the_simulation_does(
    name: str, tmp_path: Path
) -> None:
    simulation = federation(tmp_path / "real", config_of(name), ground(name))
    program = simulation.program()
    assert program.go()
    assert simulation.list_events("refused") == []
    run, records = simulate(simulation, tmp_path)
    for site, labels in simulation.labels().items():
        assert lines(labels) == lines(run.event_log.load_labels(site)), site
        assert labels, "nothing was labeled, so nothing was compared"
    checkpoints = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert (
        sorted(path.name for path in (program.run_folder / "checkpoints").iterdir())
        == checkpoints
    )
    compare = assert_as_long if "masked" in name else assert_alike
    for at in checkpoints:
        compare(
            tree(program.run_folder / "checkpoints" / at),
            tree(tmp_path / "checkpoints" / at),
        )
    ours = tree(program.run_folder / "model.safetensors")
    theirs = tree(tmp_path / "model.safetensors")
    # secure aggregation hides a global model from the coordinator
    if ours["state"] is not None:
        assert_alike(ours, theirs)
    is_common = "A global model" in (simulation.coordinator_folder / CARD).read_text()
    assert is_common == (ours["state"] is not None)
    for site, folder in simulation.sites.items():
        own = theirs["sites"].get(site) or theirs["state"]
        at_site = tree(folder.path / "model.safetensors")
        assert_alike({"state": own}, at_site)
        assert at_site.get(SETS) == ours.get(SETS) == theirs.get(SETS)
        assert (SETS in at_site) == ("coverage" in STUDIES[name])
        card = (folder.path / CARD).read_text()
        assert ("With coverage 0.8" in card) == (SETS in at_site)
        own_metrics = STUDIES[name].get("metrics", ())
        assert card.count("95 % interval") >= len(own_metrics)
        assert all(f"- {find_metric(metric).title}: " in card for metric in own_metrics)
    values = [record["per_site"] for record in run_records(program.run_folder)]
    for at_sites, record in zip(values, records, strict=True):
        if simulation.data.classes and at_sites and record["per_site"]:
            assert at_sites == pytest.approx(record["per_site"], abs=1e-9)
    for real, record in zip(run_records(program.run_folder), records, strict=True):
        if "evaluation_set" in record:
            assert_same_evaluation(real["evaluation_set"], record["evaluation_set"])
            if simulation.data.classes:
                score = record["evaluation_set"]["score"]
                assert real["evaluation_set"]["score"] == pytest.approx(score, abs=1e-6)
        assert_same_metrics(real, record)
        assert real.get("prediction_sets") == record.get("prediction_sets")
        assert real.get("measured") == record.get("measured")
        assert ("measured" in real) == ("measure" in STUDIES[name])
    card = (simulation.coordinator_folder / CARD).read_text()
    assert ("- Fairness of accuracy" in card) == ("measured" in records[-1])
    for line in list_metrics(records[-1].get("metrics", {}), simulation.data.classes):
        assert f"- {line}" in card
    simulation.close()


def assert_same_metrics(real: dict[str, Any], simulated: Record) -> None:
    """Check that the additional metrics equal those of the simulation."""
    expected = simulated.get("metrics", {})
    assert set(real.get("metrics", {})) == set(expected)
    for name, scores in expected.items():
        at_sites = real["metrics"][name]
        assert scores["value"] is not None
        values = [scores[part] for part in ("value", "low", "high")]
        assert [at_sites[part] for part in ("value", "low", "high")] == pytest.approx(
            values
        )
        for part in ("per_class", "per_site"):
            if part in at_sites:
                assert at_sites[part] == pytest.approx(scores[part], abs=1e-6)


def assert_same_evaluation(real: Any, simulated: Any) -> None:
    """Check the results on evaluation sets, over all sites and for each site that discloses
    them. Errors may differ in their unit, which at real sites is the variance of the
    initial labels."""
    assert real.keys() == simulated.keys()
    unit = real["score"] / simulated["score"]
    for name in ("drawn", "chosen", "rows"):
        assert real[name] == simulated[name]
    for name in ("low", "high"):
        assert real[name] == pytest.approx(unit * simulated[name], rel=1e-6, abs=1e-7)
    assert simulated["drawn"] > 0
    for site, alone in simulated.get("per_site", {}).items():
        if alone["score"] is not None:
            score = unit * alone["score"]
            assert real["per_site"][site]["score"] == pytest.approx(score, rel=1e-6)


def run_records(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()
    ]
