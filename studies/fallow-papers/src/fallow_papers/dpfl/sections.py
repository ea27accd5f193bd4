"""Report sections of DPFL: collaboration graphs and their measures."""

from __future__ import annotations

import math
from statistics import fmean

from fallow.report.blocks import NOTHING, Block, Blocks, Note, Table, show_figure
from fallow.report.final_table import label_of
from fallow.report.personal import has_sites, outcomes
from fallow.report.section import Section, SectionPosition, Sections
from fallow.study.records import StudyRecords
from fallow_papers.dpfl import figures as draw
from fallow_papers.dpfl import graphs as find
from fallow_papers.dpfl.graphs import GraphMeasures, Graphs


def graphs(study: StudyRecords, key: str) -> Blocks:
    """Return the collaboration graphs and their measures, if any are recorded."""
    result = find.all_graphs(study)
    if not result:
        return []
    parts: list[Block] = []
    for i, (strategy, runs) in enumerate(result.items()):
        run = runs[0]
        caption = (
            f"{label_of(strategy, study.study)}, seed {run.seed}: a blue square marks a site "
            "(column) whose model the site of the row averages with its own; an orange "
            "square marks a candidate that is not used in that round."
        )
        words = _describe_links(run)
        name = f"{key}-adjacency-{i}"
        parts.append(show_figure(draw.adjacency(run), name, caption, alt=words))
    figure = draw.rounds(study, result)
    if figure is not None:
        caption = (
            "Means over seeds. Left: a rising line means fewer collaborators; as in the "
            "paper, every site's link to itself counts as present. Middle: pairs of "
            "sites that are linked in one direction only."
        )
        parts.append(show_figure(figure, f"{key}-links", caption))
    return [*parts, *_numbers(study, result)]


def scatter(study: StudyRecords, key: str) -> Blocks:
    """Return DPFL's Figures 1 and 5 to 7: accuracy and variance of each strategy."""
    values = outcomes(study)
    if len(values) < 2:
        return []
    caption = (
        "To the right: sites are more accurate; below: their accuracies are closer. Means "
        "over seeds; the variance is that between sites."
    )
    words = "; ".join(
        f"{label_of(value.strategy, study.study)} {fmean(value.accuracy):.2f} %, variance "
        f"{value.variance:.1f}"
        for value in values
    )
    figure = draw.accuracy_and_variance(study, values)
    return [show_figure(figure, f"{key}-scatter", caption, alt=f"{words}.")]


def _describe_links(run: Graphs) -> str:
    """Describe the numbers of links in the first and the last recorded graph."""
    first = int(run.by_round[run.first].sum())
    last = int(run.by_round[run.last].sum())
    return (
        f"Senders and receivers among {len(run.sites)} sites: {first} links in round "
        f"{run.first + 1}, {last} in round {run.last + 1}."
    )


def _numbers(study: StudyRecords, graphs: dict[str, list[Graphs]]) -> list[Block]:
    """Return the measures of the first and the last recorded graph of every strategy."""
    rows: list[list[str]] = []
    marks: list[str] = []
    for strategy, runs in graphs.items():
        label = label_of(strategy, study.study)
        first = find.at(study, runs, lambda run: run.first)
        last = find.at(study, runs, lambda run: run.last)
        rule = ""
        if rows:
            rule = "first"  # a rule above each strategy but the first
        marks.append(rule)
        rows.append([label, "first", *_cells(first)])
        marks.append("")
        rows.append([label, "last", *_cells(last)])
    base = find.mean([run.base for runs in graphs.values() for run in runs])
    header = [
        "Algorithm",
        "Round",
        "Absent links, %",
        "Absent, with self-links, %",
        "Symmetric pairs, %",
        "Reciprocal links, %",
        "Churn, %",
        "Most receivers",
        "Class distance",
        "From flipped, %",
    ]
    if math.isnan(base):  # without flipped labels
        header = header[:-1]
        rows = [row[:-1] for row in rows]
    text = (
        "Symmetric pairs: linked in both directions or in none. Reciprocal links: those whose "
        "reverse exists. Churn: mean Jaccard distance of a site's senders from the "
        "previous recorded round. Most receivers: largest number of receivers of one "
        "sender. Class distance: total variation of classes between a site and its "
        f"senders; between any two sites it is {_apart(study, graphs)}."
    )
    if not math.isnan(base):
        text += f" By chance, {100 * base:.0f} % of links would come from sites with flipped labels."
    sentences = []
    for strategy, runs in graphs.items():
        share = find.mean([run.conflicts for run in runs])
        if not math.isnan(share):
            sentences.append(f"{label_of(strategy, study.study)} {100 * share:.1f} %")
    if sentences:
        text += (
            " Share of visits in which joining and leaving both gained, so that a random "
            f"draw decided: {', '.join(sentences)}."
        )
    return [Table("Graphs", header, rows, words=2, classes=marks), Note(text)]


def _cells(m: GraphMeasures) -> list[str]:
    shares = (m.sparsity, m.with_self, m.agreement, m.reciprocity, m.churn)
    return [
        *map(_percent, shares),
        _number(m.popular, 1),
        _number(m.distance, 2),
        _percent(m.wrong),
    ]


def _percent(share: float) -> str:
    return _number(100 * share, 1)


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return NOTHING
    return f"{value:.{digits}f}"


def _apart(study: StudyRecords, graphs: dict[str, list[Graphs]]) -> str:
    """Return the mean class distance of any two sites, over seeds."""
    seeds = {run.seed: run for runs in graphs.values() for run in runs}
    values = []
    for run in seeds.values():
        matrix = find.classes_of(study, run)
        if matrix is not None:
            n = len(matrix)
            values.append(float(find.distances(matrix).sum()) / (n * (n - 1)))
    return _number(find.mean(values), 2)


SECTIONS = Sections(
    of_one=(
        Section(
            "Accuracy and variance of sites", SectionPosition.SITES, scatter, has_sites
        ),
        Section("Collaboration graphs", SectionPosition.SITES, graphs, has_sites),
    )
)
