"""Compare forecasts with the scores of completed runs: studies/forecast.md.

    python scripts/measure_forecasts.py run RUNS.jsonl         # 200 runs, hours on one core
    python scripts/measure_forecasts.py measure RUNS.jsonl     # the tables, seconds
    python scripts/measure_forecasts.py again MORE.jsonl       # 60 other seeds of MNIST
    python scripts/measure_forecasts.py evaluations MORE.jsonl # errors of these estimates

Ten sites share 4,000 rows of MNIST or of Fashion-MNIST, 60 rows have a label at first and 100 more
in each of eight cycles, chosen by margin; a head in closed form on 300 Fourier features is solved
for.  Each seed is run with an evaluation set of a tenth of the labels, and without one.  The test
rows of one site, 1,000, are what a forecast may see; those of the nine others, 9,000, are the
truth.

``run`` begins where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fallow.experiment.curve import FEWEST, CurvePoint, fit_curve
from fallow.measurements.evaluation_set import deviation_of
from fallow.study.statistics import t_interval

DATA = ("mnist", "fashion_mnist")
FRACTIONS = (0.1, 0.0)
SEEDS = 50
SITES = 10
SEEN = "site-0"
"""The site whose test rows a forecast may see."""
SETTINGS: dict[str, Any] = {
    "rows": 4000,
    "test": "own",
    "initial": 6,
    "budget": 10,
    "cycles": 8,
    "encoder": "fourier:features=300",
}


AGAIN = range(100, 160)
"""Seeds that no other run has, for a second look at the evaluation sets of MNIST."""


def run_all(
    file: Path,
    seeds: Sequence[int] = range(SEEDS),
    datas: Sequence[str] = DATA,
    fractions: Sequence[float] = FRACTIONS,
) -> None:
    """Append a line for each run that the file has not."""
    import fallow as fl

    done = {tuple(run["about"]) for run in read_runs(file)}
    simulations = {data: fl.Federation(fl.load(data), "iid", sites=SITES) for data in datas}
    for seed in seeds:
        for data, simulation in simulations.items():
            for fraction in fractions:
                key = (data, fraction, seed)
                if key in done:
                    continue
                run = fl.run(
                    simulation,
                    "margin",
                    training="closed-form:unlabeled=off",
                    evaluation_fraction=fraction,
                    seed=seed,
                    progress=False,
                    **SETTINGS,
                )
                line = {"about": key, "cycles": list(read_cycles(run.records))}
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")


def read_cycles(records: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of each cycle's record that are needed here."""
    for record in records.to_dict("records"):
        per_site = record["per_site"]
        others = [score for site, score in per_site.items() if site != SEEN]
        pseudo = record["pseudo_labels"]
        evaluation = record.get("evaluation_set")
        cycle = {
            "labels": record["labeled"],
            "seen": per_site[SEEN],
            "true": sum(others) / len(others),
            "left_out": record["left_out"],
        }
        if isinstance(pseudo, dict):
            cycle["pool"] = pseudo["accuracy"]
        if isinstance(evaluation, dict):
            cycle["evaluation"] = {k: v for k, v in evaluation.items() if k != "per_site"}
        yield cycle


