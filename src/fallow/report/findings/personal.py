"""One model per site: how sites fared, who would be better off alone, and what it cost to receive.

Scores are in per cent, those of sites with flipped labels left out.
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
from fallow.report.final_table import ranked
from fallow.study.names import training_tags
from fallow.study.records import Cell, StudyRecords
from fallow.study.statistics import Interval

DRAWS = 2000
"""Bootstrap draws."""

LEVEL = 0.95
"""Of an interval."""

Floats = NDArray[np.float64]
BySite = Mapping[str, float]


@dataclass(frozen=True)
class Fared:
    """How the sites of one strategy fared; every number is a mean over seeds.

    ``variance``: between sites, per cent²; ``lowest``: the worst site; ``below_local``: the share
    of sites, in per cent, that would be better off alone, paired by seed and site; ``received``:
    bytes of a whole run, mean over sites, ``models`` the same in models; ``most``: bytes of the
    site that received most.
    """

    query: str
    accuracy: list[float]  # one a seed
    weighted: float
    variance: float
    worst_tenth: float
    lowest: float
    below_local: float | None
    received: float
    most: float
    models: float | None


@dataclass(frozen=True)
class Paired:
    """A strategy minus another, seed by seed and site by site, in points."""

    query: str
    difference: float
    interval: Interval
    better: int
    level: int
    worse: int
    seeds: int


def scores_row(cell: Cell) -> Record | None:
    """The record whose per-site scores count: the last that is final; None without such scores."""
    rows = [r for r in cell.records if r.get("final") and r.get("variance") is not None]
    return rows[-1] if rows else None


def has_sites(study: StudyRecords) -> bool:
    """Whether the study has scores of each site."""
    return any(scores_row(cell) for cell in study.cells)


def left_out(study: StudyRecords) -> list[str]:
    """The sites that are not in the scores of the run that lacks most: those with flipped labels,
    or, where none were flipped, those that told no score."""
    is_flipped = bool(study.study.recipe.get("flip"))
    lacking: list[list[str]] = []
    for row in filter(None, map(scores_row, study.cells)):
        scores = row["per_site"] or {}
        told = {site for site, score in scores.items() if is_flipped or score is not None}
        lacking.append(sorted(row["labelled_per_site"].keys() - told))
    return max(lacking, key=len, default=[])


def site_scores(study: StudyRecords, query: str) -> dict[int, BySite]:
    """Seed -> site -> accuracy, per cent; without sites that have no test row."""
    found: dict[int, BySite] = {}
    for cell in study.of(query):
        row = scores_row(cell)
        if row is None:
            continue
        scores = row["per_site"] or {}
        found[cell.seed] = {
            s: 100 * score for s, score in scores.items() if score is not None
        }
    return found


def local_of(study: StudyRecords) -> str | None:
    """The strategy that trains every site by itself."""
    for query in study.strategies:
        if "alone" in training_tags(study.study, query):
            return query
    return None


def fared(study: StudyRecords) -> list[Fared]:
    """Every strategy that has per-site scores, the best first."""
    return [_fared(study, q) for q in ranked(study) if site_scores(study, q)]


def _fared(study: StudyRecords, query: str) -> Fared:
    cells = {cell.seed: cell for cell in study.of(query)}
    by_seed = site_scores(study, query)
    rows = [row for seed in by_seed if (row := scores_row(cells[seed]))]
    got = [received(cells[seed].records[-1]).values() for seed in by_seed]
    each = fmean(fmean(of_sites) for of_sites in got)
    sizes = [r["model_bytes"] for r in rows if r.get("model_bytes")]

    return Fared(
        query=query,
        accuracy=[fmean(scores.values()) for scores in by_seed.values()],
        weighted=_mean_score(rows, "accuracy_weighted", unit=100),
        variance=_mean_score(rows, "variance"),
        worst_tenth=_mean_score(rows, "worst_tenth", unit=100),
        lowest=fmean(min(scores.values()) for scores in by_seed.values()),
        below_local=below(study, query),
        received=each,
        most=fmean(max(of_sites) for of_sites in got),
        models=each / sizes[0] if sizes else None,
    )


def _mean_score(
    rows: Sequence[Record],
    key: Literal["accuracy_weighted", "variance", "worst_tenth"],
    unit: float = 1,
) -> float:
    """The mean of a score over the records that have it, in so many parts of one."""
    return fmean(unit * score for row in rows if (score := row.get(key)) is not None)


def received(row: Record) -> dict[str, float]:
    """Bytes that each site received up to a record: an equal share of what the server sent, and
    what other sites relayed to it, by the number of answers that it got."""
    sites = row["labelled_per_site"]
    relays = [e for e in row.get("revealed") or () if e.get("received")]
    from_server = (row["bytes_down"] - sum(e["bytes"] for e in relays)) / len(sites)
    got = dict.fromkeys(sites, from_server)
    for e in relays:
        each = e["bytes"] / sum(e["received"].values())
        for site, answers in e["received"].items():
            got[site] += each * answers
    return got


def below(study: StudyRecords, query: str) -> float | None:
    """The share of sites, per cent, that score lower than by local training; None without it, and
    of local training itself."""
    local = local_of(study)
    if local in (None, query):
        return None
    found = [
        d for of_seed in differences(study, query, local or "") for d in of_seed.tolist()
    ]
    return 100 * fmean(d < 0 for d in found) if found else None


def differences(study: StudyRecords, query: str, against: str) -> list[Floats]:
    """For each seed that both have, the differences at the sites that both have, in points."""
    ours, theirs = site_scores(study, query), site_scores(study, against)
    return [
        np.array(
            [ours[k][site] - theirs[k][site] for site in sorted({*ours[k]} & {*theirs[k]})]
        )
        for k in sorted({*ours} & {*theirs})
    ]


def paired(study: StudyRecords) -> list[Paired]:
    """Every other strategy minus the reference, the best first."""
    reference = study.study.reference or ""
    return [
        made
        for query in ranked(study)
        if query != reference
        and (made := _paired(query, differences(study, query, reference)))
    ]


def _paired(query: str, by_seed: list[Floats]) -> Paired | None:
    by_seed = [d for d in by_seed if len(d)]
    if not by_seed:
        return None
    signs = np.sign(np.concatenate(by_seed))
    better, level, worse = (int((signs == sign).sum()) for sign in (1, 0, -1))
    difference = fmean(float(d.mean()) for d in by_seed)
    return Paired(query, difference, nested(by_seed), better, level, worse, len(by_seed))


def nested(by_seed: list[Floats]) -> Interval:
    """The percentile interval of the mean over seeds of means over sites: seeds are drawn again
    with replacement, and within each its sites.

    The sites of one seed are not independent, and a site is another one under another seed.

    >>> nested([np.array([2.0, 2.0]), np.array([2.0])])
    Interval(low=2.0, high=2.0, level=0.95)
    """
    many = np.array([len(d) for d in by_seed])
    values = np.zeros((len(by_seed), many.max()))
    for row, d in zip(values, by_seed, strict=True):
        row[: len(d)] = d
    gen = np.random.default_rng(seed_of(0, "sites in seeds", *many.tolist()))
    drawn = np.zeros(DRAWS)
    for _ in by_seed:
        seed = gen.integers(0, len(by_seed), DRAWS)
        n = many[seed][:, None]
        site = (gen.random((DRAWS, many.max())) * n).astype(np.int64)
        counted = np.arange(many.max()) < n
        drawn += (values[seed[:, None], site] * counted).sum(1) / n[:, 0]
    low, high = np.quantile(drawn / len(by_seed), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), LEVEL)


def redundant(study: StudyRecords) -> dict[str, list[float]]:
    """Strategy -> for each seed the mean over cycles of how near its picks were to rows that
    collaborators had labelled, as a cosine; without strategies that have no collaborators."""
    found: dict[str, list[float]] = {}
    for query in ranked(study):
        for cell in study.of(query):
            known: list[float] = []
            for row in cell.records:
                before_query = row.get("pseudo_labels")
                if before_query is None:
                    continue
                value = before_query.get("redundancy")
                if value is not None:
                    known.append(float(value))
            if known:
                found.setdefault(query, []).append(fmean(known))
    return found


def over_rounds(study: StudyRecords, query: str) -> dict[int, list[float]]:
    """Round of the last cycle -> accuracy of each seed, per cent, where rounds were scored."""
    found: dict[int, list[float]] = {}
    for cell in study.of(query):
        for row in cell.records:
            score = row.get("accuracy")
            is_of_last_cycle = row["cycle"] == cell.cycles[-1]
            if is_of_last_cycle and row.get("per_site") and score is not None:
                found.setdefault(int(row["round"]), []).append(100 * score)
    return dict(sorted(found.items()))
