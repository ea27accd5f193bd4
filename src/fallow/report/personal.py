"""Report sections on personalized models: accuracy of sites, comparison with local training, and
bytes received.

Scores are in percent. Sites with flipped labels are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fallow.core.streams import seed_of
from fallow.core.wording import join_some, size
from fallow.experiment.record import Record
from fallow.report.blocks import Blocks, Note, Table, show, show_figure
from fallow.report.final_table import (
    label_of,
    rank_strategies,
    spread_of,
    with_interval,
)
from fallow.study.names import heading, training_tags
from fallow.study.records import RunRecords, StudyRecords
from fallow.study.statistics import Interval

DRAWS = 2000
"""Bootstrap draws."""
LEVEL = 0.95
"""Confidence level of an interval."""
ENOUGH_SEEDS = 5
"""Minimum number of seeds without a warning about the bootstrap over seeds."""

Floats = NDArray[np.float64]
BySite = Mapping[str, float]


def scores_row(cell: RunRecords) -> Record | None:
    """Return the last final record with scores of each site, or None."""
    values = None
    for record in cell.records:
        if record.get("final") and record.get("variance") is not None:
            values = record
    return values


def has_sites(study: StudyRecords) -> bool:
    """Return whether the study has accuracies of each site that can differ.

    A global model has one score on test examples that all sites share.
    """
    has_own_rows = study.study.config.get("test") == "own"
    for cell in study.cells:
        row = scores_row(cell)
        if row is not None and (has_own_rows or row.get("variance")):
            return not study.is_regression
    return False


def left_out(study: StudyRecords) -> list[str]:
    """Return the sites that are missing in the scores of the least complete run.

    These are the sites with flipped labels or, if no labels are flipped, those without a
    score.
    """
    is_flipped = bool(study.study.config.get("flip"))
    lacking: list[list[str]] = []
    for cell in study.cells:
        row = scores_row(cell)
        if row is None:
            continue
        scores = row["per_site"] or {}
        scored = [site for site in scores if is_flipped or scores[site] is not None]
        lacking.append(sorted(row["labeled_per_site"].keys() - set(scored)))
    return max(lacking, key=len, default=[])


def rows_by_seed(study: StudyRecords, strategy: str) -> dict[int, Record]:
    """Return seed -> record with the final scores of each site."""
    rows = {}
    for cell in study.of(strategy):
        row = scores_row(cell)
        if row is not None:
            rows[cell.seed] = row
    return rows


def site_scores(study: StudyRecords, strategy: str) -> dict[int, BySite]:
    """Return seed -> site -> accuracy in percent, without sites that have no test example."""
    result: dict[int, BySite] = {}
    for seed, row in rows_by_seed(study, strategy).items():
        scores = (row["per_site"] or {}).items()
        result[seed] = {site: 100 * score for site, score in scores if score is not None}
    return result


# -- accuracy over rounds ----------------------------------------------------------------------


def rounds(study: StudyRecords, key: str) -> Blocks:
    """Return the figure of accuracy after every round, if every round was scored."""
    from fallow.report.figures import study as draw  # takes a second

    lines: dict[str, dict[float, list[float]]] = {}
    for strategy in rank_strategies(study):
        for turn, scores in over_rounds(study, strategy).items():
            lines.setdefault(strategy, {})[turn + 1] = scores
    figure = draw.rounds(study, lines)
    if figure is None:
        return []
    caption = (
        "Higher is better for equal numbers of rounds. If labels are held back for "
        "validation, each site uses its best model so far by validation. Algorithms with "
        "a final step, such as fine-tuning, are scored after it in the last round."
    )
    ends = []
    for strategy, by_round in lines.items():
        score = fmean(by_round[max(by_round)])
        ends.append(f"{label_of(strategy, study.study)} {score:.1f} %")
    alt = (
        f"Test accuracy over rounds, mean over sites. In the last round: {join_some(ends)}."
    )
    return [show_figure(figure, f"{key}-rounds", caption, alt=alt)]


def over_rounds(study: StudyRecords, strategy: str) -> dict[int, list[float]]:
    """Return round of the last cycle -> accuracy of each seed in percent, if rounds were
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


