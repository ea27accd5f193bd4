"""`python -m bench [NAME ...]`: run benchmarks and write ``bench/results.json``.

A row is printed and saved when its benchmark is done, so an interrupted run keeps the rows so
far. Benchmarks whose data or packages are missing are skipped with the reason.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import torch

from bench.timing import Entry, Result, SkippedError

RACES: Mapping[str, str] = {
    "linear-27": "local_training",
    "linear-27-numpy": "local_training",
    "linear-379": "local_training",
    "linear-379-numpy": "local_training",
    "fedavg-mlp-numpy": "federated",
    "fedavg-mlp": "federated",
    "fedavg-linear-numpy": "federated",
    "fedavg-linear": "federated",
    "fedavg-cnn": "federated",
    "lenet": "local_training",
    "resnet8": "local_training",
    "k-center": "selection",
    "max-herding": "selection",
    "badge": "selection",
    "k-means": "selection",
    "bait": "bait",
    "feal": "neighbors",
    "ifal": "neighbors",
    "leverage": "leverage",
    "ggc": "ggc",
    "closed-form-totals": "closed_form",
    "closed-form-left-out": "closed_form",
    "closed-form-classes": "closed_form",
    "closed-form-cycle": "closed_form",
    "boosted-trees": "closed_form",
    "convolution": "encoders",
    "fourier": "encoders",
    "hashed-text": "encoders",
    "own-table": "own_table",
    "own-table-polars": "own_table",
    "own-table-parquet": "own_table",
    "pictures": "pictures",
    "png-files": "png_files",
    "regression-queries": "regression",
    "start-of-runs": "processes",
    "study-two-processes": "processes",
    "labeling-page": "labeling_page",
    "flower": "transports",
    "fedavg-flower": "flower_simulation",
}
"""Module of each benchmark, in the order in which they run."""
RESULTS = Path(__file__).with_name("results.json")
ROW = "{:20} {:>10} {:>10} {:>8} {:>6}  {:18}  {}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all outputs are equal, else 1. Missed speed targets do not count."""
    options = _options(arguments)
    torch.set_num_threads(1)
    names = options.names or list(RACES)
    end = time.monotonic() + 60 * options.minutes
    results = []
    missed = []
    code = 0
    header = ("race", "theirs (s)", "ours (s)", "ratio", "bar", "target", "theirs")
    print(ROW.format(*header), flush=True)
    for name in names:
        try:
            if time.monotonic() > end:
                raise SkippedError(f"{options.minutes:g} minutes are over (--minutes)")
            result = entry(name).run(options.quick)
        except SkippedError as reason:
            print(f"{name:20} skipped: {reason}", flush=True)
            continue
        except ModuleNotFoundError as error:
            print(f"{name:20} skipped: {error.name} is not installed", flush=True)
            continue
        print(row(result), flush=True)
        results.append(result)
        if not result.outputs_equal:
            code = 1
        if not options.quick:
            write(results, RESULTS)
            missed += [f"{name}: {miss}" for miss in result.misses]
    print(f"{len(results)} of {len(names)} benchmarks ran.", *missed, sep="\n  missed: ")
    return code


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser("python -m bench", description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RACES)}")
    parser.add_argument(
        "--quick", action="store_true", help="tiny and once: times mean nothing"
    )
    parser.add_argument(
        "--minutes", type=float, default=60, help="start no benchmark later than this"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in RACES]:
        parser.error(f"there is no race {unknown[0]!r}; choose from {', '.join(RACES)}")
    return options


def entry(name: str) -> Entry:
    """Return the benchmark called ``name``, e.g. ``"linear-27"``."""
    entries: Sequence[Entry] = import_module(f"bench.{RACES[name]}").ENTRIES
    return next(values for values in entries if values.name == name)


def row(result: Result) -> str:
    """Format the seconds of both sides, their ratio and the target."""
    target = "met"
    if result.misses:
        target = f"MISSED: {result.misses[0]}"
    return ROW.format(
        result.name,
        f"{result.reference_seconds.median:.3f}",
        f"{result.seconds.median:.3f}",
        f"{result.ratio:.2f}",
        f"{result.bar:g}",
        target,
        result.reference,
    )


def write(results: Sequence[Result], path: Path) -> None:
    """Write results to the file and keep those of other benchmarks."""
    known = {}
    if path.exists():
        for saved in json.loads(path.read_text()):
            known[saved["name"]] = saved
    for result in results:
        known[result.name] = result.to_dict()
    rows = [known[name] for name in RACES if name in known]
    path.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
