"""Measure the cost of a closed-form cycle in a simulation by number of sites.

The same 60,000 examples of MNIST are split over 10, 30, ... 1,000 sites. `FALLOW_DATA=DATA
python -m bench.sites [SITES ...] [--filters N]` prints a row for each number of sites: CPU
seconds of the run in a separate process, and its peak memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence

from rich.console import Console

import fallow as fl
from bench.memory import read_memory

SITES = (10, 30, 100, 300, 1000)
FILTERS = 8  # of 5 x 5 pixels, on a grid of 4 x 4: 128 features


def measure_run(sites: int, filters: int) -> tuple[float, float, float]:
    """Return CPU seconds, peak memory in GB and final accuracy of a run of one query."""
    began = time.process_time()
    run = fl.run(
        "mnist",
        partition=fl.IID(),
        sites=sites,
        strategy="random",
        encoder=fl.Convolution(filters=filters),
        training="closed-form:unlabeled=off",
        initial=0.05,
        budget=0.05,
        cycles=1,
        progress=False,
    )
    seconds = time.process_time() - began
    peak = read_memory("VmHWM") / 1000
    return seconds, peak, float(run.records["accuracy"].iloc[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.sites", description=__doc__)
    parser.add_argument("sites", nargs="*", type=int, default=SITES)
    parser.add_argument("--filters", type=int, default=FILTERS)
    options = parser.parse_args(arguments)
    console = Console()
    console.print("| sites | CPU seconds | memory, GB | accuracy |")
    console.print("|---:|---:|---:|---:|")
    # the peak is measured per process
    context = multiprocessing.get_context("spawn")
    for sites in options.sites:
        with context.Pool(1) as pool:
            sizes = (sites, options.filters)
            seconds, peak, accuracy = pool.apply(measure_run, sizes)
        console.print(f"| {sites:,} | {seconds:.1f} | {peak:.2f} | {100 * accuracy:.2f} |")


if __name__ == "__main__":
    main()
