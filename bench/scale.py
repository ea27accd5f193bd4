"""Measure the cost of a simulation by number of sites, rounds and examples.

`python -m bench.scale sites`: a run on 10 to 10,000 sites, each in a separate process.
`python -m bench.scale rounds`: 1,000 rounds of 1,000 sites, reported every 100 rounds.
`python -m bench.scale cycles`: 1,000 closed-form cycles of one label per site, at ten
sites.
`python -m bench.scale site`: closed-form replies of one site with all examples labeled.
`python -m bench.scale rows`: aggregates of 10^5 to 10^7 examples of 768 float16 features at
  sites of 8,192 examples; the file takes 15 GB and is deleted.
`python -m bench.scale table`: a query among 10^5 to 10^7 examples of a table with 16 columns, by
  `fl.select` and in a closed-form run of one cycle at ten sites.
`python -m bench.scale draw`: write plots of the measurements to a folder.

Each command writes its part of ``bench/scale.json`` line by line, so an interrupted run
keeps its results. The network has 8 inputs, 8 hidden units and 4 classes. Sites have 5
examples and train on 2 to 4 labels, so the time is that of the simulation, not of
arithmetic.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from rich.console import Console
from torch import Tensor

import fallow as fl
from bench.memory import read_memory
from bench.timing import describe_machine
from fallow.core.events import Event
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import Optimizer, TrainingConfig, TrainingStage
from fallow.data.dataset import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import environment_of
from fallow.models import build_model
from fallow.report.figures.style import STYLE, new_figure, plain_logarithm
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites import LocalSite, RunComponents
from fallow.sites.site import ENCODE
from fallow.sites.store import MemoryStore
from fallow.sites.view import SiteView
from fallow.storage.features import FeatureFile
from fallow.strategies import Random
from fallow.training import ClosedForm, FedAvg
from fallow.training.parts.closed_form import read_totals
from fallow.training.parts.ridge import add_up, decompose

RESULTS = Path(__file__).with_name("scale.json")
SITES = (10, 30, 100, 300, 1000, 3000, 10_000)
ROWS_OF_SITE = 5
COLUMNS = 8
CLASSES = 4
ROUNDS = 1000
CYCLES = 1000
FIRST = 5  # examples of a site of `cycles` beyond those that its cycles label
EVERY = 100  # rounds, or cycles, between two lines
ROWS_OF_ONE = (10_000, 100_000, 1_000_000)  # of one site
ROWS = (100_000, 1_000_000, 10_000_000)
WIDTH = 768  # features
BLOCK = 8192  # examples of a site of `rows`
TABLE_COLUMNS = 16
TABLE_LABELS = 1000  # of a site, before the query and by it
GB = 1e9

NETWORK = ExperimentConfig(
    name="scale",
    partition=Spec("iid"),
    model=Spec("mlp", {"hidden": [8]}),
    training_config=TrainingConfig((TrainingStage(1),), 4, Optimizer(lr=0.1)),
    rounds=5,
    initial=2,
    budget=1,
    cycles=1,
    score_rounds=1,
    bounds=(),
)
SOLVED = replace(
    NETWORK,
    model=Spec("linear"),
    training=Spec("closed-form", {"unlabeled": "off"}),
    encoder=Spec("identity"),
    rounds=1,
)
METHODS = {"small network": NETWORK, "closed form": SOLVED}

Line = dict[str, float]
"""One line of a table: numbers by their names."""


def small_rows(sites: int, of_site: int = ROWS_OF_SITE, columns: int = COLUMNS) -> Dataset:
    """Return examples whose first columns determine the class, and 200 to test."""
    draw = stream(0, "bench scale")
    n = sites * of_site + 200
    y = torch.randint(CLASSES, (n,), generator=draw)
    x = torch.randn(n, columns, generator=draw)
    x[torch.arange(n), y] += 2
    return Dataset(
        name="scale",
        x=x[200:],
        y=y[200:],
        x_test=x[:200],
        y_test=y[:200],
        classes=tuple("abcd"),
    )


def memory_now() -> float:
    """Return the memory of this process in GB."""
    return read_memory("VmRSS") / 1000


def memory_at_most() -> float:
    """Return the peak memory of this process in GB."""
    return read_memory("VmHWM") / 1000


# -- sites -----------------------------------------------------------------------------


def measure_sites(method: str, sites: int) -> Line:
    """Run two phases and one query of one example per site, including the event log."""
    torch.set_num_threads(1)
    rows = small_rows(sites)
    config = replace(METHODS[method], sites=sites)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        event_log = EventLog(Path(folder) / "event_log.sqlite")
        records = ExperimentRun(environment_of(config, 0, rows, event_log), event_log).go()
        event_log.close()
    seconds = time.process_time() - began
    return {
        "sites": sites,
        "seconds": seconds,
        "gb": memory_at_most(),
        "accuracy": float(records[-1]["accuracy"] or 0.0),
    }


def grow_sites(console: Console, counts: Sequence[int]) -> None:
    """Run both methods on more and more sites."""
    context = multiprocessing.get_context("spawn")
    for method in METHODS:
        lines = []
        for sites in counts:
            with context.Pool(1) as pool:  # the peak is measured per process
                lines.append(pool.apply(measure_sites, (method, sites)))
            keep("sites", method, lines)
            console.print(method, lines[-1])


# -- rounds ----------------------------------------------------------------------------


def grow_rounds(console: Console, method: str, sites: int, rounds: int) -> None:
    """Run one phase of many rounds and write a line after each hundred."""
    config = replace(METHODS[method], sites=sites, rounds=rounds, cycles=0, initial=4)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "event_log.sqlite"
        event_log = EventLog(path)
        began = time.process_time()

        def tell(event: Event) -> None:
            nonlocal began
            if event["event"] != "round" or (event["round"] + 1) % EVERY:
                return
            now = time.process_time()
            files = Path(folder).glob("event_log.sqlite*")
            line = {
                "rounds": event["round"] + 1,
                "seconds": now - began,  # of the last hundred rounds
                "gb": memory_now(),
                "disk_gb": sum(file.stat().st_size for file in files) / GB,
            }
            lines.append(line)
            keep("rounds", f"{method}, {sites} sites", lines)
            console.print(line)
            began = now

        simulation = environment_of(config, 0, small_rows(sites), event_log)
        records = ExperimentRun(simulation, event_log, notify=tell).go()
        event_log.close()
    console.print(f"accuracy {records[-1]['accuracy']}")


# -- cycles ----------------------------------------------------------------------------


def grow_cycles(console: Console, method: str, sites: int, cycles: int) -> None:
    """Run many cycles of one label per site, including the event log.

    A line is written after each hundred cycles.
    """
    config = replace(METHODS[method], sites=sites, cycles=cycles)
    rows = small_rows(sites, of_site=cycles + FIRST)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "event_log.sqlite"
        event_log = EventLog(path)
        began = time.process_time()

        def tell(event: Event) -> None:
            nonlocal began
            if event["event"] != "scored" or event["cycle"] == 0 or event["cycle"] % EVERY:
                return
            now = time.process_time()
            files = Path(folder).glob("event_log.sqlite*")
            line = {
                "cycles": event["cycle"],
                "seconds": now - began,  # of the last hundred cycles
                "gb": memory_now(),
                "disk_gb": sum(file.stat().st_size for file in files) / GB,
            }
            lines.append(line)
            keep("cycles", f"{method}, {sites} sites", lines)
            console.print(line)
            began = now

        records = ExperimentRun(
            environment_of(config, 0, rows, event_log), event_log, notify=tell
        ).go()
        event_log.close()
    console.print(f"accuracy {records[-1]['accuracy']}")


# -- rows ------------------------------------------------------------------------------


def write_features(path: Path, rows: int) -> FeatureFile:
    """Write uniform float16 numbers in the format of features with ``half=true``."""
    draw = np.random.default_rng(0)
    with path.open("wb") as file:
        for first in range(0, rows, BLOCK):
            n = min(BLOCK, rows - first)
            block = draw.random((n, WIDTH), dtype=np.float32) - np.float32(0.5)
            file.write(block.astype(np.float16).tobytes())
    return FeatureFile(path, rows, WIDTH, is_half=True)


def sum_of_sites(features: FeatureFile) -> dict[str, Tensor]:
    """Aggregate all examples, one block of examples per site."""
    total: dict[str, Tensor] = {}
    for at in torch.split(torch.arange(len(features)), BLOCK):
        y = torch.nn.functional.one_hot(at % CLASSES, CLASSES)
        weight = torch.ones(len(at), dtype=torch.float64)
        for name, contribution in add_up(features.take(at), y, weight).items():
            if name in total:
                total[name] += contribution
            else:
                total[name] = contribution
    return total


def measure_rows(folder: str, rows: int) -> Line:
    """Return the CPU seconds and peak memory of aggregating these examples."""
    torch.set_num_threads(1)
    path = Path(folder) / "features.bin"
    features = write_features(path, rows)
    before = memory_at_most()
    try:
        began = time.process_time()
        total = sum_of_sites(features)
        seconds = time.process_time() - began
    finally:
        path.unlink()
    # uniform numbers between -1/2 and 1/2 have a mean square of 1/12
    mean_square = float(total["products"][0]) / float(total["n"])
    return {
        "rows": rows,
        "seconds": seconds,
        "gb": memory_at_most(),
        "gb_before": before,
        "mean_square": mean_square,
    }


def grow_rows(console: Console, counts: Sequence[int], folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    lines = []
    with tempfile.TemporaryDirectory(dir=folder) as path:
        for rows in counts:
            with context.Pool(1) as pool:
                lines.append(pool.apply(measure_rows, (path, rows)))
            keep("rows", f"{WIDTH} features", lines)
            console.print(lines[-1])


# -- rows of one site ------------------------------------------------------------------


def labeled_site(features: FeatureFile) -> LocalSite:
    """Return a site with all examples labeled and its features in a file.

    Labels are set at once, since the time of a label store is not measured here.
    """
    network = build_model("linear", (WIDTH,), CLASSES, stream(0, "init"))
    layout = Layout.of(network)
    fresh = layout.flatten(network)
    methods: Methods = {
        "query": Random(),
        "training": ClosedForm(unlabeled="off"),
        "plain": FedAvg(),
    }
    parts = RunComponents(
        network,
        layout,
        methods,
        CLASSES,
        0,
        lambda _: fresh,
        noise="seeded",
        encode=lambda site, x, state: (features, None),
    )
    n = len(features)
    site = LocalSite("site", torch.zeros(n, 1), parts, MemoryStore(), {ENCODE: {}})
    site.bought[:] = True
    site.values = (torch.arange(n) % CLASSES).double()
    return site


def measure_site(folder: str, rows: int) -> Line:
    """Return CPU seconds and peak memory of a contribution and of leave-one-out."""
    torch.set_num_threads(1)
    path = Path(folder) / "features.bin"
    site = labeled_site(write_features(path, rows))
    before = memory_at_most()
    view = SiteView(site, 0)
    method = ClosedForm(unlabeled="off")
    try:
        began = time.process_time()
        reply = method.totals(view)
        totals_done = time.process_time()
        total = read_totals({name: torch.as_tensor(part) for name, part in reply.items()})
        path_of_heads = decompose(total.totals)
        solved = time.process_time()
        lost = method.left_out(view, **path_of_heads._asdict())
        left_out_done = time.process_time()
    finally:
        path.unlink()
    return {
        "rows": rows,
        "seconds": totals_done - began,
        "left_out": left_out_done - solved,
        "gb": memory_at_most(),
        "gb_before": before,
        "squared": float(torch.as_tensor(lost["squared"])[0]) / rows,
    }


def grow_site(console: Console, counts: Sequence[int], folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    lines = []
    with tempfile.TemporaryDirectory(dir=folder) as path:
        for rows in counts:
            with context.Pool(1) as pool:
                lines.append(pool.apply(measure_site, (path, rows)))
            keep("site", f"{WIDTH} features", lines)
            console.print(lines[-1])


# -- table -----------------------------------------------------------------------------


def measure_table(rows: int) -> Line:
    """Select by margin with a fixed linear model, then in a closed-form run of one cycle."""
    torch.set_num_threads(1)
    data = small_rows(rows, of_site=1, columns=TABLE_COLUMNS)
    model = build_model("linear", (TABLE_COLUMNS,), CLASSES, stream(0, "init"))
    before = memory_at_most()
    began = time.process_time()
    fl.select(data.x, fl.Margin(), n=TABLE_LABELS, model=model)
    selected = time.process_time()
    gb_select = memory_at_most()
    config = replace(
        SOLVED, sites=10, strategy=Spec("margin"), initial=TABLE_LABELS, budget=TABLE_LABELS
    )
    event_log = EventLog()
    records = ExperimentRun(environment_of(config, 0, data, event_log), event_log).go()
    return {
        "rows": rows,
        "gb_before": before,
        "select": selected - began,
        "gb_select": gb_select,
        "run": time.process_time() - selected,
        "gb_run": memory_at_most(),
        "accuracy": float(records[-1]["accuracy"] or 0.0),
    }


def grow_table(console: Console, counts: Sequence[int]) -> None:
    context = multiprocessing.get_context("spawn")
    lines = []
    for rows in counts:
        with context.Pool(1) as pool:
            lines.append(pool.apply(measure_table, (rows,)))
        keep("table", f"{TABLE_COLUMNS} columns", lines)
        console.print(lines[-1])


# -- results ---------------------------------------------------------------------------


def keep(part: str, what: str, lines: Sequence[Line]) -> None:
    """Write lines to the file and keep all other results."""
    known = {}
    if RESULTS.exists():
        known = json.loads(RESULTS.read_text())
    known.setdefault(part, {})[what] = {"machine": describe_machine(), "lines": lines}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


def read_lines(part: str) -> dict[str, list[Line]]:
    """Return the measurements of a part by method."""
    known = json.loads(RESULTS.read_text())[part]
    return {what: measured["lines"] for what, measured in known.items()}


Drawing = Callable[[Axes, dict[str, list[Line]]], None]


def draw_sites(axes: Axes, measured: dict[str, list[Line]]) -> None:
    for method, lines in measured.items():
        _draw_line(axes, lines, "sites", "seconds", method)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_logarithm(axes.xaxis)
    plain_logarithm(axes.yaxis)
    axes.set_xlabel("Sites")
    axes.set_ylabel("CPU seconds of a run")


def draw_rounds(axes: Axes, measured: dict[str, list[Line]]) -> None:
    for method, lines in measured.items():
        _draw_line(axes, lines, "rounds", "seconds", method)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Rounds")
    axes.set_ylabel("CPU seconds of the last 100 rounds")


def draw_cycles(axes: Axes, measured: dict[str, list[Line]]) -> None:
    for method, lines in measured.items():
        _draw_line(axes, lines, "cycles", "seconds", method)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Cycles")
    axes.set_ylabel("CPU seconds of the last 100 cycles")


def draw_rows(axes: Axes, measured: dict[str, list[Line]]) -> None:
    for what, lines in measured.items():
        _draw_line(axes, lines, "rows", "seconds", what)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_logarithm(axes.xaxis)
    plain_logarithm(axes.yaxis)
    axes.set_xlabel("Rows")
    axes.set_ylabel("CPU seconds of their totals")


DRAWINGS: dict[str, Drawing] = {
    "sites": draw_sites,
    "rounds": draw_rounds,
    "cycles": draw_cycles,
    "rows": draw_rows,
}


def _draw_line(axes: Axes, lines: list[Line], x: str, y: str, label: str) -> None:
    across = [line[x] for line in lines]
    up = [line[y] for line in lines]
    axes.plot(across, up, "o-", markersize=4, label=label)


@mpl.rc_context({**STYLE, "svg.hashsalt": "scale"})
def draw_all(folder: Path) -> None:
    """Plot each part that has results."""
    measured = json.loads(RESULTS.read_text())
    for part, drawing in DRAWINGS.items():
        if part not in measured:
            continue
        figure, (axes,) = new_figure(3.2)
        drawing(axes, read_lines(part))
        axes.legend(frameon=False)
        figure.savefig(folder / f"scale-{part}.svg", metadata={"Date": None})


PARTS = ("sites", "rounds", "cycles", "rows", "site", "table", "draw")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.scale", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("counts", nargs="*", type=int, help="of what the part is about")
    parser.add_argument(
        "--method", choices=tuple(METHODS), default="small network", help="of 'rounds'"
    )
    parser.add_argument("--folder", type=Path, help="of the file of rows, or of pictures")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console()
    if options.part == "sites":
        grow_sites(console, options.counts or SITES)
    elif options.part == "rounds":
        (rounds,) = options.counts or (ROUNDS,)
        grow_rounds(console, options.method, sites=1000, rounds=rounds)
    elif options.part == "cycles":
        counts = [int(count) for count in options.counts]
        cycles, sites = [*counts, *(CYCLES, 10)[len(counts) :]]
        grow_cycles(console, "closed form", sites=sites, cycles=cycles)
    elif options.part == "site":
        grow_site(console, options.counts or ROWS_OF_ONE, options.folder or Path.cwd())
    elif options.part == "table":
        grow_table(console, options.counts or ROWS)
    elif options.part == "rows":
        grow_rows(console, options.counts or ROWS, options.folder or Path.cwd())
    else:
        draw_all(options.folder or Path("studies"))


if __name__ == "__main__":
    main()
