"""`python -m bench.bf16`: accuracy of ResNet-8 in bfloat16 and float32 on the CPU.

Four sites of different sizes hold digits. A tenth of the examples is labeled at first, and
random sampling queries another tenth. Seeds are paired. Writes ``bench/bf16.json``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Literal

import torch
from rich.console import Console

import fallow as fl
from bench.timing import describe_machine

SEEDS = 10
RESULTS = Path(__file__).with_name("bf16.json")
Precision = Literal["float32", "bf16"]


def measure_run(precision: Precision, seed: int) -> tuple[float, float]:
    """Return the final accuracy in percent and the CPU seconds of a run."""
    began = time.process_time()
    run = fl.run(
        "digits",
        partition=fl.Dirichlet(alpha=0.5),
        sites=4,
        strategy="random",
        training="fedavg",
        model="resnet8",
        device="cpu",
        precision=precision,
        initial=0.1,
        budget=0.1,
        cycles=1,
        rounds=10,
        seed=seed,
        progress=False,
    )
    accuracy = float(run.records["accuracy"].iloc[-1])
    return 100 * accuracy, time.process_time() - began


def main() -> None:
    torch.set_num_threads(1)
    machine = describe_machine()
    lines = []
    for seed in range(SEEDS):
        line: dict[str, float] = {"seed": seed}
        precisions: tuple[Precision, ...] = ("float32", "bf16")
        for precision in precisions:
            accuracy, seconds = measure_run(precision, seed)
            line[precision] = accuracy
            line[f"{precision}_seconds"] = seconds
        lines.append(line)
        RESULTS.write_text(
            json.dumps({"machine": machine, "lines": lines}, indent=1) + "\n"
        )
        Console().print(line)
    differences = [line["bf16"] - line["float32"] for line in lines]
    Console().print(
        f"bf16 less float32: {mean(differences):.2f} ± {stdev(differences):.2f}"
    )


if __name__ == "__main__":
    main()
