"""Report sections on personalized models: rounds, sites, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fallow.core.wording import join_some, join_words, size
from fallow.report.blocks import Block, Blocks, Note, Table, show_figure
from fallow.report.columns import NOTHING, with_interval
from fallow.report.figures import sites as draw
from fallow.report.final_table import label_of, rank_strategies, spread_of
from fallow.report.findings import personal as find
from fallow.study.names import heading
from fallow.study.records import StudyRecords

ENOUGH_SEEDS = 5
"""Minimum number of seeds without a warning about the bootstrap over seeds."""


def over_rounds(study: StudyRecords, key: str) -> Blocks:
    """Return the figure of accuracy after every round, if every round was scored."""
    figure = draw.rounds(study)
    if figure is None:
        return []
    caption = (
        "Higher is better for equal numbers of rounds. If labels are held back for "
        "validation, each site uses its best model so far by validation. Algorithms with "
        "a final step, such as fine-tuning, are scored after it in the last round."
    )
    return [show_figure(figure, f"{key}-rounds", caption, alt=_describe_rounds(study))]


def _describe_rounds(study: StudyRecords) -> str:
    """Describe the final score of every algorithm."""
    last_scores = []
    for strategy in rank_strategies(study):
        by_round = find.over_rounds(study, strategy)
        if by_round:
            last = max(by_round)
            last_scores.append((fmean(by_round[last]), label_of(strategy, study.study)))
    last_scores.sort(reverse=True)
    ends = join_words([f"{name} at {score:.1f} %" for score, name in last_scores])
    return f"Test accuracy over rounds, mean over sites. In the last round: {ends}."


def sites(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the accuracy of sites and the bytes received."""
    result = find.outcomes(study)
    rows = []
    for outcome in result:
        below_local = NOTHING
        if outcome.below_local is not None:
            below_local = f"{outcome.below_local:.0f}"
        models = NOTHING
        if outcome.models is not None:
            models = f"{outcome.models:,.1f}"
        row = [
            label_of(outcome.strategy, study.study),
            spread_of(outcome.accuracy).text(),
            f"{outcome.weighted:.2f}",
            f"{outcome.variance:.1f}",
            f"{outcome.worst_tenth:.2f}",
            f"{outcome.lowest:.2f}",
            below_local,
            size(outcome.received),
            size(outcome.largest),
            models,
        ]
        rows.append(row)
    header = [
        "Method",
        "Mean over sites, %",
        "By rows, %",
        "Variance, %²",
        "Worst tenth, %",
        "Worst, %",
        "Below local, %",
        "Received by a site",
        "Most",
        "In models",
    ]
    text = (
        "Means over seeds. By examples: every test example has the same weight. "
        "Variance: population variance between sites. Worst tenth: mean of the lowest "
        "tenth of the sites. Below local: share of sites for which local training is "
        "better, by seed and site. Received: from the coordinator and from other sites "
        "in a whole run, mean over sites; most: the site with the most."
        + _left_out(find.left_out(study), bool(study.study.recipe.get("flip")))
    )
    caption = (
        "Left: higher is more accurate, further left is more even across sites. Right: "
        "further left is cheaper, in bytes received from the coordinator and from other "
        "sites. Bars are one standard deviation over seeds."
    )
    blocks: list[Block] = [
        Table("Model of each site on its own test examples", header, rows),
        Note(text),
    ]
    if len(result) > 1:  # a single dot has nothing to compare with
        figure = draw.trade(study, result)
        words = _describe_trade(study, result)
        blocks.append(show_figure(figure, f"{key}-trade", caption, alt=words))
    return blocks


def _describe_trade(study: StudyRecords, outcomes: Sequence[find.SiteOutcome]) -> str:
    """Describe the most accurate, the most even and the cheapest algorithm."""

    def name(outcome: find.SiteOutcome) -> str:
        return label_of(outcome.strategy, study.study)

    best = max(outcomes, key=lambda outcome: fmean(outcome.accuracy))
    even = min(outcomes, key=lambda outcome: outcome.variance)
    cheap = min(outcomes, key=lambda outcome: outcome.received)
    return (
        "Accuracy against variance between sites, and against bytes received by a site. "
        f"{name(best)} is most accurate with {fmean(best.accuracy):.2f} %; {name(even)} "
        f"is most even across sites with a variance of {even.variance:.1f} percent²; "
        f"{name(cheap)} receives least, {size(cheap.received)} per site."
    )


def _left_out(sites: list[str], is_flipped: bool) -> str:
    """Describe which sites are excluded from the scores, and why."""
    if not sites:
        return ""
    if not is_flipped:
        return f" The last scores exclude {join_some(sites)}, which reported none."
    if len(sites) == 1:
        return " One site with flipped labels is excluded from all scores."
    return f" The {len(sites)} sites with flipped labels are excluded from all scores."


def pairs(study: StudyRecords, key: str) -> Blocks:
    """Return the section that compares every algorithm with the reference, site by site."""
    outcome = find.compare_sites(study)
    if not outcome:
        return []
    name = label_of(study.study.reference or "", study.study)
    rows = []
    for pair in outcome:
        row = [
            label_of(pair.strategy, study.study),
            with_interval(pair.difference, pair.interval, 2),
            str(pair.better),
            str(pair.level),
            str(pair.worse),
            str(pair.seeds),
        ]
        rows.append(row)
    table = Table(
        "Differences at the same site under the same seed, points",
        header=[
            "Method",
            f"Minus {name} [95 %]",
            "Sites better",
            "Equal",
            "Worse",
            "Seeds",
        ],
        rows=rows,
    )
    text = (
        "Equal seeds give all algorithms the same sites, examples and initial weights. "
        "Intervals are percentiles of means over seeds and sites, both resampled with "
        f"replacement ({find.DRAWS:,} draws)."
    )
    if min(pair.seeds for pair in outcome) < ENOUGH_SEEDS:
        text += (
            " With few seeds, the variance between seeds is poorly estimated: the "
            "intervals are too narrow."
        )
    return [table, Note(text)]


def redundancy(study: StudyRecords, key: str) -> Blocks:
    """Return the section on similarity of selected examples to those that collaborators had
    labeled.
    """
    value = find.mean_redundancy(study)
    if not value:
        return []
    rows = []
    for strategy, by_seed in value.items():
        cosine = spread_of(by_seed).text(3)
        rows.append([label_of(strategy, study.study), cosine, str(len(by_seed))])
    table = Table(
        "Redundancy of selected examples",
        header=[heading(study.study), "Cosine", "Seeds"],
        rows=rows,
    )
    text = (
        "Mean over selected examples of the largest cosine similarity to a labeled "
        "example of a collaborator, in the features of the site's own averaged model; "
        "lower is less similar. This is only measured in simulations, which have access "
        "to several sites at once."
    )
    return [table, Note(text)]
