"""Closed-form cycle with 1,024 features against a phase of FedAvg.

The phase is that of ``strategies/mnist``: 10 sites, 8,000 examples, all labeled.
"""

from __future__ import annotations

import torch
from sklearn.linear_model import Ridge

from bench.closed_form import CLASSES, features, fedavg, phase
from bench.timing import Entry, Race
from fallow.training import ClosedForm

FEATURES = 1024
ROUNDS = 15


def prepare(is_quick: bool) -> Race:
    n = 8000
    size = FEATURES
    pixels = 784
    rounds = ROUNDS
    if is_quick:
        n = 400
        size = 24
        pixels = 36
        rounds = 1
    rows = features(n, size)
    theirs = phase(features(n, pixels), "mlp", fedavg(), rounds)
    ours = phase(rows, "linear", ClosedForm(), 1)

    def is_ridge() -> bool:
        """Check the weights against scikit-learn's ridge regression on the pooled data."""
        state = ours.train()
        y = torch.nn.functional.one_hot(rows.y, CLASSES).double().numpy()
        alpha = float(state["penalty"]) * n
        fitted = Ridge(alpha=alpha, solver="cholesky").fit(rows.x.double().numpy(), y)
        expected = float(state["temperature"]) * torch.from_numpy(fitted.coef_).flatten()
        ridge = state["w"][: CLASSES * size].double()
        return torch.allclose(ridge, expected, rtol=1e-4, atol=1e-5)

    return Race(theirs.train, ours.train, is_ridge)


ENTRY = Entry(
    "closed-form-cycle",
    "FedAvg, 15 rounds of 2 epochs of an MLP on 784 pixels (strategies/mnist), stacked sites",
    bar=20.0,
    compared="weights with scikit-learn's Ridge on all rows: 1e-5 in float32",
    prepare=prepare,
)
