"""Second reference of linear models: a minimal NumPy loop over the sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fallow.core.training_config import TrainingConfig
from fallow.engine import Job

Weights = npt.NDArray[Any]


def numpy_loop(
    start: Weights, training_config: TrainingConfig, jobs: list[Job]
) -> list[Weights]:
    """Return each site's weights after Adam on the squared error.

    start: (d + 1,), bias last.
    """
    b1, b2 = training_config.optimizer.betas
    trained = []
    for job in jobs:
        ones = np.ones((len(job.y), 1), job.x.numpy().dtype)
        x = np.hstack([job.x.numpy(), ones])
        y = job.y.numpy()
        w = start.copy()
        m1 = np.zeros_like(w)
        m2 = np.zeros_like(w)
        t = 0
        for epoch in range(training_config.epochs):
            draw = job.streams("batches", epoch)
            order = torch.randperm(len(y), generator=draw).numpy()
            for first in range(0, len(y), training_config.examples_per_step):
                at = order[first : first + training_config.examples_per_step]
                rows = x[at]
                g = (rows @ w - y[at]) @ rows * (2 / len(at))
                t += 1
                m1 += (1 - b1) * (g - m1)
                m2 += (1 - b2) * (g * g - m2)
                root = np.sqrt(m2 / (1 - b2**t)) + training_config.optimizer.eps
                w -= training_config.optimizer.learning_rate / (1 - b1**t) * m1 / root
        trained.append(w)
    return trained
