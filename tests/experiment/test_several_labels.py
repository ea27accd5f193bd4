"""Runs with several labels per example: losses, scores, strategies, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.testing import assert_close

import fallow as fl
from fallow.core.multilabel import read_answers, write_answers
from fallow.core.streams import stream
from fallow.engine import row_loss
from fallow.engine.score_metrics import auroc, auroc_error, count_answers, f1
from fallow.experiment.metrics import of_answers
from fallow.experiment.predict import predict_with
from fallow.experiment.trained import Trained
from fallow.models.scores import entropy, margin, score_labels
from fallow.report.page import write_report
from tests import findings as several_labels

NAN = float("nan")
ANSWERS = torch.tensor([[1, 0], [0, NAN], [NAN, NAN], [1, 1], [0, 1], [1, NAN]])
SMALL: dict[str, Any] = {
    "sites": 3,
    "initial": 8,
    "cycles": 1,
    "budget": 4,
    "encoder": None,
}


def draw_outputs(n: int, n_labels: int = 2) -> torch.Tensor:
    return 3 * torch.randn(n, n_labels, generator=stream(1, "outputs"), dtype=torch.float64)


@pytest.fixture(scope="module")
def findings() -> fl.Dataset:
    return several_labels.findings()


def test_the_loss_is_the_mean_cross_entropy_of_known_answers() -> None:
    outputs = draw_outputs(len(ANSWERS)).requires_grad_()
    losses = row_loss("multilabel")(outputs, write_answers(ANSWERS))
    for row, answers in enumerate(ANSWERS.double()):
        known = ~answers.isnan()
        expected = torch.zeros((), dtype=torch.float64)
        if known.any():
            expected = binary_cross_entropy_with_logits(outputs[row][known], answers[known])
        assert_close(losses[row], expected)
    (slope,) = torch.autograd.grad(losses.sum(), outputs)
    assert_close(slope[ANSWERS.isnan()], torch.zeros(4, dtype=torch.float64))
    pairs = torch.stack([outputs, outputs])  # models at once
    both = row_loss("multilabel")(pairs, write_answers(ANSWERS).expand(2, -1))
    assert_close(both, torch.stack([losses, losses]))


def test_scores_are_those_of_each_label_combined() -> None:
    outputs = draw_outputs(9, 3)
    p = outputs.sigmoid()
    margins = 1 - (2 * p - 1).abs()
    assert_close(score_labels(margin, outputs, 3, "mean"), margins.mean(1))
    assert_close(score_labels(margin, outputs, 3, "max"), margins.amax(1))
    entropies = torch.special.entr(p) + torch.special.entr(1 - p)
    assert_close(score_labels(entropy, outputs, 3, "mean"), entropies.mean(1))
    assert_close(score_labels(margin, outputs, 0, "max"), margin(outputs))


def test_metrics_of_labels_are_those_of_known_answers() -> None:
    draw = stream(2, "answers")
    outputs = draw_outputs(300)
    truth = (outputs + 3 * torch.randn(300, 2, generator=draw) > 0).double()
    truth[torch.rand(300, 2, generator=draw) < 0.3] = NAN
    numbers = write_answers(truth)
    counts = count_answers(outputs, numbers).numpy()
    scores = of_answers({"x": outputs[:100], "y": outputs[100:]}, _split(numbers))
    accuracies = []
    for label, area in enumerate(auroc(counts).tolist()):
        known = ~truth[:, label].isnan()
        true = truth[known, label]
        expected = roc_auc_score(true, outputs[known, label])
        assert abs(area - expected) <= float(auroc_error(counts)[label]) + 1e-12
        accuracies.append(
            float(((outputs[known, label] > 0) == (true > 0)).double().mean())
        )
        hits = float(((outputs[known, label] > 0) & (true > 0)).sum())
        positive = float((outputs[known, label] > 0).sum() + true.sum())
        assert f1(counts)[label] == pytest.approx(2 * hits / positive)
    assert scores["per_class"] == pytest.approx(accuracies)
    assert scores["accuracy_weighted"] == pytest.approx(np.mean(accuracies))
    unknown = of_answers({"x": outputs[:1]}, {"x": torch.tensor([1 + 2 * 3])})
    assert unknown["per_class"] is not None
    assert unknown["per_class"][1] is None


def _split(numbers: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": numbers[:100], "y": numbers[100:]}


@pytest.mark.parametrize("strategy", ["random", "margin", "entropy:over=max", "typical"])
def test_strategies_select_examples_with_several_labels(
    findings: fl.Dataset, strategy: str
) -> None:
    run = fl.run(findings, strategy=strategy, metrics=["auroc"], **SMALL)
    last = run.records.iloc[-1]
    assert last["training"] == "closed-form-labels"
    assert last["labeled"] == 36
    assert last["accuracy"] > 0.8
    assert len(last["metrics"]["auroc"]["per_class"]) == 3


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_executors_agree_on_several_labels(findings: fl.Dataset, model: str) -> None:
    models = []
    for executor in ("loop", "stacked"):
        few: dict[str, Any] = {"cycles": 0, "rounds": 2, "model": model, "dtype": "float64"}
        run = fl.run(findings, training="fedavg", executor=executor, **SMALL | few)
        models.append(run.predict_proba(findings.x_test))
    np.testing.assert_allclose(models[0], models[1], atol=1e-9)
    assert 0 < models[0].min() < models[0].max() < 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "badge"}, "badge does not support several labels"),
    ({"strategy": "fairfal", "training": "fedavg"}, "fairfal does not support several"),
    ({"training": "scaffold"}, "use closed-form-labels, fedavg or fedprox"),
    ({"training": "closed-form:penalty=0.1"}, "penalty=0.1 does not support several"),
    ({"training": "ditto"}, "training ditto does not support several labels"),
    ({"training": "none"}, "training none does not support several labels"),
    ({"head": "exact", "training": "fedavg", "model": "mlp"}, "head=exact does not"),
    ({"evaluation_fraction": 0.5}, "evaluation_fraction=0.5 does not support several"),
    ({"coverage": 0.9}, "coverage is 0.9, which does not support several labels"),
    ({"validation": 0.2}, "validation is 0.2, which does not support several labels"),
    ({"metrics": ["r2"]}, "metric 'r2' is for regression"),
    ({"measure": ["fairness"]}, "findings is a multilabel task"),
    ({"test": "own"}, "findings is a multilabel task; use test=common"),
    ({"flip": 1}, "flip changes classes, and findings has none"),
    ({"strategy": "badge:sigma=0.5"}, "badge:sigma=0.5 does not support several labels"),
    ({"target_scale": "none"}, "it scales the targets of regression"),
    (
        {"partition": "dirichlet:alpha=1"},
        "splits by class, and findings has several labels",
    ),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_what_does_not_support_several_labels_is_refused(
    findings: fl.Dataset, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fl.run(findings, **SMALL | settings)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [("digits", "is for several labels and digits has"), ("diabetes", "requires classes")],
)
def test_the_algorithm_for_labels_is_for_nothing_else(data: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fl.run(data, training="closed-form-labels", **SMALL)


def test_combinations_of_labels_are_refused_where_there_are_classes() -> None:
    sentence = "Margin's over is 'max' and applies to several labels.*leave over out"
    with pytest.raises(ValueError, match=sentence):
        fl.run("digits", strategy="margin:over=max", **SMALL)


def test_a_saved_model_predicts_several_labels(findings: fl.Dataset, tmp_path: Any) -> None:
    run = fl.run(findings, **SMALL)
    run.save(tmp_path / "model")
    loaded = fl.load_model(tmp_path / "model")
    shares = loaded.predict_proba(findings.x_test)
    np.testing.assert_array_equal(shares, run.predict_proba(findings.x_test))
    np.testing.assert_array_equal(loaded.predict(findings.x_test), shares > 0.5)
    known = read_answers(findings.y_test, 3).numpy()
    assert loaded.label_names == several_labels.LABELS
    assert loaded.classes == ()
    assert shares.shape == known.shape
    model = Trained(loaded.config, loaded.saved, loaded.state)
    rows = tmp_path / "new.npz"
    np.savez(rows, x=findings.x_test[:2].numpy())
    written = predict_with(model, rows, tmp_path / "predicted.csv").path
    header, first, _ = written.read_text().splitlines()
    labels = several_labels.LABELS
    assert header.split(",")[1:3] == [f"label:{labels[0]}", f"probability:{labels[0]}"]
    assert [float(cell) for cell in first.split(",")[2::2]] == pytest.approx(
        shares[0].tolist(), abs=1e-6
    )
    with pytest.raises(ValueError, match="the model is for multilabel; use predict_proba"):
        loaded.predict_set(findings.x_test)
    with pytest.raises(ValueError, match="several labels, which exported files do not"):
        loaded.export(tmp_path / "model.pt2")


def test_a_report_names_labels_where_there_are_no_classes(
    findings: fl.Dataset, tmp_path: Path
) -> None:
    metrics = ["auroc", "calibration-error"]
    fl.compare(findings, ["margin"], seeds=1, out=tmp_path / "s", metrics=metrics, **SMALL)
    page = write_report([tmp_path / "s"]).read_text(encoding="utf-8")
    for text in (
        "Accuracy by label",
        "Test accuracy of each label.",
        "accuracy on the labels that are hard to learn",
        "mean over labels, over all test examples",
        "examples that have the label, over all labels and seeds",
    ):
        assert text in page, text
    for text in ("Accuracy by class", "of each class", "mean over classes", "per class"):
        assert text not in page, text
    assert all(f"label {name}" in page for name in several_labels.LABELS[:1])
