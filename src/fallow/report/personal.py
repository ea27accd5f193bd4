"""The sections of a report about studies with one model per site: rounds, sites, pairs."""

from __future__ import annotations

from collections.abc import Callable

from fallow.core.words import size, some
from fallow.report.columns import NOTHING, with_interval
from fallow.report.comparisons import drawn, note
from fallow.report.figures import sites as draw
from fallow.report.final_table import Spread, label_of
from fallow.report.findings import personal as find
from fallow.report.html import Html, section, table
from fallow.study.names import heading
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd


def chooses_nothing(study: StudyRecords) -> bool:
    """Whether all labels are bought before the first round, so that strategies differ by how they
    train alone."""
    return study.study.recipe.get("cycles") == 0


def of_sites(
    render: Callable[[StudyRecords, str], Html | None],
) -> Callable[[StudyRecords, str], Html | None]:
    """The same section, for a study that has scores of each site alone."""

    def only(study: StudyRecords, key: str) -> Html | None:
        if study.higher_is_better and find.has_sites(study):
            return render(study, key)
        return None

    return only


def over_rounds(study: StudyRecords, key: str) -> Html | None:
    """Accuracy after every round, where every round was scored."""
    figure = draw.rounds(study)
    if figure is None:
        return None
    caption = (
        "Higher up is better after as many rounds. Where labels are held back, the model of each "
        "site is the one that validated best so far. A method with a last word, such as fine "
        "tuning, is scored after it in the last round."
    )
    return section("Accuracy over rounds", drawn(figure, f"{key}-rounds", caption))


def sites(study: StudyRecords, key: str) -> Html:
    """How sites fared, and what they received."""
    found = find.fared(study)
    rows = [
        [
            label_of(s.query, study.study),
            Spread(*mean_sd(s.accuracy)).text(),
            f"{s.weighted:.2f}",
            f"{s.variance:.1f}",
            f"{s.worst_tenth:.2f}",
            f"{s.lowest:.2f}",
            NOTHING if s.below_local is None else f"{s.below_local:.0f}",
            size(s.received),
            size(s.most),
            NOTHING if s.models is None else f"{s.models:,.1f}",
        ]
        for s in found
    ]
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
    made = table("Each site's model on its own test rows", header, rows)
    shown = (
        [drawn(draw.trade(study, found), f"{key}-trade", caption)] if len(found) > 1 else []
    )
    return section("Sites", made, note(text), *shown)  # one dot alone compares nothing


def _left_out(sites: list[str], is_flipped: bool) -> str:
    """Who is not in the scores, and why."""
    if not sites:
        return ""
    if not is_flipped:
        return f" Not in the last scores, to which they told none: {some(sites)}."
    if len(sites) == 1:
        return " One site with flipped labels is left out of all scores."
    return f" The {len(sites)} sites with flipped labels are left out of all scores."


def pairs(study: StudyRecords) -> Html | None:
    """Every method against the reference, site by site."""
    found = find.paired(study)
    if not found:
        return None
    name = label_of(study.study.reference or "", study.study)
    rows = [
        [
            label_of(p.query, study.study),
            with_interval(p.difference, p.interval, 2),
            *map(str, (p.better, p.level, p.worse, p.seeds)),
        ]
        for p in found
    ]
    header = ["Method", f"Minus {name} [95 %]", "Sites better", "Equal", "Worse", "Seeds"]
    few = (
        ""
        if min(p.seeds for p in found) >= 5
        else (
            " So few seeds leave the spread between seeds badly known: the intervals are too narrow."
        )
    )
    return section(
        "Site by site",
        table("Differences at the same site under the same seed, points", header, rows),
        note(
            "The same seed gives all methods the same sites, rows and first weights. Intervals "
            "are percentiles of means over seeds and, within them, sites drawn again with "
            f"replacement ({find.DRAWS:,} draws).{few}"
        ),
    )


def redundancy(study: StudyRecords) -> Html | None:
    """How much of what sites asked for their collaborators had labelled already."""
    found = find.redundant(study)
    if not found:
        return None
    rows = [
        [label_of(query, study.study), Spread(*mean_sd(by_seed)).text(3), str(len(by_seed))]
        for query, by_seed in found.items()
    ]
    return section(
        "What collaborators had labelled already",
        table(
            "Redundancy of what was picked", [heading(study.study), "Cosine", "Seeds"], rows
        ),
        note(
            "Mean over picks of the largest cosine to a labelled row of a collaborator, in the "
            "features of the site's own average; lower is less alike. Only a simulation can look "
            "into several sites at once."
        ),
    )
