"""FALE, Theorem 4.1 and Lemmas A.2 to A.4: number of draws and promised error.

The paper states orders of magnitude.  The factors in front of them are parameters here.

    python -m fallow_papers.fale.complexity        measured and promised excess error, by draws
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

PROBABILITY = 1 / 3
"""Probability of the bound of `draws_for_relative_error` (Lemma A.4)."""


def draws_for_embedding(columns: int, delta: float, factor: float = 1.0) -> int:
    """Return the number of draws for a constant factor, with probability 1 - δ (Lemma A.2).

    With scores τ of sum d and β = factor · log(d / δ), these are β d draws.

    >>> draws_for_embedding(10, delta=0.01)
    70
    """
    _check(columns, delta=delta)
    return math.ceil(factor * columns * math.log(columns / delta))


def constant_factor(gamma: float, delta: float) -> float:
    """Return the bound on the ratio of residual norms, 64 (3 + γ) / √δ (Lemma A.3).

    γ is the relative error of the solution on the drawn examples; 0 for an exact one.

    >>> round(constant_factor(gamma=0.0, delta=0.01))
    1920
    """
    _check(1, delta=delta)
    if gamma < 0:
        raise ValueError(f"gamma is {gamma}; it must be 0 or more")
    return 64 * (3 + gamma) / math.sqrt(delta)


def draws_for_relative_error(columns: int, epsilon: float, factor: float = 1.0) -> int:
    """Return the number of draws for a squared error of 1 + ε times the least (Lemma A.4).

    It is factor · (d log d + d / ε), and the bound has probability 1/3 or more.

    >>> draws_for_relative_error(10, epsilon=0.1)
    124
    """
    _check(columns, epsilon=epsilon)
    return math.ceil(factor * columns * (math.log(columns) + 1 / epsilon))


def promised_error(columns: int, draws: int, factor: float = 1.0) -> float:
    """Return the ε of a number of draws; infinite if no ε of at most 1 is promised.

    >>> round(promised_error(10, draws=124), 2)
    0.1
    """
    rest = draws / factor - columns * math.log(columns)
    if rest < columns:
        return math.inf
    return columns / rest


def measure_errors(x: Tensor, y: Tensor, draws: int, generator: Generator) -> float:
    """Return the excess squared error of weighted least squares on drawn examples.

    Examples are drawn with replacement by leverage score and have the weights of Definition 3.2.

    Parameters
    ----------
    x, y : Tensor
        Examples (n, d) of full column rank, and targets (n,).
    draws : int
        Number of draws.
    generator : Generator
        Source of the draws.

    Returns
    -------
    float
        ||X θ_g - y||² / ||X θ* - y||² - 1.
    """
    basis, _ = torch.linalg.qr(x)
    chance = basis.square().sum(1)
    chance = chance / chance.sum()  # (n,)
    rows = torch.multinomial(chance, draws, replacement=True, generator=generator)
    weight = 1 / (draws * chance[rows]).sqrt()  # (draws,)
    drawn = torch.linalg.lstsq(weight[:, None] * x[rows], (weight * y[rows])[:, None])
    best = torch.linalg.lstsq(x, y[:, None])
    error = (x @ drawn.solution - y[:, None]).square().sum()
    least = (x @ best.solution - y[:, None]).square().sum()
    return float(error / least) - 1


def _check(columns: int, **shares: float) -> None:
    """Raise ValueError for a number of columns below 1, or a share outside (0, 1]."""
    if columns < 1:
        raise ValueError(f"the number of columns is {columns}; it must be 1 or more")
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ValueError(f"{name} is {share}; it must be above 0 and at most 1")


def main() -> None:
    """Print measured and promised errors of heavy-tailed examples."""
    columns, repetitions = 10, 200
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, columns, generator=generator, dtype=torch.float64)
    x = x * torch.rand(5000, 1, generator=generator, dtype=torch.float64).pow(-0.5)
    y = x.sum(1) + torch.randn(5000, generator=generator, dtype=torch.float64)
    print("draws  median  third  promised")
    for draws in (40, 75, 150, 300, 600, 1200):
        errors = torch.tensor(
            [measure_errors(x, y, draws, generator) for _ in range(repetitions)]
        )
        middle, third = errors.quantile(torch.tensor([0.5, PROBABILITY])).tolist()
        promised = promised_error(columns, draws)
        print(f"{draws:5}  {middle:6.3f}  {third:5.3f}  {promised:8.3f}")


if __name__ == "__main__":
    main()
