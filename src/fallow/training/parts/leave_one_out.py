"""Suspicious labels, by exact leave-one-out predictions of a closed-form model.

The model minimizes Q = Σ s |y - W'z - b|² + λ n |W|² (`fallow.training.parts.ridge`).  Leaving out
one example changes its residual to (y - f) / (1 - h), where f is the fitted output and h the
leverage, with λ n and the weights of the other examples fixed.

Notation: z (n, D) features, y (n, C) one-hot classes or (n, 1) targets, s (n,) weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fallow.training.parts.closed_form import LabeledRows
from fallow.training.parts.ridge import (
    LinearHead,
    Path,
    add_up,
    centered,
    leave_one_out,
    solve_one,
    sum_features,
)

FEWEST = 3
"""Minimum number of examples, so that a variance can be estimated without one of them."""


class LeftOut(NamedTuple):
    """Outputs for each example without the example itself.

    head              solution with all examples
    outputs (n, C)    leave-one-out outputs
    away (n, C)       leave-one-out residuals y - outputs, externally studentized
    """

    head: LinearHead
    outputs: Tensor
    away: Tensor


def leave_each_out(z: Tensor, y: Tensor, s: Tensor, penalty: float) -> LeftOut:
    """Solve with one λ, and leave out each of at least `FEWEST` examples.

    Notes
    -----
    Ridge regression is least squares with D further observations, 0 for each weight.  Hence the
    n + D observations have n - 1 degrees of freedom, and leaving out an example decreases Q by
    s e² (1 - h), e being its leave-one-out residual.  The studentized residual is
    e √(s (1 - h)) / σ, where σ² is the remaining Q divided by n - 2.

    >>> z = torch.tensor([[0.0], [1.0], [2.0]])
    >>> y = torch.tensor([[0.0], [1.0], [9.0]])
    >>> leave_each_out(z, y, torch.ones(3), 1e-12).outputs.round(
    ...     decimals=4
    ... ).flatten().tolist()
    [-7.0, 4.5, 2.0]
    """
    s = s.double()
    center = sum_features(z, s) / s.sum()  # avoids cancellation
    total = centered(add_up(z, y, s, center), center)
    solved = solve_one(total, penalty)
    head = solved.head()

    blocks = list(solved.leave_one_out(z, y, s))
    outputs = torch.cat([block[1] for block in blocks])
    left = torch.cat([block[2] for block in blocks])  # 1 - h, (n,)
    residuals = y.double() - outputs

    squares = (s * left)[:, None] * residuals.square()  # decrease of Q
    whole = (squares * left[:, None]).sum(
        0
    ) + penalty * total.mass * head.weight.square().sum(0)
    variance = (whole - squares).clamp_min(0) / (len(s) - 2)
    away = residuals * (s * left).sqrt()[:, None] / variance.sqrt()
    return LeftOut(head, outputs, torch.nan_to_num(away, nan=0.0, posinf=torch.inf))


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the output of the labeled class minus the largest other one, (n,).

    >>> margins(torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]]), torch.tensor([0, 2]))
    tensor([ 0.5000, -0.6000])
    """
    at = labels[:, None]
    others = outputs.scatter(1, at, -torch.inf)
    return outputs.gather(1, at).squeeze(1) - others.amax(1)


class Suspicious(NamedTuple):
    """Suspicious labels of a site, the most suspicious first.

    at (k,)           positions among its labeled examples
    predicted (k,)    leave-one-out predictions: classes, or numbers as models see them
    """

    at: Tensor
    predicted: Tensor


def find_suspicious(
    rows: LabeledRows, path: Path, penalty: float, *, is_class: bool
) -> Suspicious:
    """Rank the labels of one site by the solution of all sites, in the order of `leave_each_out`.

    These are the labels of classes that the prediction contradicts, and all numbers.  The studentized
    residual increases with s e² (1 - h), so its order needs no variance over all sites.
    """
    blocks = list(leave_one_out(path, rows.z, rows.y, rows.s, [penalty]))
    outputs = torch.cat([block.outputs for block in blocks])
    y = torch.cat([block.y for block in blocks])
    if is_class:
        scores = margins(outputs, y.argmax(1))
        at = scores.argsort(stable=True)
        at = at[scores[at] < 0]
        return Suspicious(at, outputs.argmax(1)[at].double())
    scores = torch.cat([block.s * block.left for block in blocks])
    scores = scores * (y - outputs).square().squeeze(1)
    at = scores.argsort(stable=True, descending=True)
    return Suspicious(at, outputs.squeeze(1)[at])