# -- sites -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SiteOutcome:
    """Outcome of the sites for one strategy, with means over seeds.

    Attributes
    ----------
    accuracy : list of float
        Mean over sites, one for each seed.
    variance : float
        Variance between sites, percent².
    lowest : float
        Accuracy of the worst site.
    below_local : float or None
        Share of sites, in percent, for which local training is better, paired by seed and site.
    received, largest : float
        Bytes of a run, as mean over sites and at the site that received the most.
    models : float or None
        Received bytes in models.
    """

    strategy: str
    accuracy: list[float]
    weighted: float
    variance: float
    worst_tenth: float
    lowest: float
    below_local: float | None
    received: float
    largest: float
    models: float | None


def outcomes(study: StudyRecords) -> list[SiteOutcome]:
    """Return the outcome of every strategy with scores of each site, the best first."""
    return [
        _outcome(study, strategy)
        for strategy in rank_strategies(study)
        if rows_by_seed(study, strategy)
    ]


def _outcome(study: StudyRecords, strategy: str) -> SiteOutcome:
    """Compute means over the seeds that have scores of each site."""
    rows = rows_by_seed(study, strategy)
    scores = [list(of_sites.values()) for of_sites in site_scores(study, strategy).values()]
    received = []  # for each seed, the bytes of every site
    for cell in study.of(strategy):
        if cell.seed in rows:
            received.append(list(bytes_received(cell.records[-1]).values()))
    mean_received = fmean(map(fmean, received))
    models = None
    for row in rows.values():
        if row.get("model_bytes"):
            models = mean_received / row["model_bytes"]
            break

    def mean(key: Literal["accuracy_weighted", "variance", "worst_tenth"]) -> float:
        values = (row.get(key) for row in rows.values())
        return fmean(value for value in values if value is not None)

    return SiteOutcome(
        strategy=strategy,
        accuracy=list(map(fmean, scores)),
        weighted=100 * mean("accuracy_weighted"),
        variance=mean("variance"),
        worst_tenth=100 * mean("worst_tenth"),
        lowest=fmean(map(min, scores)),
        below_local=share_below_local(study, strategy),
        received=mean_received,
        largest=fmean(map(max, received)),
        models=models,
    )


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
        bytes_per_reply = entry["bytes"] / sum(entry["received"].values())
        for site, replies in entry["received"].items():
            total[site] += bytes_per_reply * replies
    return total


def share_below_local(study: StudyRecords, strategy: str) -> float | None:
    """Return the share of sites, in percent, whose score is lower than with local
    training.

    Return None without local training, and for local training itself.
    """
    for local in study.strategies:
        if "alone" in training_tags(study.study, local):
            break
    else:
        return None
    gaps = np.concatenate([np.empty(0), *differences(study, strategy, local)])
    if local == strategy or not len(gaps):
        return None
    return 100 * float((gaps < 0).mean())


