"""Measure the expected calibration error of closed-form classifiers.

Probabilities of test examples are computed with the temperature selected by leave-one-out,
and without one.

`python -m bench.calibration CONFIG ... [--seeds N]` prints a line for each configuration.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import fmean, stdev

import torch
from rich.console import Console
from torch import Tensor

import fallow as fl
from fallow.experiment.rows import open_data

BINS = 15


def calibration_error(probabilities: Tensor, y: Tensor) -> float:
    """Return the expected calibration error over 15 confidence bins of equal width.

    probabilities: (n, C), y: (n,) class ids.  Source: Guo et al., 2017.

    >>> sure = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> calibration_error(sure, torch.tensor([0, 1]))
    0.5
    """
    confidence, guess = probabilities.max(1)
    is_right = (guess == y).double()
    bins = (confidence * BINS).long().clamp_max(BINS - 1)
    error = 0.0
    for item in sorted(set(bins.tolist())):
        inside = bins == item
        gap = is_right[inside].mean() - confidence[inside].double().mean()
        error += float(gap.abs()) * float(inside.double().mean())
    return error


def errors_of(config: str, strategy: str, seed: int) -> tuple[float, float]:
    """Return the calibration error with the selected temperature and with T = 1."""
    run = fl.run(
        config=config,
        strategy=strategy,
        training="closed-form:unlabeled=off",
        seed=seed,
        progress=False,
    )
    test = open_data(run.config, seed)
    chosen = torch.from_numpy(run.predict_proba(test.x_test))
    temperature = float(run.records["temperature"].iloc[-1])
    plain = (chosen.clamp_min(1e-300).log() / temperature).softmax(1)
    return calibration_error(chosen, test.y_test), calibration_error(plain, test.y_test)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.calibration", description=__doc__)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--strategy", default="margin")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for config in options.configs:
        pairs = [errors_of(config, options.strategy, seed) for seed in range(options.seeds)]
        chosen = [pair[0] for pair in pairs]
        plain = [pair[1] for pair in pairs]
        Console().print(
            f"{config}, {options.strategy}: {fmean(chosen):.4f} ± {stdev(chosen):.4f} with T, "
            f"{fmean(plain):.4f} ± {stdev(plain):.4f} with T = 1, {options.seeds} seeds"
        )


if __name__ == "__main__":
    main()
