"""Contribution of one site against one matrix product z'z in float64.

The site has 8,192 examples of 1,024 features. A target of 0.6 is 60 % of the speed of that
product, counted as if both triangles were computed.
"""

from __future__ import annotations

import torch

from bench.closed_form import CLASSES, features
from bench.timing import Entry, Race
from fallow.training.parts.ridge import add_up, centered


def prepare(is_quick: bool) -> Race:
    rows = features(8192, 1024)
    if is_quick:
        rows = features(300, 24)
    y = torch.nn.functional.one_hot(rows.y, CLASSES).double()
    s = torch.ones(len(y), dtype=torch.float64)
    z = rows.x.double()

    def is_equal() -> bool:
        total = centered(add_up(rows.x, y, s))
        details = z - z.mean(0)
        return torch.allclose(total.a, details.T @ details, rtol=0, atol=1e-8)

    return Race(lambda: z.T @ z, lambda: add_up(rows.x, y, s), is_equal)


ENTRY = Entry(
    "closed-form-totals",
    "torch's z.T @ z in float64, rows converted before",
    bar=0.6,
    compared="centered products: 1e-8",
    prepare=prepare,
)
