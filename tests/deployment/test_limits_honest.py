"""Test that sites accept all instructions of an honest coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from tests.deployment.simulations import (
    NAMES,
    OPTIONAL,
    check_order,
    federation,
    photos,
    rows,
)
from tests.each import mark_long

pytest.importorskip("cryptography")
SMALL: dict[str, Any] = {
    "model": Spec("linear"),
    "training_config": TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    "local_training_config": TrainingConfig((TrainingStage(1),), 8, Optimizer(lr=0.05)),
    "strategy": Spec("random"),
    "initial": 5,
    "budget": 2,
    "rounds": 2,
    "cycles": 1,
    "score_rounds": 2,
    "dtype": "float64",
}
TWICE: dict[str, Any] = {"cycles": 2, "restart": "continue", "validation": 0.4}
STUDIES: dict[str, dict[str, Any]] = {
    "fedprox": {"training": Spec("fedprox"), "participation": 0.5, "rounds": 3},
    "scaffold": {"training": Spec("scaffold"), "participation": 0.5, **TWICE, "rounds": 3},
    "kcfu": {"training": Spec("kcfu")},
    "evidential": {"training": Spec("evidential")},
    "robust": {"training": Spec("robust"), **TWICE},
    "ditto": {"training": Spec("ditto"), **TWICE},
    "apfl": {"training": Spec("apfl")},
    "knn-per": {"training": Spec("knn-per")},
    "fedrep": {"training": Spec("fedrep"), "model": Spec("mlp", {"hidden": [6]}), **TWICE},
    "perfedavg": {"training": Spec("perfedavg"), **TWICE},
    "perfedavg in one step": {"training": Spec("perfedavg", {"eval_adapt": "one_step"})},
    "perfedavg after local training": {
        "training": Spec("perfedavg", {"eval_adapt": "after_local"})
    },
    "pfedgraph": {"training": Spec("pfedgraph", {"lam": 0.1}), **TWICE},
    "fedavg-post": {"training": Spec("fedavg-post")},
    "local": {"training": Spec("local"), **TWICE},
    "fedprox-ft with its pull": {
        "training": Spec("fedprox-ft", {"tune_prox": True}),
        "validation": 0.4,
    },
    "fedavg-ft without validation": {"training": Spec("fedavg-ft")},
    "dpfl": {"training": Spec("dpfl", {"budget": 2, "tau_init": 0}), **TWICE},
    "dpfl with links in both directions": {
        "training": Spec("dpfl", {"budget": 2, "graph": "symmetric-or"}),
        **TWICE,
    },
    "an evaluation set": {
        "evaluation_fraction": 0.5,
        "initial": 0,
        "budget": 0.2,
        "strategy": Spec("margin"),
    },
    "ifal": {"strategy": Spec("ifal", {"epochs": 1})},
    "entropy of the mean": {"strategy": Spec("entropy", {"model": "average"})},
    "fairfal": {"strategy": Spec("fairfal")},
    "parts of a budget": {
        "strategy": Spec("entropy"),
        "queries_per_cycle": 2,
        "cycles": 2,
    },
    "shares of all rows": {"initial": 0.2, "budget": 0.1, "cycles": 2},
    "shares of each site's rows": {
        "initial": 0.2,
        "budget": 0.1,
        "cycles": 2,
        "budget_allocation": "proportional",
    },
    "secure sums": {
        "strategy": Spec("ahfal"),
        "privacy": Privacy(secure_sum=True),
        "validation": 0.4,
    },
    "leverage at each site": {
        "strategy": Spec("fale", {"allot": "site"}),
        "training": Spec("server-solve"),
        "initial_by": "query",
    },
    "leverage of shares": {
        "strategy": Spec("fale"),
        "training": Spec("server-solve"),
        "initial_by": "query",
        "initial": 0.1,
        "budget": 0.1,
        "cycles": 2,
    },
    "a pivotal sample by leverage": {
        "strategy": Spec("pivotal"),
        "training": Spec("server-solve"),
        "initial_by": "query",
        "cycles": 2,
    },
    "a pivotal sample by leverage at each site": {
        "strategy": Spec("pivotal", {"allot": "site"}),
        "training": Spec("server-solve"),
        "initial_by": "query",
    },
    "a pivotal sample by leverage after first labels that each site draws": {
        "strategy": Spec("pivotal"),
        "training": Spec("server-solve"),
    },
    "leverage in triangles": {
        "strategy": Spec("fale", {"mode": "tsqr"}),
        "training": Spec("server-solve", {"passes": 1}),
        "initial_by": "query",
    },
    "leverage of masked sums": {
        "strategy": Spec("fale"),
        "training": Spec("server-solve"),
        "initial_by": "query",
        "privacy": Privacy(secure_sum=True),
    },
}

LONG = (
    "fedprox",
    "kcfu",
    "evidential",
    "apfl",
    "knn-per",
    "fedrep",
    "perfedavg",
    "fedavg-post",
    "local",
    "entropy of the mean",
    "fairfal",
    "shares of all rows",
    "leverage at each site",
    "a pivotal sample by leverage",
    "leverage in triangles",
    "perfedavg in one step",
    "perfedavg after local training",
    "fedavg-ft without validation",
    "dpfl with links in both directions",
    "shares of each site's rows",
    "leverage of shares",
    "a pivotal sample by leverage at each site",
    "a pivotal sample by leverage after first labels that each site draws",
    "an evaluation set",
    "ditto",
    "dpfl",
    "leverage of masked sums",
    "secure sums",
)
"""Studies that differ from another one, here or in test_equal, in one setting or algorithm."""


@pytest.mark.parametrize("name", mark_long(STUDIES, LONG))
def test_no_site_refuses_anything_of_an_honest_study(name: str, tmp_path: Path) -> None:
    classes = 0 if "leverage" in name else 3
    config = ExperimentConfig("hospitals", **{**SMALL, **STUDIES[name]})
    simulation = federation(tmp_path, config, rows(NAMES[:3], classes=classes, per_site=16))
    assert simulation.program().go()
    assert [event for event in simulation.events if event["event"] == "refused"] == []
    assert (
        all(ledger.requests.asked for ledger in simulation.ledgers.values()) or classes == 0
    )
    optional: tuple[str, ...] = OPTIONAL
    if "dpfl" in name:  # a round of local training alone is sent with the next exchange
        optional = (*OPTIONAL, "round")
    check_order(simulation, optional)
    simulation.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "training", mark_long(["apfl", "fedrep", "pfedgraph"], ["fedrep", "pfedgraph"])
)
def test_no_site_refuses_a_model_with_batch_norm(training: str, tmp_path: Path) -> None:
    """Statistics are sent like parameters and must return with the same length."""
    fields = {"lam": 0.1} if training == "pfedgraph" else {}
    changed = {"model": Spec("resnet8"), "training": Spec(training, fields), **TWICE}
    config = ExperimentConfig("hospitals", **{**SMALL, **changed})
    simulation = federation(tmp_path, config, photos())
    assert simulation.program().go()
    assert [event for event in simulation.events if event["event"] == "refused"] == []
    simulation.close()