def sites(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the accuracy of sites and the bytes received."""
    rows = []
    for outcome in outcomes(study):
        rows.append(
            {
                "Algorithm": label_of(outcome.strategy, study.study),
                "Mean over sites, %": spread_of(outcome.accuracy).text(),
                "By examples, %": f"{outcome.weighted:.2f}",
                "Variance, %²": f"{outcome.variance:.1f}",
                "Worst tenth, %": f"{outcome.worst_tenth:.2f}",
                "Worst, %": f"{outcome.lowest:.2f}",
                "Below local, %": show(outcome.below_local, lambda share: f"{share:.0f}"),
                "Received by a site": size(outcome.received),
                "Most": size(outcome.largest),
                "In models": show(outcome.models, lambda models: f"{models:,.1f}"),
            }
        )
    text = (
        "Means over seeds. By examples: every test example has the same weight. "
        "Variance: population variance between sites. Worst tenth: mean of the lowest "
        "tenth of the sites. Below local: share of sites for which local training is "
        "better, by seed and site. Received: from the coordinator and from other sites "
        "in a whole run, mean over sites; most: the site with the most."
    )
    absent = left_out(study)
    if absent and not study.study.config.get("flip"):
        text += f" The last scores exclude {join_some(absent)}, which reported none."
    elif len(absent) == 1:
        text += " One site with flipped labels is excluded from all scores."
    elif absent:
        text += (
            f" The {len(absent)} sites with flipped labels are excluded from all scores."
        )
    return [Table.of("Model of each site on its own test examples", rows), Note(text)]


# -- site by site ------------------------------------------------------------------------------


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


def differences(study: StudyRecords, strategy: str, against: str) -> list[Floats]:
    """Return for each common seed the differences at the common sites, in points."""
    ours = site_scores(study, strategy)
    theirs = site_scores(study, against)
    values = []
    for seed in sorted(ours.keys() & theirs.keys()):
        sites = sorted(ours[seed].keys() & theirs[seed].keys())
        values.append(np.array([ours[seed][site] - theirs[seed][site] for site in sites]))
    return values


def compare_sites(study: StudyRecords) -> list[SiteComparison]:
    """Compare every other strategy with the reference, the best first."""
    reference = study.study.reference or ""
    values = []
    for strategy in rank_strategies(study):
        by_seed = [gaps for gaps in differences(study, strategy, reference) if len(gaps)]
        if strategy == reference or not by_seed:
            continue
        signs = np.sign(np.concatenate(by_seed))
        values.append(
            SiteComparison(
                strategy=strategy,
                difference=fmean(float(gaps.mean()) for gaps in by_seed),
                interval=bootstrap_interval(by_seed),
                better=int((signs == 1).sum()),
                level=int((signs == 0).sum()),
                worse=int((signs == -1).sum()),
                seeds=len(by_seed),
            )
        )
    return values


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


def pairs(study: StudyRecords, key: str) -> Blocks:
    """Return the section that compares every algorithm with the reference, site by site."""
    outcome = compare_sites(study)
    if not outcome:
        return []
    name = label_of(study.study.reference or "", study.study)
    rows = []
    for pair in outcome:
        rows.append(
            {
                "Algorithm": label_of(pair.strategy, study.study),
                f"Minus {name} [95 %]": with_interval(pair.difference, pair.interval, 2),
                "Sites better": str(pair.better),
                "Equal": str(pair.level),
                "Worse": str(pair.worse),
                "Seeds": str(pair.seeds),
            }
        )
    text = (
        "Equal seeds give all algorithms the same sites, examples and initial weights. "
        "Intervals are percentiles of means over seeds and sites, both resampled with "
        f"replacement ({DRAWS:,} draws)."
    )
    if min(pair.seeds for pair in outcome) < ENOUGH_SEEDS:
        text += (
            " With few seeds, the variance between seeds is poorly estimated: the "
            "intervals are too narrow."
        )
    caption = "Differences at the same site under the same seed, points"
    return [Table.of(caption, rows), Note(text)]


# -- redundancy --------------------------------------------------------------------------------


def redundancy(study: StudyRecords, key: str) -> Blocks:
    """Return the section on similarity of selected examples to those that collaborators had
    labeled, if a strategy has collaborators.
    """
    rows = []
    for strategy in rank_strategies(study):
        by_seed = []
        for cell in study.of(strategy):
            measured = []  # one per cycle
            for row in cell.records:
                note = row.get("pseudo_labels")
                cosine = note.get("redundancy") if note else None
                if cosine is not None:
                    measured.append(cosine)
            if measured:
                by_seed.append(fmean(measured))
        if by_seed:
            rows.append(
                {
                    heading(study.study): label_of(strategy, study.study),
                    "Cosine": spread_of(by_seed).text(3),
                    "Seeds": str(len(by_seed)),
                }
            )
    if not rows:
        return []
    text = (
        "Mean over selected examples of the largest cosine similarity to a labeled "
        "example of a collaborator, in the features of the site's own averaged model; "
        "lower is less similar. This is only measured in simulations, which have access "
        "to several sites at once."
    )
    return [Table.of("Redundancy of selected examples", rows), Note(text)]
