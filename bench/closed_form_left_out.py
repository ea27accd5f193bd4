"""Leave-one-out predictions of 8,000 examples for 13 penalties against one closed-form fit.

The fit includes the matrix products. A target of 0.5 is twice its time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bench.closed_form import CLASSES, features
from bench.timing import Entry, Race
from fallow.training.parts.ridge import (
    PENALTIES,
    LinearHead,
    add_up,
    centered,
    decompose,
    head_of,
    leave_one_out,
    losses,
)


def prepare(is_quick: bool) -> Race:
    rows = features(8000, 1024)
    if is_quick:
        rows = features(200, 24)
    y = torch.nn.functional.one_hot(rows.y, CLASSES).double()
    s = torch.ones(len(y), dtype=torch.float64)
    total = centered(add_up(rows.x, y, s))
    path = decompose(total)
    size = len(path.z)
    grid = PENALTIES

    def solve() -> LinearHead:
        return head_of(decompose(centered(add_up(rows.x, y, s))), grid[0])

    def leave_out() -> dict[str, Tensor]:
        return losses(path, rows.x, y, s, grid, is_class=True)

    def is_refitted() -> bool:
        """Check the first example's outputs against a classifier fitted without it."""
        refitted = next(leave_one_out(path, rows.x, y, s, [grid[6]])).outputs[0]
        z = rows.x[1:].double()
        mean = z.mean(0)
        shifted = z - mean
        ridge = grid[6] * len(y) * torch.eye(size, dtype=torch.float64)
        weight = torch.linalg.solve(
            shifted.T @ shifted + ridge, shifted.T @ (y[1:] - y[1:].mean(0))
        )
        expected = y[1:].mean(0) + (rows.x[0].double() - mean) @ weight
        return torch.allclose(refitted, expected, rtol=0, atol=1e-9)

    return Race(solve, leave_out, is_refitted)


ENTRY = Entry(
    "closed-form-left-out",
    "products of the rows, one decomposition and one head of 1,024 features in float64",
    bar=0.5,
    compared="outputs of a row left out with refitting: 1e-9",
    prepare=prepare,
)
