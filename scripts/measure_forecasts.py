"""Runs studies whose end is known and asks what was forecast of it: docs/results/forecast.md.

    python scripts/measure_forecasts.py run RUNS.jsonl         # 200 runs, hours on one core
    python scripts/measure_forecasts.py measure RUNS.jsonl     # the tables, seconds

Ten sites share 4,000 rows of MNIST or of Fashion-MNIST, 60 rows have a label at first and 100 more
in each of eight cycles, chosen by margin; a head in closed form on 300 Fourier features is solved
for.  Each seed is run with an audit of a tenth of the labels and without one.  The test rows of one
site, 1,000, are what a forecast may see; those of the nine others, 9,000, are the truth.

``run`` begins where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = ("mnist", "fashion_mnist")
AUDITS = (0.1, 0.0)
SEEDS = 50
SITES = 10
SEEN = "site-0"
"""The site whose test rows a forecast may see."""
SETTINGS: dict[str, Any] = {
    "rows": 4000,
    "test": "own",
    "initial": 6,
    "per_cycle": 10,
    "cycles": 8,
    "encoder": "fourier:features=300",
}


def run_all(file: Path) -> None:
    """Append a line for each run that the file has not."""
    import fallow as fl

    done = {tuple(run["about"]) for run in read_runs(file)}
    worlds = {data: fl.Federation(data, "iid", sites=SITES) for data in DATA}
    for seed in range(SEEDS):
        for data, world in worlds.items():
            for audit in AUDITS:
                about = (data, audit, seed)
                if about in done:
                    continue
                run = fl.run(
                    world,
                    "margin",
                    "closed-form",
                    audit=audit,
                    seed=seed,
                    progress=False,
                    **SETTINGS,
                )
                line = {"about": about, "cycles": list(read_cycles(run.records))}
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")


def read_cycles(records: Any) -> Iterator[dict[str, Any]]:
    """What each cycle's record says that is needed here."""
    for record in records.to_dict("records"):
        per_site = record["per_site"]
        others = [score for site, score in per_site.items() if site != SEEN]
        pseudo = record["pseudo_labels"]
        audit = record.get("audit")
        cycle = {
            "labels": record["labelled"],
            "seen": per_site[SEEN],
            "true": sum(others) / len(others),
            "left_out": record["left_out"],
        }
        if isinstance(pseudo, dict):
            cycle["pool"] = pseudo["accuracy"]
        if isinstance(audit, dict):
            cycle["audit"] = {k: v for k, v in audit.items() if k != "per_site"}
        yield cycle


def read_runs(file: Path) -> list[dict[str, Any]]:
    """The runs that a file has."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Run, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "measure"))
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    if given.what == "run":
        run_all(given.file)


if __name__ == "__main__":
    main()
