"""The other reference of linear models: a loop in NumPy, site after site, as short as it gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fallow.core.plan import Plan
from fallow.engine import Job

Weights = npt.NDArray[Any]


def numpy_loop(start: Weights, plan: Plan, jobs: list[Job]) -> list[Weights]:
    """Each site's weights after Adam on the squared error.  start: (d + 1,), the bias last."""
    b1, b2 = plan.optimiser.betas
    trained = []
    for job in jobs:
        ones = np.ones((len(job.y), 1), job.x.numpy().dtype)
        x = np.hstack([job.x.numpy(), ones])
        y = job.y.numpy()
        w = start.copy()
        m1 = np.zeros_like(w)
        m2 = np.zeros_like(w)
        t = 0
        for epoch in range(plan.epochs):
            draw = job.streams("batches", epoch)
            order = torch.randperm(len(y), generator=draw).numpy()
            for first in range(0, len(y), plan.batch):
                at = order[first : first + plan.batch]
                rows = x[at]
                g = (rows @ w - y[at]) @ rows * (2 / len(at))
                t += 1
                m1 += (1 - b1) * (g - m1)
                m2 += (1 - b2) * (g * g - m2)
                root = np.sqrt(m2 / (1 - b2**t)) + plan.optimiser.eps
                w -= plan.optimiser.lr / (1 - b1**t) * m1 / root
        trained.append(w)
    return trained
