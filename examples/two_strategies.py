"""Random and AHFAL on the same sites, initial labeled sets and initial weights, under three seeds.

Run it with ``python examples/two_strategies.py``; it takes a few seconds.
"""

from __future__ import annotations

from statistics import fmean

from fallow.configs.find import find_config
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import with_settings


def final_score(strategy: str, seed: int) -> float:
    """Return the mean accuracy over the last rounds of the last cycle."""
    config = with_settings(
        find_config("demo"), {"strategy": strategy, "cycles": "2", "rounds": "8"}
    )
    event_log = EventLog()  # in memory; give it a path and the run survives a crash
    records = ExperimentRun(build_environment(config, seed, event_log), event_log).go()
    last = [record for record in records if record["cycle"] == config.cycles]
    return fmean(record["accuracy"] for record in last)


def main() -> None:
    differences = []
    for seed in range(3):
        random = final_score("random", seed)
        ahfal = final_score("ahfal", seed)
        differences.append(ahfal - random)
        print(f"seed {seed}: random {random:.3f}, ahfal {ahfal:.3f}")
    print(f"ahfal - random, mean over paired seeds: {fmean(differences):+.3f}")


if __name__ == "__main__":
    main()
