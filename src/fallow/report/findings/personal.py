"""Personalized models: accuracy of sites, comparison with local training, and bytes
received.

Scores are in per cent. Sites with flipped labels are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fallow.core.streams import seed_of
from fallow.experiment.record import Record
from fallow.report.final_table import rank_strategies
from fallow.study.names import training_tags
from fallow.study.records import RunRecords, StudyRecords
from fallow.study.statistics import Interval

DRAWS = 2000
"""Bootstrap draws."""

LEVEL = 0.95
"""Confidence level of an interval."""

Floats = NDArray[np.float64]
BySite = Mapping[str, float]


@dataclass(frozen=True)
class SiteOutcome:
    """Outcome of the sites for one strategy, with means over seeds.

    ``variance``: between sites, per cent²; ``lowest``: the worst site; ``below_local``: the
    share of sites, in per cent, for which local training is better, paired by seed and
    site; ``received``: bytes of a run, mean over sites, ``models`` the same in models;
    ``largest``: bytes of the site that received the most.
    """

    strategy: str
    accuracy: list[float]  # one per seed
    weighted: float
    variance: float
    worst_tenth: float
    lowest: float
    below_local: float | None
    received: float
    largest: float
    models: float | None


@dataclass(frozen=True)
class SiteComparison:
    """Difference of two strategies by seed and site, in points."""

    strategy: str
    difference: float
    interval: Interval
    better: int
    level: int
    worse: int
    seeds: int


def scores_row(cell: RunRecords) -> Record | None:
    """Return the last final record with scores of each site, or None."""
    values = None
    for record in cell.records:
        if record.get("final") and record.get("variance") is not None:
            values = record
    return values


def has_sites(study: StudyRecords) -> bool:
    """Return whether the study has scores of each site that can differ.

    A global model has one score on test examples that all sites share.
    """
    has_own_rows = study.study.recipe.get("test") == "own"
    for cell in study.cells:
        row = scores_row(cell)
        if row is not None and (has_own_rows or row.get("variance")):
            return True
    return False


def left_out(study: StudyRecords) -> list[str]:
    """Return the sites that are missing in the scores of the least complete run.

    These are the sites with flipped labels or, if no labels are flipped, those without a
    score.
    """
    is_flipped = bool(study.study.recipe.get("flip"))
    lacking: list[list[str]] = []
    for cell in study.cells:
        row = scores_row(cell)
        if row is None:
            continue
        scores = row["per_site"] or {}
        scored = [site for site in scores if is_flipped or scores[site] is not None]
        lacking.append(sorted(row["labeled_per_site"].keys() - set(scored)))
    return max(lacking, key=len, default=[])


def site_scores(study: StudyRecords, strategy: str) -> dict[int, BySite]:
    """Return seed -> site -> accuracy in per cent, without sites that have no test example."""
    result: dict[int, BySite] = {}
    for seed, row in _rows_by_seed(study, strategy).items():
        scores = row["per_site"] or {}
        scored = {site: score for site, score in scores.items() if score is not None}
        result[seed] = {site: 100 * score for site, score in scored.items()}
    return result


def _rows_by_seed(study: StudyRecords, strategy: str) -> dict[int, Record]:
    """Return seed -> record with the final scores of each site."""
    rows = {}
    for cell in study.of(strategy):
        row = scores_row(cell)
        if row is not None:
            rows[cell.seed] = row
    return rows


def local_of(study: StudyRecords) -> str | None:
    """Return the strategy that trains every site locally."""
    for strategy in study.strategies:
        if "alone" in training_tags(study.study, strategy):
            return strategy
    return None


def outcomes(study: StudyRecords) -> list[SiteOutcome]:
    """Return the outcome of every strategy with scores of each site, the best first."""
    scored = [
        strategy for strategy in rank_strategies(study) if _rows_by_seed(study, strategy)
    ]
    return [_outcome(study, strategy) for strategy in scored]


def _outcome(study: StudyRecords, strategy: str) -> SiteOutcome:
    """Compute means over the seeds that have scores of each site."""
    rows = list(_rows_by_seed(study, strategy).values())
    scores = list(site_scores(study, strategy).values())

    last_records = {
        cell.seed: cell.records[-1] for cell in study.of(strategy) if cell.records
    }
    received = []  # for each seed, the bytes of every site
    for seed in _rows_by_seed(study, strategy):
        received.append(list(bytes_received(last_records[seed]).values()))
    mean_received = fmean(fmean(of_sites) for of_sites in received)

    sizes = [row["model_bytes"] for row in rows if row.get("model_bytes")]
    models = None
    if sizes:
        models = mean_received / sizes[0]

    return SiteOutcome(
        strategy=strategy,
        accuracy=[fmean(of_sites.values()) for of_sites in scores],
        weighted=100 * _mean_score(rows, "accuracy_weighted"),
        variance=_mean_score(rows, "variance"),
        worst_tenth=100 * _mean_score(rows, "worst_tenth"),
        lowest=fmean(min(of_sites.values()) for of_sites in scores),
        below_local=share_below_local(study, strategy),
        received=mean_received,
        largest=fmean(max(of_sites) for of_sites in received),
        models=models,
    )


def _mean_score(
    rows: Sequence[Record], key: Literal["accuracy_weighted", "variance", "worst_tenth"]
) -> float:
    """Return the mean of a score over the records that have it."""
    scores = []
    for row in rows:
        score = row.get(key)
        if score is not None:
            scores.append(score)
    return fmean(scores)


def bytes_received(row: Record) -> dict[str, float]:
    """Return the bytes that each site received up to a record.

    This is an equal share of the coordinator's messages, plus the peer messages from other
    sites in proportion to the number of replies that the site got.
    """
    sites = row["labeled_per_site"]
    relays = []
    for entry in row.get("revealed") or ():
        if any((entry.get("received") or {}).values()):
            relays.append(entry)
    relayed = sum(entry["bytes"] for entry in relays)
    from_server = (row["bytes_down"] - relayed) / len(sites)

    total = dict.fromkeys(sites, from_server)
    for entry in relays:
        bytes_of_an_answer = entry["bytes"] / sum(entry["received"].values())
        for site, answers in entry["received"].items():
            total[site] += bytes_of_an_answer * answers
    return total


def share_below_local(study: StudyRecords, strategy: str) -> float | None:
    """Return the share of sites, in per cent, whose score is lower than with local
    training.

    Return None without local training, and for local training itself.
    """
    local = local_of(study)
    if local is None or local == strategy:
        return None
    by_seed = differences(study, strategy, local)
    if not by_seed:
        return None
    gaps = np.concatenate(by_seed)  # one per seed and site
    if not len(gaps):
        return None
    return 100 * float((gaps < 0).mean())


def differences(study: StudyRecords, strategy: str, against: str) -> list[Floats]:
    """Return for each common seed the differences at the common sites, in points."""
    ours = site_scores(study, strategy)
    theirs = site_scores(study, against)
    values = []
    for seed in sorted(ours.keys() & theirs.keys()):
        sites = sorted(ours[seed].keys() & theirs[seed].keys())
        gaps = [ours[seed][site] - theirs[seed][site] for site in sites]
        values.append(np.array(gaps))
    return values


def compare_sites(study: StudyRecords) -> list[SiteComparison]:
    """Compare every other strategy with the reference, the best first."""
    reference = study.study.reference or ""
    values = []
    for strategy in rank_strategies(study):
        if strategy == reference:
            continue
        by_seed = [gaps for gaps in differences(study, strategy, reference) if len(gaps)]
        if by_seed:
            values.append(_compare(strategy, by_seed))
    return values


def _compare(strategy: str, by_seed: Sequence[Floats]) -> SiteComparison:
    """Compare two strategies.  by_seed: differences at the sites, at least one per seed."""
    signs = np.sign(np.concatenate(list(by_seed)))
    return SiteComparison(
        strategy=strategy,
        difference=fmean(float(gaps.mean()) for gaps in by_seed),
        interval=bootstrap_interval(by_seed),
        better=int((signs == 1).sum()),
        level=int((signs == 0).sum()),
        worse=int((signs == -1).sum()),
        seeds=len(by_seed),
    )


def bootstrap_interval(by_seed: Sequence[Floats]) -> Interval:
    """Return a percentile bootstrap interval of the mean over seeds of means over sites.

    Seeds are resampled with replacement, and sites within each seed. The sites of one seed
    are not independent, and a site has other examples under another seed.

    >>> bootstrap_interval([np.array([2.0, 2.0]), np.array([2.0])])
    Interval(low=2.0, high=2.0, level=0.95)
    """
    n_sites = np.array([len(gaps) for gaps in by_seed])  # (seeds,)
    widest = int(n_sites.max())
    values = np.zeros((len(by_seed), widest))  # padded with zeros at the end
    for row, gaps in zip(values, by_seed, strict=True):
        row[: len(gaps)] = gaps

    gen = np.random.default_rng(seed_of(0, "sites in seeds", *n_sites.tolist()))
    sums = np.zeros(DRAWS)
    for _ in by_seed:
        seed = gen.integers(0, len(by_seed), DRAWS)  # (draws,)
        n = n_sites[seed][:, None]  # (draws, 1)
        site = (gen.random((DRAWS, widest)) * n).astype(np.int64)  # (draws, widest)
        is_drawn = np.arange(widest) < n  # as many sites as the seed has
        drawn = values[seed[:, None], site] * is_drawn
        sums += drawn.sum(1) / n[:, 0]

    tail = (1 - LEVEL) / 2
    low, high = np.quantile(sums / len(by_seed), [tail, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)


def mean_redundancy(study: StudyRecords) -> dict[str, list[float]]:
    """Return for each strategy and seed the mean redundancy of selected examples over
    cycles.

    Redundancy is the cosine similarity to examples that collaborators had labeled.
    Strategies without collaborators are omitted.
    """
    values: dict[str, list[float]] = {}
    for strategy in rank_strategies(study):
        for cell in study.of(strategy):
            measured = []  # one per cycle
            for row in cell.records:
                value = row.get("pseudo_labels")
                if not value:
                    continue
                cosine = value.get("redundancy")
                if cosine is not None:
                    measured.append(float(cosine))
            if measured:
                values.setdefault(strategy, []).append(fmean(measured))
    return values


def over_rounds(study: StudyRecords, strategy: str) -> dict[int, list[float]]:
    """Return round of the last cycle -> accuracy of each seed in per cent, if rounds were
    scored.
    """
    result: dict[int, list[float]] = {}
    for cell in study.of(strategy):
        for row in cell.records:
            accuracy = row.get("accuracy")
            is_of_last_cycle = row["cycle"] == cell.cycles[-1]
            if is_of_last_cycle and row.get("per_site") and accuracy is not None:
                result.setdefault(int(row["round"]), []).append(100 * accuracy)
    return dict(sorted(result.items()))
