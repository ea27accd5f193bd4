"""Weights of labels with unequal selection probabilities, so that a mean represents the pool.

They are those of the levelled unbiased risk estimator of Farquhar, Gal and Rainforth, On
Statistical Bias in Active Learning (2021), Eq. 11.
"""

from __future__ import annotations

import torch
from torch import Tensor

EVEN = 0.1  # share of the probability that is uniform, so that every example may be drawn


def draw_by_softmax(
    scores: Tensor, n: int, temperature: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw ``n`` positions in sequence, and return the probability of each when it was drawn.

    scores: (m,).  The probability of a remaining example is softmax(scores / temperature), mixed
    with a tenth of the uniform distribution.  Examples without a finite score are last.  Raises
    ValueError if no score is finite.
    """
    left = torch.ones(len(scores), dtype=torch.bool)
    good = scores.isfinite()
    if len(scores) and not bool(good.any()):
        raise ValueError(
            f"all {len(scores)} scores are NaN or infinite: the model has diverged; lower the "
            "learning rate or check the examples"
        )
    picks = []
    chances = []
    for _ in range(min(n, len(scores))):
        among = left & good
        if not bool(among.any()):
            among = left
        sharp = (scores.double().nan_to_num() / temperature).masked_fill(~among, -torch.inf)
        p = (1 - EVEN) * sharp.softmax(0) + EVEN * among / among.sum()
        j = int(torch.multinomial(p, 1, generator=generator))
        left[j] = False
        picks.append(j)
        chances.append(min(float(p[j]), 1.0))  # the last row's may be above by rounding
    chance = torch.tensor(chances, dtype=torch.float64)
    return torch.tensor(picks, dtype=torch.int64), chance


def level_weights(chance: Tensor, pool: int) -> Tensor:
    """Return the weights v_i, (M,), of examples drawn without replacement from a pool of N.

    chance: (M,) π_i, the probability of the i-th example among the remaining ones.  v_i = 1 + (N -
    M) / (N - i) · (1 / ((N - i + 1) π_i) - 1); uniformly drawn examples have weight 1.  The mean of
    v_i times the i-th loss is an unbiased estimate of the mean loss over the pool.

    >>> level_weights(torch.tensor([0.5, 0.25]), 4)
    tensor([0.6667, 1.3333])
    """
    m = len(chance)
    i = torch.arange(1, m + 1)
    rest = (pool - i).clamp_min(1)  # of the last row of a pool 0 / 0: it weighs 1
    even = 1 / ((pool - i + 1) * chance)  # 1 where the i-th row was drawn evenly
    return 1 + (pool - m) / rest * (even - 1)