def read_runs(file: Path) -> list[dict[str, Any]]:
    """The runs that a file has."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# -- measuring ----------------------------------------------------------------------------------

AHEAD = (1, 2, 4)  # cycles of 100 labels
FIRST = 3  # the first cycle after which there are scores enough
SOURCES = {
    "1,000 test rows": "seen",
    "9,000 test rows": "true",
    "evaluation set of 10 %": "evaluation",
}
MARGIN = 0.25  # of the labels that a target takes in all


@dataclass
class ForecastErrors:
    """Forecasts and actual values: each list has one entry per forecast."""

    inside: list[bool] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    away: list[float] = field(default_factory=list)
    in_labels: list[bool] = field(default_factory=list)
    near: list[bool] = field(default_factory=list)

    def row(self) -> str:
        """The cells of a table, in percent and points."""
        n = len(self.inside)
        error = 1.96 * math.sqrt(
            max(fmean(self.inside) * (1 - fmean(self.inside)), 1e-9) / n
        )
        return (
            f"{n} | {100 * fmean(self.inside):.1f} ± {100 * error:.1f} | "
            f"{100 * fmean(self.width):.1f} | {100 * fmean(self.away):.1f} | "
            f"{100 * fmean(self.in_labels):.0f} | {100 * fmean(self.near):.0f}"
        )


def points_of(cycles: list[dict[str, Any]], source: str) -> list[CurvePoint]:
    """The scores of cycles that a forecast sees."""
    points = []
    for cycle in cycles:
        if source != "evaluation":
            points.append(CurvePoint(cycle["labels"], 1 - cycle[source]))
            continue
        evaluation = cycle.get("evaluation")
        if evaluation is None or evaluation["score"] is None:
            continue
        deviation = deviation_of(evaluation, is_share=True)
        points.append(CurvePoint(cycle["labels"], 1 - evaluation["score"], deviation))
    return points


def ask(
    errors: ForecastErrors, cycles: list[dict[str, Any]], source: str, at: int, ahead: int
) -> None:
    """One forecast after cycle ``at`` of what ``ahead`` cycles more bring.

    The evaluation set of a cycle is known when its labels are, so the curve begins at the cycle before.
    """
    seen = at if source != "evaluation" else at - 1
    points = points_of(cycles[: seen + 1], source)
    if len(points) < FEWEST:
        return
    curve = fit_curve(points)
    now = cycles[seen]
    then = cycles[at + ahead]
    more = then["labels"] - now["labels"]
    truth = then["true"] - now["true"]
    gain = curve.gain(more)
    errors.inside.append(gain.low <= truth <= gain.high)
    errors.width.append(gain.high - gain.low)
    errors.away.append(abs(gain.middle - truth))
    reach = curve.labels_to(1 - then["true"])
    errors.in_labels.append(reach.low <= more <= reach.high)
    together = now["labels"] + reach.middle
    errors.near.append(abs(together / then["labels"] - 1) <= MARGIN)


def measure(file: Path) -> None:
    """Print the tables."""
    runs = read_runs(file)
    print(f"{len(runs)} runs\n")
    head = (
        "interval holds, % | width | off by | labels in interval, % | labels within 25 %, %"
    )
    print(f"| data | scores | labels ahead | forecasts | {head} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for data in DATA:
        for name, source in SOURCES.items():
            for ahead in AHEAD:
                errors = ForecastErrors()
                for run in runs:
                    if run["about"][0] != data or (
                        source == "evaluation" and not run["about"][1]
                    ):
                        continue
                    for at in range(FIRST, len(run["cycles"]) - ahead):
                        ask(errors, run["cycles"], source, at, ahead)
                print(f"| {data} | {name} | {100 * ahead} | {errors.row()} |")
    print()
    measure_evaluations(runs)
    print()
    measure_costs(runs)


@dataclass
class EvaluationSets:
    """Estimates of evaluation sets and true values of the pool, as fractions."""

    inside: list[bool] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)  # of each evaluation set
    off_by_run: list[float] = field(default_factory=list)  # means of a run

    def add(self, run: dict[str, Any]) -> None:
        """Count the evaluation sets of a run, if it has some."""
        off = []
        for cycle in run["cycles"]:
            evaluation = cycle.get("evaluation")
            if evaluation is None:
                continue
            self.inside.append(evaluation["low"] <= cycle["pool"] <= evaluation["high"])
            self.width.append(evaluation["high"] - evaluation["low"])
            off.append(evaluation["score"] - cycle["pool"])
        if off:
            self.off += off
            self.off_by_run.append(fmean(off))

    def row(self) -> str:
        """The cells of a table, in percent and points."""
        return (
            f"{len(self.off_by_run)} | {len(self.off)} | {100 * fmean(self.inside):.1f} | "
            f"{100 * fmean(self.width):.0f} | {mean_and_error(self.off)} | "
            f"{mean_and_error(self.off_by_run)}"
        )


def mean_and_error(shares: list[float]) -> str:
    """A mean and its standard error, in points."""
    error = stdev(shares) / math.sqrt(len(shares))
    return f"{100 * fmean(shares):+.2f} ± {100 * error:.2f}"


def measure_evaluations(runs: list[dict[str, Any]]) -> None:
    """Compare the estimates with the true accuracy on the pool."""
    print(
        "| data | runs | evaluation sets | interval holds, % | width | mean error | by runs |"
    )
    print("|---|---|---|---|---|---|---|")
    for data in DATA:
        estimates = EvaluationSets()
        for run in runs:
            if run["about"][0] == data:
                estimates.add(run)
        if estimates.off:
            print(f"| {data} | {estimates.row()} |")


def measure_costs(runs: list[dict[str, Any]]) -> None:
    """Print the loss of accuracy by an evaluation set, by pairs of one seed."""
    print("| data | pairs | difference in accuracy with an evaluation set | 95 % |")
    print("|---|---|---|---|")
    last = {tuple(run["about"]): run["cycles"][-1]["true"] for run in runs}
    for data in DATA:
        pairs = []
        for (name, fraction, seed), score in last.items():
            other = last.get((data, 0.0, seed))
            if name == data and fraction and other is not None:
                pairs.append(score - other)
        interval = t_interval(pairs)
        print(
            f"| {data} | {len(pairs)} | {100 * fmean(pairs):+.2f} | "
            f"[{100 * interval.low:+.2f}, {100 * interval.high:+.2f}] |"
        )


def main() -> None:
    """Run, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "measure", "again", "evaluations"))
    parser.add_argument("file", type=Path)
    parser.add_argument("more", type=Path, nargs="*", help="for evaluations: further files")
    args = parser.parse_args()
    if args.what == "run":
        run_all(args.file)
    elif args.what == "again":
        run_all(args.file, AGAIN, datas=DATA[:1], fractions=FRACTIONS[:1])
    elif args.what == "evaluations":
        runs = []
        for file in (args.file, *args.more):
            runs += read_runs(file)
        measure_evaluations(runs)
    else:
        measure(args.file)


if __name__ == "__main__":
    main()
