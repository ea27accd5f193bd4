"""A small federated dataset whose runs take a tenth of a second."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fallow as fl
from tests.cli.conftest import fallow, folder

__all__ = ["fallow", "folder", "simulation"]

QUICK: dict[str, Any] = {
    "training": "fedavg",
    "cycles": 1,
    "rounds": 1,
    "score_rounds": 1,
    "initial": 0.1,
    "budget": 0.1,
    "progress": False,
}


@pytest.fixture(scope="session")
def simulation() -> fl.Federation:
    """Return three classes in two dimensions at three sites."""
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(240) % 3
    center = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -1.0]])
    x = center[y] + 0.7 * torch.randn(240, 2, generator=draw)
    rows = fl.from_arrays(
        x[:180], y[:180], x_test=x[180:], y_test=y[180:], name="three classes"
    )
    return fl.Federation(rows, fl.Dirichlet(alpha=1.0), sites=3)
