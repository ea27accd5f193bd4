"""One closed-form model per label, of the examples whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import fallow as fl
from fallow.core.composites import LabelProducts, Losses
from fallow.core.multilabel import read_answers
from fallow.core.values import SenderFacts
from fallow.training.parts.closed_form import LOSSES
from fallow.training.parts.ridge import TEMPERATURES
from tests.findings import LABELS, findings

PENALTY = 0.03
SITES = 3


def labeled(unknown: float = 0.2) -> fl.Dataset:
    """Return the labeled examples, as many at each site."""
    data = findings(unknown=unknown)
    rows = data.is_labeled.nonzero().squeeze(1)
    return data.take(rows[: len(rows) // SITES * SITES])


def train(data: fl.Dataset, **settings: Any) -> fl.Run:
    """Return a run that trains with all labels at once."""
    usual: dict[str, Any] = {
        "training": f"closed-form-labels:penalty={PENALTY}",
        "sites": SITES,
        "initial": len(data.x) // SITES,
        "cycles": 0,
        "encoder": None,
        "standardize": "none",
        "dtype": "float64",
    }
    return fl.run(data, **usual | settings)


@pytest.mark.parametrize(
    ("unknown", "is_masked"), [(0.0, False), (0.2, False), (0.2, True)]
)
def test_each_label_is_ridge_regression_on_the_examples_with_a_known_answer(
    unknown: float, is_masked: bool
) -> None:
    data = labeled(unknown)
    run = train(data, privacy=fl.Privacy(secure_sum=is_masked))
    assert isinstance(run.model, torch.nn.Module)
    weight, bias = (part.detach().double() for part in run.model.parameters())
    answers = read_answers(data.y, len(LABELS))
    for label in range(len(LABELS)):
        is_known = ~answers[:, label].isnan()
        y = answers[is_known, label]
        x = data.x[is_known].double()
        z = x - x.mean(0)
        gram = z.T @ z + PENALTY * len(y) * torch.eye(4, dtype=torch.float64)
        w = torch.linalg.solve(gram, z.T @ (y - y.mean()))
        b = y.mean() - x.mean(0) @ w
        t = float(weight[label] @ w) / float(2 * w @ w)
        assert min(abs(t - other) for other in TEMPERATURES) < 1e-4 * t
        assert_close(weight[label], 2 * t * w, rtol=1e-4, atol=1e-4)
        assert_close(bias[label], t * (2 * b - 1), rtol=1e-3, atol=1e-3)


def test_a_label_with_equal_answers_has_their_smoothed_share() -> None:
    data = labeled(0.0)
    is_common = (read_answers(data.y, 3)[:, 2] == 0).nonzero().squeeze(1)
    some = data.take(is_common[: len(is_common) // SITES * SITES])
    run = train(some)
    n = len(some.x)
    assert_close(
        run.predict_proba(some.x)[:, 2], np.full(n, 0.5 / (n + 1)), rtol=1e-5, atol=0
    )


def test_predictions_are_better_than_the_most_frequent_answers() -> None:
    data = labeled()
    run = train(data, training="closed-form-labels")
    scores = run.records.iloc[-1]
    answers = read_answers(data.y_test, 3).numpy()
    guess = run.predict(data.x_test)
    by_label = [
        float((guess[known, label] == answers[known, label]).mean())
        for label, known in enumerate((~np.isnan(answers)).T)
    ]
    assert scores["per_class"] == pytest.approx(by_label)
    assert scores["accuracy"] == pytest.approx(np.mean(by_label))
    assert scores["accuracy"] > 0.75
    assert run.label_names == LABELS


def facts(labels: float) -> SenderFacts:
    return SenderFacts(labels=labels, rows=labels, longest=4.0, heaviest=1.0)


def test_sums_of_a_label_that_no_examples_have_are_rejected() -> None:
    ones = torch.ones(2, dtype=torch.float64)
    parts = {
        "n": ones,
        "rows": ones,
        "features": torch.zeros(2, 1, dtype=torch.float64),
        "targets": ones,
        "products": torch.tensor([[1.0], [1.0]], dtype=torch.float64),
        "cross": torch.zeros(2, 1, dtype=torch.float64),
    }
    rule = LabelProducts()
    assert rule.find_fault(parts, facts(1.0)) is None
    wrong = {**parts, "products": torch.tensor([[1.0], [99.0]], dtype=torch.float64)}
    fault = rule.find_fault(wrong, facts(1.0))
    assert fault is not None
    assert fault.startswith("of label 2, ")
    assert rule.find_fault({**parts, "n": 3 * ones}, facts(1.0)) is not None
    losses = Losses(**{**vars(LOSSES), "dims": "outputs", "are_labels": True})
    assert set(losses.fields({"classes": 0})) == {"squared", "right", "log"}
