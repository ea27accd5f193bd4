"""Suspicious labels of simulated runs with a closed-form model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score

import fallow as fl
from fallow.experiment.predict import features_of
from tests.simulations import PLAIN

DIGITS = fl.load("digits")
CLASSES = np.array(DIGITS.classes)
SETTINGS: dict[str, Any] = {"initial": 0.2, "cycles": 0, "progress": False}


def with_wrong_labels(share: float) -> tuple[fl.Dataset, np.ndarray]:
    """Return digits with a share of wrong labels, and whether each is wrong."""
    draw = np.random.default_rng(0)
    is_wrong = draw.random(len(DIGITS.y)) < share
    away = torch.from_numpy(draw.integers(1, 10, len(DIGITS.y)) * is_wrong)
    return replace(DIGITS, y=((DIGITS.y + away) % 10).to(DIGITS.y.dtype)), is_wrong


@pytest.mark.long
def test_wrong_labels_come_first_with_the_right_class() -> None:
    data, is_wrong = with_wrong_labels(0.1)
    federation = fl.Federation(data, fl.Dirichlet(alpha=0.1), sites=4)
    run = fl.run(federation, training=PLAIN, **SETTINGS)
    issues = run.find_label_issues()
    assert len(issues) == len(run.labels) == 288
    assert issues["score"].is_monotonic_increasing
    rows = federation.rows(seed=0)
    at = np.array(
        [rows[site][row] for site, row in zip(issues["site"], issues["row"], strict=True)]
    )
    assert (issues["label"] == CLASSES[data.y[at]]).all()
    assert average_precision_score(is_wrong[at], -issues["score"]) > 0.9
    first = at[: is_wrong[at].sum()]
    assert (issues["suggested"][: len(first)] == CLASSES[DIGITS.y[first]]).mean() > 0.8
    assert run.find_label_issues(n=5).equals(issues.head(5))


@pytest.mark.parametrize(
    "training",
    [
        fl.ClosedForm(passes=2),
        fl.ClosedForm(balance="class", weighted=False, penalty=0.01),
    ],
)
def test_predictions_are_those_of_the_leave_one_out_accuracy(
    training: fl.ClosedForm,
) -> None:
    federation = fl.Federation(DIGITS, fl.Dirichlet(alpha=0.3), sites=3)
    settings = {**SETTINGS, "rows": 300, "cycles": 1, "budget": 0.1, "encoder": "identity"}
    run = fl.run(federation, "fale", training=training, **settings)
    assert run.labels["weight"].nunique() > 5
    issues = run.find_label_issues().merge(run.labels, on=["site", "row"])
    weights = issues["weight"] if training.weighted else np.ones(len(issues))
    if training.balance == "class":
        weights = weights / issues.groupby("label")["label"].transform("size")
    is_right = issues["label"] == issues["suggested"]
    score = np.average(is_right, weights=weights)
    assert score == pytest.approx(run.records["left_out"].iloc[-1], abs=1e-8)


@pytest.mark.long
def test_targets_are_compared_with_models_fitted_again() -> None:
    x, y = load_diabetes(return_X_y=True)
    data = fl.from_arrays(
        x[:200], y[:200], x_test=x[200:], y_test=y[200:], task="regression"
    )
    federation = fl.Federation(data, sites=2)
    run = fl.run(federation, **SETTINGS)
    issues = run.find_label_issues()
    assert issues["score"].is_monotonic_decreasing
    rows = federation.rows(seed=0)
    at = [rows[site][row] for site, row in zip(issues["site"], issues["row"], strict=True)]
    assert issues["label"].tolist() == data.y[at].tolist()
    z = features_of(run.config, run.saved, data.x[at]).numpy().astype(np.float64)
    target = issues["label"].to_numpy()
    model = Ridge(run.records["penalty"].iloc[-1] * len(z), solver="cholesky")
    for row in range(3):
        others = np.arange(len(z)) != row
        expected = model.fit(z[others], target[others]).predict(z[row : row + 1])
        assert issues["suggested"][row] == pytest.approx(float(expected[0]), rel=1e-8)


@pytest.mark.long
def test_with_unlabeled_examples_the_model_of_the_labels_alone_predicts() -> None:
    federation = fl.Federation(DIGITS, sites=2)
    settings = {**SETTINGS, "initial": 100, "rows": 400}
    runs = [
        fl.run(federation, training=fl.ClosedForm(unlabeled=choice), **settings)
        for choice in ("auto", "off")
    ]
    assert runs[0].records["unlabeled"].iloc[-1] > 0
    assert runs[0].find_label_issues().equals(runs[1].find_label_issues())


@pytest.mark.long
def test_a_study_read_from_its_folder_needs_its_data(tmp_path: Path) -> None:
    rows = slice(0, 100)
    data = replace(DIGITS, name="mine", x=DIGITS.x[rows], y=DIGITS.y[rows])
    study = fl.compare(data, ["random"], seeds=1, sites=1, out=tmp_path / "s", **SETTINGS)
    assert len(study.run("random").find_label_issues()) == 20
    again = fl.read_study(tmp_path / "s").run("random")
    with pytest.raises(ValueError, match=r"cannot be read again: 'mine' is not a known"):
        again.find_label_issues()


@pytest.mark.long
def test_a_run_states_what_the_ranking_needs() -> None:
    network = fl.run(DIGITS, sites=2, training="local", rounds=1, **SETTINGS)
    needs = r"exact leave-one-out predictions of training=fl.ClosedForm\(\) without delta"
    with pytest.raises(ValueError, match=f"{needs}, and the run used local"):
        network.find_label_issues()
    private = fl.ClosedForm(delta=1e-5)
    noisy = fl.run(
        DIGITS, sites=2, training=private, privacy=fl.Privacy(epsilon=5), **SETTINGS
    )
    with pytest.raises(ValueError, match=f"{needs}, .* closed-form:delta=1e-05"):
        noisy.find_label_issues()
    settings = {**SETTINGS, "training": PLAIN, "budget": 3, "cycles": 1}
    later = fl.run(DIGITS, sites=2, **settings)
    with pytest.raises(ValueError, match="n is 0; give a whole number of labels"):
        later.find_label_issues(n=0)
    few = fl.run(DIGITS, sites=1, training=PLAIN, **{**SETTINGS, "initial": 2})
    with pytest.raises(ValueError, match=r"the run has 2 labels, .* at least 3"):
        few.find_label_issues()
