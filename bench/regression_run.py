"""`python -m bench.regression_run`: a complete run of a baseline of active regression.

Ten sites hold 36,584 examples of 9 features, as many as the protein table has. Each of 300
queries labels 5 examples per site, 15,000 in all beyond the initial labeled set. After
every thirtieth query, ``fedavg`` trains for one round of 25 epochs (Adam 0.01, batch size
32). Writes ``bench/regression_run.json``.

`Stacked` and the plain executor, `Loop`, are compared in a shorter run with a tenth of the
queries and therefore few labels.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.timing import CPU, describe_machine
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.recipe import Recipe
from fallow.settings.spec import Spec

RECIPE = Recipe(
    name="regression-run",
    partition=Spec("target-dirichlet", {"alpha": 5.0}),
    sites=10,
    model=Spec("linear"),
    training_config=TrainingConfig((TrainingStage(25),), 32, Optimizer("adam", 0.01)),
    rounds=1,
    initial=36,
    budget=150,
    queries_per_cycle=30,
    cycles=10,
    score_rounds=1,
    dtype="float64",
    bounds=(),
)
SHORT = replace(RECIPE, cycles=1)
TINY = replace(RECIPE, initial=4, budget=4, queries_per_cycle=2, cycles=1)
RESULTS = Path(__file__).with_name("regression_run.json")


def write_rows(path: Path, n: int) -> None:
    """Write a .npz table of n training examples and a quarter as many test examples."""
    x = torch.randn(n + n // 4, 9, generator=stream(0, "bench table"))
    noise = torch.randn(len(x), generator=stream(0, "bench noise"))
    y = (x @ torch.linspace(-1, 1, 9) + torch.sin(2 * x[:, 0]) + noise).numpy()
    np.savez(path, x=x[:n].numpy(), y=y[:n], x_test=x[n:].numpy(), y_test=y[n:])


def seconds(
    recipe: Recipe, table: Path, strategy: str, executor: Literal["loop", "stacked"]
) -> tuple[float, float]:
    """Return the CPU seconds of a run with reading, and its final mean squared error."""
    chosen = replace(recipe, data=str(table), strategy=Spec(strategy), executor=executor)
    started = CPU()
    journal = EventLog()
    records = ExperimentRun(build_environment(chosen, 0, journal), journal).go()
    mse = records[-1]["mse"]
    assert mse is not None  # the table has regression targets
    return CPU() - started, mse


def rows(full: Recipe, short: Recipe, n: int) -> list[dict[str, Any]]:
    """Return one row per query, for n examples. Raise unless both executors agree."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.npz"
        write_rows(table, n)
        for strategy in ("random", "core-set"):
            ours, error = seconds(full, table, strategy, "stacked")
            brief, same = seconds(short, table, strategy, "stacked")
            theirs, other = seconds(short, table, strategy, "loop")
            if abs(same - other) > 1e-8:
                raise RuntimeError(
                    f"under {strategy} the executors end at {same} and {other}"
                )
            lines.append(
                {
                    "strategy": strategy,
                    "seconds": ours,
                    "mse": error,
                    "short": brief,
                    "short_by_loop": theirs,
                    "ratio": theirs / brief,
                }
            )
    return lines


def main(arguments: Sequence[str] = ()) -> int:
    torch.set_num_threads(1)
    machine = describe_machine()
    lines = rows(RECIPE, SHORT, 36_584)
    shown = Table("strategy", "seconds", "a tenth", "a tenth by loop", "ratio")
    for row in lines:
        numbers = [row[name] for name in ("seconds", "short", "short_by_loop", "ratio")]
        shown.add_row(row["strategy"], *(f"{number:.1f}" for number in numbers))
    Console().print(shown)
    protocol = "300 queries of 5 rows at each of ten sites, 11 phases of 25 epochs; CPU seconds, once"
    content = {"about": protocol, "machine": machine, "rows": lines}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
