"""Measure the training defaults of each model family on the bundled data sets.

``nice -n 19 python scripts/measure_training_defaults.py`` prints, for each model and data set, the
score of FedAvg with the default configuration and the best score of a grid of learning rates and
epochs: accuracy, or R² for numbers to predict.  Both are means over three seeds, after 10 rounds at
five skewed sites, with half of the examples labeled.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Mapping
from statistics import mean
from typing import Any

import fallow as fl

TABLES = ("iris", "wine", "breast_cancer", "diabetes")
DATA: Mapping[str, tuple[str, ...]] = {
    "linear": ("digits", *TABLES),
    "mlp": ("digits", *TABLES),
    "digits-cnn": ("digits",),
}
RATES = (0.01, 0.03, 0.1, 0.3)
EPOCHS = (2, 5)
SEEDS = range(3)
ROUNDS = 10


def main() -> None:
    """Print a table in Markdown, a row for each model and data set."""
    models = sys.argv[1:] or list(DATA)
    print("| model | data | default | best of the grid | at lr, epochs |")
    print("|---|---|---:|---:|---|")
    for model in models:
        for data in DATA[model]:
            print(_measure(model, data), flush=True)


def _measure(model: str, data: str) -> str:
    """The row of a model and a data set."""
    scores = {}
    for lr, epochs in itertools.product(RATES, EPOCHS):
        scores[lr, epochs] = _score(model, data, lr=lr, epochs=epochs)
    best = max(scores, key=lambda choice: scores[choice])
    default = _score(model, data)
    choice = f"{best[0]:g}, {best[1]}"
    cells = (model, data, f"{default:.3f}", f"{scores[best]:.3f}", choice)
    return f"| {' | '.join(cells)} |"


def _score(model: str, data: str, **settings: Any) -> float:
    """The mean score over the seeds; -inf where training diverges."""
    dataset = fl.load(data)
    partition: object = (
        fl.IID() if dataset.task == "regression" else fl.Dirichlet(alpha=0.3)
    )
    federation = fl.Federation(dataset, partition, sites=5)
    scores = []
    for seed in SEEDS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = fl.run(
                    federation,
                    "random",
                    training="fedavg",
                    model=model,
                    initial=0.5,
                    cycles=0,
                    rounds=ROUNDS,
                    score_rounds=1,
                    seed=seed,
                    progress=False,
                    **settings,
                )
        except ValueError as error:
            if "diverged" not in str(error):
                raise
            return float("-inf")
        last = run.records.iloc[-1]
        is_number = dataset.task == "regression"
        score = 1 - last["mse"] if is_number else last["accuracy"]
        scores.append(float(score))
    return mean(scores)


if __name__ == "__main__":
    main()
