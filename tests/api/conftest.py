"""Small federated datasets for the tests of the public API."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fallow as fl


@pytest.fixture(scope="session")
def rows() -> fl.Dataset:
    """Return three classes in two dimensions, with 180 training and 60 test examples."""
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(240) % 3
    center = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -1.0]])
    x = center[y] + 0.7 * torch.randn(240, 2, generator=draw)
    return fl.from_arrays(
        x[:180], y[:180], x_test=x[180:], y_test=y[180:], name="three classes"
    )


@pytest.fixture(scope="session")
def simulation(rows: fl.Dataset) -> fl.Federation:
    return fl.Federation(rows, fl.Dirichlet(alpha=1.0), sites=3)


@pytest.fixture(scope="session")
def quick() -> dict[str, object]:
    """Return settings with which a run takes a tenth of a second."""
    sizes = {"cycles": 1, "rounds": 1, "score_rounds": 1, "initial": 0.1, "budget": 0.1}
    return {"training": "fedavg", **sizes}


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "pool": draw.normal(size=(30, 4)).astype(np.float32),
        "x": draw.normal(size=(12, 4)).astype(np.float32),
        "y": draw.integers(0, 3, 12),
        "p": draw.dirichlet([1.0, 1.0, 1.0], 30),
        "q": draw.dirichlet([1.0, 1.0, 1.0], 30),
    }
