"""Prediction sets and intervals of runs, saved models and predicted files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fallow as fl
from fallow.study.trained import predict_file

DIGITS = fl.load("digits")
LINEAR: dict[str, Any] = {
    "training": "fedavg",
    "model": "linear",
    "cycles": 0,
    "initial": 0.3,
    "rounds": 2,
    "metrics": ["auroc", "f1"],
}
RULE = "With coverage 0.9, the set of classes with a probability of at least"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> fl.Run:
    return fl.run(
        fl.Federation(DIGITS, sites=3),
        **LINEAR,
        coverage=0.9,
        out=tmp_path_factory.mktemp("sets") / "study",
        progress=False,
    )


def test_sets_have_the_coverage_on_the_examples_that_they_are_computed_from(
    done: fl.Run,
) -> None:
    for coverage in (0.7, 0.9, 0.97):
        sets = done.predict_set(DIGITS.x_test, coverage)
        contained = sets[np.arange(len(sets)), DIGITS.y_test.numpy()].mean()
        assert coverage <= contained <= coverage + 0.03
    recorded = done.records.iloc[-1]["prediction_sets"]
    assert recorded["examples"] == len(DIGITS.y_test)
    shares = done.predict_proba(DIGITS.x_test)
    assert (done.predict_set(DIGITS.x_test) == (shares >= recorded["threshold"])).all()


def test_a_saved_model_has_the_same_sets_and_a_card_that_states_the_rule(
    done: fl.Run, tmp_path: Path
) -> None:
    folder = done.save(tmp_path / "model")
    again = fl.load_model(folder)
    expected = done.predict_set(DIGITS.x_test)
    assert (again.predict_set(DIGITS.x_test) == expected).all()
    card = (folder / "README.md").read_text()
    assert RULE in card
    scores = done.records.iloc[-1]["metrics"]["auroc"]
    interval = "{value:.3g} (95 % interval {low:.3g} to {high:.3g}), mean over classes"
    assert f"- AUROC: {interval.format(**scores)}" in card
    assert f", 9 {scores['per_class'][9]:.3g} (95 % interval" in card
    config = json.loads((folder / "config.json").read_text())
    config["prediction_sets"]["coverage"] = 2.0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"coverage is 2.0; give a number between 0 and 1"):
        fl.load_model(folder)


def test_an_exported_model_has_the_threshold(done: fl.Run, tmp_path: Path) -> None:
    network = onnx.load(done.export(tmp_path / "m.onnx"))
    metadata = {item.key: item.value for item in network.metadata_props}
    threshold = done.records.iloc[-1]["prediction_sets"]["threshold"]
    rule = json.loads(metadata["prediction_sets"])
    assert rule == {"coverage": 0.9, "threshold": threshold}


def test_a_file_of_predictions_has_the_sets(done: fl.Run, tmp_path: Path) -> None:
    assert done.folder is not None
    np.savez(tmp_path / "new.npz", x=DIGITS.x_test.numpy())
    result = predict_file(done.folder, tmp_path / "new.npz")
    rows = list(csv.DictReader(result.path.read_text().splitlines()))
    columns = [f"in_set:{name}" for name in DIGITS.classes]
    in_file = np.array([[int(row[name]) for name in columns] for row in rows])
    expected = done.predict_set(DIGITS.x_test)
    assert (in_file == expected).all()
    assert [int(row["set_size"]) for row in rows] == expected.sum(1).tolist()
    assert result.unclear == (expected.sum(1) != 1).sum() > 0


def test_a_run_states_what_sets_need(done: fl.Run) -> None:
    with pytest.raises(ValueError, match=r"with coverage 0.999 need at least 999 test"):
        done.predict_set(DIGITS.x_test, 0.999)
    with pytest.raises(ValueError, match="coverage is 1; give a number between 0 and 1"):
        done.predict_set(DIGITS.x_test, 1)
    with pytest.raises(
        ValueError, match="the model is for classification; use predict_set"
    ):
        done.predict_interval(DIGITS.x_test)
    with pytest.raises(
        ValueError, match=r"coverage is 1.5; it is the share of new examples"
    ):
        fl.ExperimentConfig("wrong", coverage=1.5)
    plain = fl.run(DIGITS, sites=2, **LINEAR, progress=False)
    with pytest.raises(ValueError, match="no prediction sets; train it with a coverage"):
        plain.predict_set(DIGITS.x_test)


def test_personalized_models_share_one_threshold_over_all_sites() -> None:
    run = fl.run(
        fl.Federation(DIGITS, fl.Dirichlet(alpha=0.3), sites=3),
        training="local",
        coverage=0.8,
        cycles=0,
        rounds=1,
        initial=0.1,
        progress=False,
    )
    truth = (np.arange(len(DIGITS.y_test)), DIGITS.y_test.numpy())
    shares = [run.predict_set(DIGITS.x_test, site=site)[truth].mean() for site in run.sites]
    recorded = run.records.iloc[-1]["prediction_sets"]
    assert 0.8 <= np.mean(shares) <= 0.803 + recorded["tied"]
    assert max(shares) - min(shares) > 0.02
    assert recorded["examples"] == len(DIGITS.y_test)
