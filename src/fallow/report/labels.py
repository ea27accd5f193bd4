"""Balance of the labels over cycles, and its correlation with accuracy (FairFAL, Obs. 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fallow.experiment.metrics_counts import (
    empty_cells,
    imbalance,
    kl_to_global,
    total_variation,
)
from fallow.experiment.record import Record
from fallow.settings.variants import ParsedStrategy
from fallow.study.records import StudyRecords

FEWEST = 4
"""Minimum number of strategies for which a correlation is reported."""
RARER = "Rarer classes, %"
KL = "KL, nats"
DIGITS = {
    RARER: 1,
    "Entropy": 3,
    "Gini": 3,
    KL: 2,
    "Total variation": 2,
    "Empty cells": 1,
}
"""Statistics of the labels, with their numbers of digits."""

Value = Callable[[Record], float | None]
"""A number of one record; None if it was not measured."""


def over_cycles(study: StudyRecords, strategy: str, value: Value) -> dict[int, list[float]]:
    """Return cycle -> one value per seed, from the last record of each cycle; missing
    values are omitted.
    """
    counts: dict[int, list[float]] = {}
    for cell in study.of(strategy):
        for cycle, row in cell.last_records.items():
            number = value(row)
            if number is not None:
                counts.setdefault(cycle, []).append(number)
    return dict(sorted(counts.items()))


def balance_over_cycles(
    study: StudyRecords, strategy: str, name: str
) -> dict[int, list[float]]:
    """Return `over_cycles` of a statistic of `DIGITS`."""
    return over_cycles(study, strategy, lambda row: measure_balance(row).get(name))


def measure_balance(row: Record) -> dict[str, float]:
    """Return the statistics of the labels in a record; those that are unknown are missing.

    KL and total variation compare the labeled classes of a site with all labeled classes, as a
    mean over sites.
    """
    counts = row.get("labeled_per_class") or []
    sites = list((row.get("labeled_per_site") or {}).values())
    values: dict[str, float] = {}
    if len(counts) > 1 and any(counts):
        of_all = imbalance(counts)
        values[RARER] = 100 * of_all.minority_share
        values["Entropy"] = of_all.entropy
        values["Gini"] = of_all.gini
    if counts and any(map(any, sites)):
        values[KL] = kl_to_global(sites)
        values["Total variation"] = total_variation(sites)
        values["Empty cells"] = float(empty_cells(sites))
    return values


@dataclass(frozen=True)
class Association:
    """Correlation over strategies of minority share and final score."""

    strategies: int
    pearson: float  # of the means over seeds
    spearman: float
    by_seed: tuple[float, ...]  # Pearson's r within each seed that has all strategies


def minority_and_score(study: StudyRecords) -> Association | None:
    """Correlate the share of rare classes among the labels with the final score.

    Strategies with another training are excluded. Return None for fewer than four
    strategies with both numbers, or if either number does not vary.
    """
    import pandas as pd

    rows = []
    for strategy in study.strategies:
        if ParsedStrategy.parse(strategy).trains_otherwise:
            continue
        final = study.final(strategy)
        for cell in study.of(strategy):
            last = cell.last_of(study.last_cycle(strategy) or 0)
            if last is not None:
                share = measure_balance(last).get(RARER)
                rows.append((strategy, cell.seed, share, final.get(cell.seed)))
    names = ["strategy", "seed", "share", "score"]
    frame = pd.DataFrame(rows, columns=names).astype({"share": float, "score": float})
    pairs = frame.dropna()
    means = frame.groupby("strategy")[["share", "score"]].mean()
    means = means[means.index.isin(pairs["strategy"])]
    if len(means) < FEWEST or means.max().sub(means.min()).min() <= 1e-9:
        return None
    by_seed = []
    for _, of_seed in pairs.groupby("seed"):
        if len(of_seed) == len(means) and np.ptp(of_seed["share"]) > 1e-9:
            by_seed.append(float(of_seed["share"].corr(of_seed["score"])))
    return Association(
        strategies=len(means),
        pearson=float(means["share"].corr(means["score"])),
        spearman=float(means["share"].corr(means["score"], method="spearman")),
        by_seed=tuple(by_seed),
    )
