"""How even the labels are over cycles, and whether that goes with accuracy (FairFAL, Obs. 2)."""

from __future__ import annotations

from collections.abc import Callable
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
from fallow.study.names import Strategy
from fallow.study.records import StudyRecords

FEWEST = 4
"""Fewer strategies than this have no correlation worth a sentence."""

Value = Callable[[Record], float | None]
"""A number of one record; ``None`` where it was not measured."""


def over_cycles(study: StudyRecords, query: str, value: Value) -> dict[int, list[float]]:
    """Cycle -> one value per seed, of the last record of each cycle; without what is absent."""
    found: dict[int, list[float]] = {}
    for cell in study.of(query):
        for cycle in cell.cycles:
            row = cell.last_of(cycle)
            number = value(row) if row else None
            if number is not None:
                found.setdefault(cycle, []).append(number)
    return dict(sorted(found.items()))


def _imbalance(row: Record) -> Imbalance | None:
    counts = row.get("labelled_per_class")
    return imbalance(counts) if counts and len(counts) > 1 and sum(counts) else None


def _sites(row: Record) -> list[list[int]] | None:
    """Labels of each site by class, where there are classes and labels."""
    sites = row.get("labelled_per_site")
    if not row.get("labelled_per_class") or not sites or not any(map(sum, sites.values())):
        return None
    return list(sites.values())


def minority_share(row: Record) -> float | None:
    """Share of the rarer half of the classes among the labels, per cent."""
    found = _imbalance(row)
    return 100 * found.minority_share if found else None


def label_kl(row: Record) -> float | None:
    """KL of a site's labelled classes from all labelled classes, mean over sites, nats."""
    sites = _sites(row)
    return kl_to_global(sites) if sites else None


def label_variation(row: Record) -> float | None:
    """Total variation of a site's labelled classes from all labelled classes, mean over sites."""
    sites = _sites(row)
    return total_variation(sites) if sites else None


def label_entropy(row: Record) -> float | None:
    """Entropy of the labels' classes over its maximum: 1 is even."""
    found = _imbalance(row)
    return found.entropy if found else None


def label_gini(row: Record) -> float | None:
    """Gini coefficient of the labels' classes: 0 is even."""
    found = _imbalance(row)
    return found.gini if found else None


def label_gaps(row: Record) -> float | None:
    """Number of (site, class) pairs without a label."""
    sites = _sites(row)
    return float(empty_cells(sites)) if sites else None


@dataclass(frozen=True)
class Association:
    """Correlation over strategies of minority share and final score."""

    strategies: int
    pearson: float  # of the means over seeds
    spearman: float
    by_seed: tuple[float, ...]  # Pearson's within each seed that has all strategies


def minority_and_score(study: StudyRecords) -> Association | None:
    """Whether strategies that buy more of the rare classes end better.

    Strategies whose models are trained in another way do not count.  ``None`` for fewer than four
    strategies with both numbers, or when either does not vary.
    """
    alike = [q for q in study.strategies if not Strategy.parse(q).trains_otherwise]
    share = {q: _last_share(study, q) for q in alike}
    score = {q: dict(study.final(q)) for q in alike}
    both = [q for q in alike if set(share[q]) & set(score[q])]
    if len(both) < FEWEST:
        return None
    x = [fmean(share[q].values()) for q in both]
    y = [fmean(score[q].values()) for q in both]
    if np.ptp(x) < 1e-9 or np.ptp(y) < 1e-12:
        return None
    seeds = set.intersection(*(set(share[q]) & set(score[q]) for q in both))
    within = [
        ([share[q][k] for q in both], [score[q][k] for q in both]) for k in sorted(seeds)
    ]
    by_seed = tuple(
        float(np.corrcoef(a, b)[0, 1])
        for a, b in within
        if np.ptp(a) > 1e-9 and np.ptp(b) > 1e-12
    )
    pearson = float(np.corrcoef(x, y)[0, 1])
    from scipy import stats as sp  # takes a second, and not every page asks

    return Association(len(both), pearson, float(sp.spearmanr(x, y).statistic), by_seed)


def _last_share(study: StudyRecords, query: str) -> dict[int, float]:
    """Seed -> minority share in the last cycle."""
    last = study.last_cycle(query)
    rows = (
        {cell.seed: cell.last_of(last) for cell in study.of(query)}
        if last is not None
        else {}
    )
    shares = {seed: minority_share(row) for seed, row in rows.items() if row}
    return {seed: share for seed, share in shares.items() if share is not None}
