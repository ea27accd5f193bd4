"""The sections of a report about studies with one model per site: rounds, sites, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fallow.core.words import join_some, join_words, size
from fallow.report.blocks import Block, Blocks, Note, Table, show_figure
from fallow.report.columns import NOTHING, with_interval
from fallow.report.figures import sites as draw
from fallow.report.final_table import label_of, rank_strategies, spread_of
from fallow.report.findings import personal as find
from fallow.study.names import heading
from fallow.study.records import StudyRecords

ENOUGH_SEEDS = 5
"""With fewer the bootstrap over seeds is said to be too narrow."""


def over_rounds(study: StudyRecords, key: str) -> Blocks:
    """Accuracy after every round, where every round was scored."""
    figure = draw.rounds(study)
    if figure is None:
        return []
    caption = (
        "Higher up is better after as many rounds. Where labels are held back, the model of each "
        "site is the one that validated best so far. A method with a last word, such as fine "
        "tuning, is scored after it in the last round."
    )
    return [show_figure(figure, f"{key}-rounds", caption, alt=_describe_rounds(study))]


def _describe_rounds(study: StudyRecords) -> str:
    """Where every method ends, in words."""
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
    """How sites fared, and what they received."""
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
        "Means over seeds. By rows: every test row counts the same. Variance: between sites, of "
        "the population. Worst tenth: mean of the lowest tenth of the sites. Below local: share "
        "of sites that local training alone serves better, by seed and site. Received: from the "
        "server and from other sites in a whole run, mean over sites; most: the site with most."
        + _left_out(find.left_out(study), bool(study.study.recipe.get("flip")))
    )
    caption = (
        "Left: up is more accurate, left more alike for all sites. Right: left is cheaper; what a "
        "site receives from the server and from others. Bars are one standard deviation over seeds."
    )
    blocks: list[Block] = [
        Table("Each site's model on its own test rows", header, rows),
        Note(text),
    ]
    if len(result) > 1:  # one dot alone compares nothing
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
        f"Accuracy against variance between sites, and against what a site receives. "
        f"{name(best)} is most accurate with {fmean(best.accuracy):.2f} %; "
        f"{name(even)} is most alike for all sites with a variance of "
        f"{even.variance:.1f} percent²; {name(cheap)} receives least, "
        f"{size(cheap.received)} a site."
    )


def _left_out(sites: list[str], is_flipped: bool) -> str:
    """Describe which sites are excluded from the scores, and why."""
    if not sites:
        return ""
    if not is_flipped:
        return f" Not in the last scores, to which they told none: {join_some(sites)}."
    if len(sites) == 1:
        return " One site with flipped labels is left out of all scores."
    return f" The {len(sites)} sites with flipped labels are left out of all scores."


def pairs(study: StudyRecords, key: str) -> Blocks:
    """Every method against the reference, site by site."""
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
        "The same seed gives all methods the same sites, rows and first weights. Intervals are "
        "percentiles of means over seeds and, within them, sites drawn again with replacement "
        f"({find.DRAWS:,} draws)."
    )
    if min(pair.seeds for pair in outcome) < ENOUGH_SEEDS:
        text += (
            " So few seeds leave the spread between seeds badly known: the intervals are too "
            "narrow."
        )
    return [table, Note(text)]


def redundancy(study: StudyRecords, key: str) -> Blocks:
    """How much of what sites asked for their collaborators had labeled already."""
    value = find.mean_redundancy(study)
    if not value:
        return []
    rows = []
    for strategy, by_seed in value.items():
        cosine = spread_of(by_seed).text(3)
        rows.append([label_of(strategy, study.study), cosine, str(len(by_seed))])
    table = Table(
        "Redundancy of what was picked",
        header=[heading(study.study), "Cosine", "Seeds"],
        rows=rows,
    )
    text = (
        "Mean over picks of the largest cosine to a labeled row of a collaborator, in the "
        "features of the site's own average; lower is less alike. Only a simulation can look into "
        "several sites at once."
    )
    return [table, Note(text)]
