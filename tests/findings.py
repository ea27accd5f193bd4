"""Examples with several labels, some of whose answers are unknown."""

from __future__ import annotations

import numpy as np

import fallow as fl

LABELS = ("oedema", "effusion", "rare")


def findings(n: int = 90, unknown: float = 0.2) -> fl.Dataset:
    """Return ``n`` examples with four features and three labels, before some are held out."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(n, 4))
    y = (x @ draw.normal(size=(4, 3)) + draw.normal(size=(n, 3)) / 2 > 0).astype(float)
    y[:, 2] *= draw.random(n) < 0.3
    y[draw.random(y.shape) < unknown] = np.nan
    return fl.from_arrays(x, y, labels=LABELS, name="findings")
