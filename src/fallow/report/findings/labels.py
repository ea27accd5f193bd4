"""Balance of the labels over cycles, and its correlation with accuracy (FairFAL, Obs. 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fallow.experiment.metrics_counts import (
    Imbalance,
    empty_cells,
    imbalance,
    kl_to_global,
    total_variation,
)
from fallow.experiment.record import Record
from fallow.study.records import StudyRecords
from fallow.study.strategy import ParsedStrategy

FEWEST = 4
"""Minimum number of strategies for which a correlation is reported."""

Value = Callable[[Record], float | None]
"""A number of one record; None if it was not measured."""


def over_cycles(study: StudyRecords, strategy: str, value: Value) -> dict[int, list[float]]:
    """Return cycle -> one value per seed, from the last record of each cycle; missing
    values are omitted.
    """
    counts: dict[int, list[float]] = {}
    for cell in study.of(strategy):
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            if row is None:
                continue
            number = value(row)
            if number is not None:
                counts.setdefault(cycle, []).append(number)
    return dict(sorted(counts.items()))


def _imbalance(row: Record) -> Imbalance | None:
    """Return the balance of the labeled classes, if there are two or more and any label."""
    counts = row.get("labeled_per_class")
    if not counts or len(counts) < 2 or sum(counts) == 0:
        return None
    return imbalance(counts)


def _sites(row: Record) -> list[list[int]] | None:
    """Return the labels of each site by class, if there are classes and labels."""
    has_classes = bool(row.get("labeled_per_class"))
    counts = list((row.get("labeled_per_site") or {}).values())
    has_labels = any(sum(of_site) for of_site in counts)
    if not has_classes or not has_labels:
        return None
    return counts


def minority_share(row: Record) -> float | None:
    """Return the share of the rarer half of the classes among the labels, in per cent."""
    outcome = _imbalance(row)
    if outcome is None:
        return None
    return 100 * outcome.minority_share


def label_kl(row: Record) -> float | None:
    """Return the KL of a site's labeled classes from all labeled classes, mean over sites,
    in nats.
    """
    sites = _sites(row)
    if sites is None:
        return None
    return kl_to_global(sites)


def label_variation(row: Record) -> float | None:
    """Return the total variation of a site's labeled classes from all labeled classes, mean
    over sites.
    """
    sites = _sites(row)
    if sites is None:
        return None
    return total_variation(sites)


def label_entropy(row: Record) -> float | None:
    """Return the entropy of the labels' classes over its maximum; 1 is even."""
    values = _imbalance(row)
    if values is None:
        return None
    return values.entropy


def label_gini(row: Record) -> float | None:
    """Return the Gini coefficient of the labels' classes; 0 is even."""
    outcome = _imbalance(row)
    if outcome is None:
        return None
    return outcome.gini


def label_gaps(row: Record) -> float | None:
    """Return the number of (site, class) pairs without a label."""
    sites = _sites(row)
    if sites is None:
        return None
    return float(empty_cells(sites))


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
    shares: dict[str, Mapping[int, float]] = {}  # strategy -> seed -> per cent
    scores: dict[str, Mapping[int, float]] = {}
    seeds: dict[str, set[int]] = {}  # strategies that have both numbers
    for strategy in study.strategies:
        if ParsedStrategy.parse(strategy).trains_otherwise:
            continue
        shares[strategy] = _last_shares(study, strategy)
        scores[strategy] = study.final(strategy)
        common = shares[strategy].keys() & scores[strategy].keys()
        if common:
            seeds[strategy] = common
    measured = list(seeds)
    if len(measured) < FEWEST:
        return None

    mean_shares = [fmean(shares[strategy].values()) for strategy in measured]
    mean_scores = [fmean(scores[strategy].values()) for strategy in measured]
    if not _both_vary(mean_shares, mean_scores):
        return None

    by_seed = []
    for seed in sorted(set.intersection(*seeds.values())):
        x = [shares[strategy][seed] for strategy in measured]
        y = [scores[strategy][seed] for strategy in measured]
        if _both_vary(x, y):
            by_seed.append(_pearson(x, y))

    from scipy.stats import (
        spearmanr,
    )  # takes a second

    return Association(
        strategies=len(measured),
        pearson=_pearson(mean_shares, mean_scores),
        spearman=float(spearmanr(mean_shares, mean_scores).statistic),
        by_seed=tuple(by_seed),
    )


def _both_vary(shares: Sequence[float], scores: Sequence[float]) -> bool:
    """Return whether both numbers vary enough for a correlation."""
    return bool(np.ptp(shares) > 1e-9 and np.ptp(scores) > 1e-12)


def _pearson(x: Sequence[float], y: Sequence[float]) -> float:
    return float(np.corrcoef(x, y)[0, 1])


def _last_shares(study: StudyRecords, strategy: str) -> dict[int, float]:
    """Return seed -> share of rare classes in the last cycle."""
    last = study.last_cycle(strategy)
    if last is None:
        return {}
    values = {}
    for cell in study.of(strategy):
        row = cell.last_of(last)
        if row is None:
            continue
        share = minority_share(row)
        if share is not None:
            values[cell.seed] = share
    return values
