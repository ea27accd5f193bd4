"""Report sections of AHFAL: findings 1 to 3, and routing of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.core.wording import join_words
from fallow.report.blocks import NOTHING, Block, Blocks, Note, Table, show_figure
from fallow.report.comparisons import (
    compare_final_scores,
    note_few_seeds,
    score_text,
    tested_cells,
)
from fallow.report.final_table import label_of, with_interval
from fallow.report.section import (
    Across,
    Section,
    SectionPosition,
    Sections,
    chooses,
    has_classes,
)
from fallow.study.records import StudyRecords
from fallow_papers.ahfal import figures as draw
from fallow_papers.ahfal.code_pairs import codes
from fallow_papers.ahfal.families import FAMILIES, Family
from fallow_papers.ahfal.oracle import oracle_pairs
from fallow_papers.ahfal.slopes import FEWEST, Slopes, slopes
from fallow_papers.ahfal.tradeoff import Tradeoff, tradeoff
from fallow_papers.sweeps import alpha_sweeps

TYPICALITY = (
    "Typicality: the plain strategy selects by clusters (TypiClust); with known shares, "
    "examples of a class are ranked by the same density without clusters."
)


def oracle(study: StudyRecords, key: str) -> Blocks:
    """Return the section on AHFAL's Figure 4: gain of a heuristic with the true class
    shares.
    """
    tests = compare_final_scores(study, oracle_pairs(study.strategies))
    if not tests:
        return []
    unit = study.measure.unit
    rows = []
    for pair, c in tests:
        rows.append(
            {
                "Heuristic": pair.what,
                "Plain": score_text(study, pair.against),
                "Shares known": score_text(study, pair.strategy),
                **tested_cells(study, c),
            }
        )
    caption = (
        "A bar to the right means that the heuristic gains if each site moves its labels "
        "towards the true class shares of all sites. Mean over seeds, 95 % Student "
        "interval. This is an upper bound, because no real site knows the true class of "
        "an unlabeled example."
    )
    output = [f"{p.what} {c.difference:+.2f}" for p, c in tests]
    words = f"True class shares minus unknown shares, {unit}: {', '.join(output)}."
    figure = draw.lifts(tests, unit)
    table = Table.of("Plain, and with the true class shares", rows)
    notes: list[Block] = []
    if any(pair.what == "typicality" for pair, _ in tests):
        notes.append(Note(TYPICALITY))
    return [
        show_figure(figure, f"{key}-lifts", caption, alt=words),
        table,
        *notes,
        *note_few_seeds(tests),
    ]


def routing(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the routing of classes to one or two models."""
    figure = draw.routing(study)
    if figure is None:
        return []
    caption = (
        "Left: one line per class with the spread of its share over sites. A class below "
        "the dashed threshold is scored by the local and the global model, one above it "
        "only by the local model. Right: number of classes below the threshold."
    )
    return [show_figure(figure, f"{key}-routing", caption)]


def spread(study: StudyRecords, key: str) -> Blocks:
    """Return the section on class spread and accuracy in one study."""
    lines = slopes([study])
    if lines is None:
        return []
    return class_slopes(lines, study, key)


def studies_with_slopes(studies: Sequence[StudyRecords]) -> list[StudyRecords]:
    """Return the studies whose slopes are in the article over all studies."""
    result: list[StudyRecords] = []
    for sweep in alpha_sweeps(studies):
        if slopes(sweep) is not None:
            result += sweep
    return result


def sweeps(studies: Sequence[StudyRecords], key: str) -> list[tuple[str, Blocks]]:
    """Return trade-off and slopes of every group of studies that differ only in alpha."""
    parts: list[tuple[str, Blocks]] = []
    for i, sweep in enumerate(alpha_sweeps(studies)):
        name = f"{key}-{i}"
        parts.append(("Local or global model, over alpha", _tradeoff(sweep, name)))
        lines = slopes(sweep)
        if lines:
            parts.append((SPREAD, class_slopes(lines, sweep[0], name)))
    return parts


def _tradeoff(sweep: Sequence[StudyRecords], key: str) -> Blocks:
    """Return AHFAL's Figure 2 over studies that differ only in alpha."""
    result = tradeoff(sweep)
    if result is None:
        return []
    first = sweep[0]
    names = join_words([s.study.name for s in sweep])
    caption = (
        "Above zero, strategies that read the global model end better than those that "
        "read only each site's own; a line that crosses zero shows the trade-off. Means "
        "over the strategies of a family, paired by seed, with 95 % Student intervals."
    )
    note = (
        f"Studies: {names}. {list_strategies(first, result.members)} AHFAL's paper (Figure 2) "
        "calls the first family centralized, and strategies that read the global model decentralized."
    )
    figure = draw.tradeoff(result, first.measure.unit)
    words = _describe_tradeoff(result, first.measure.unit)
    return [
        show_figure(figure, f"{key}-tradeoff", caption, alt=words),
        _points(result),
        Note(note),
    ]


def _describe_tradeoff(values: Tradeoff, unit: str) -> str:
    """Describe the difference of each family at the first and at the last alpha."""
    tradeoff = []
    for kind, points in values.points.items():
        at = [f"{p.difference:+.2f} {unit} at alpha {p.alpha:g}" for p in points]
        tradeoff.append(f"{FAMILIES[kind]}: {', '.join(at)}")
    return f"Minus strategies with the local model only. {'; '.join(tradeoff)}."


def _points(values: Tradeoff) -> Table:
    """Return the points of the figure as a table."""
    rows = []
    for kind, points in values.points.items():
        for point in points:
            difference = with_interval(point.difference, point.interval, 2)
            name = FAMILIES[kind].capitalize()
            rows.append([f"{point.alpha:g}", name, difference, str(point.seeds)])
    header = ["Alpha", "Family", "Difference [95 %]", "Seeds"]
    return Table("Minus strategies with the local model only", header, rows, words=2)


def class_slopes(values: Slopes, study: StudyRecords, key: str) -> Blocks:
    """Return AHFAL's Figure 3, with the slopes as a table."""
    rows = []
    for kind, line in values.lines.items():
        difference = NOTHING
        if kind in values.steeper:
            steeper, interval = values.steeper[kind]
            difference = with_interval(steeper, interval, 2)
        slope = with_interval(line.slope, line.interval, 2)
        rows.append([FAMILIES[kind].capitalize(), slope, difference, str(line.points)])
    header = ["Family", "Slope [95 %]", "Minus local only [95 %]", "Points"]
    if all(line.interval for line in values.lines.values()):
        drawn = (
            f"Intervals: percentiles over {values.runs} runs (study and seed), resampled "
            "with replacement."
        )
    else:
        drawn = (
            f"Intervals need at least {FEWEST} runs to resample; there are {values.runs}."
        )
    caption = (
        "A line with a smaller slope loses less on classes that few sites have. Least "
        "squares over all classes, strategies and seeds; marks are means of equally many "
        "points, ordered by CV."
    )
    output = [f"{FAMILIES[kind]} {line.slope:+.2f}" for kind, line in values.lines.items()]
    words = (
        "Accuracy of a class by its uneven distribution over sites. Slopes: "
        f"{', '.join(output)}."
    )
    members = {kind: line.strategies for kind, line in values.lines.items()}
    return [
        show_figure(draw.slopes(values), f"{key}-slopes", caption, alt=words),
        Table("Points of accuracy per unit of CV", header, rows),
        Note(f"{drawn} {list_strategies(study, members)}"),
    ]


def list_strategies(study: StudyRecords, members: Mapping[Family, tuple[str, ...]]) -> str:
    """Describe the members of each family in a sentence."""
    names = (
        f"{FAMILIES[kind]}: {join_words([label_of(q, study.study) for q in strategies])}"
        for kind, strategies in members.items()
    )
    return "Strategies by the models that they read; " + "; ".join(names) + "."


SPREAD = "Class spread and accuracy"
SECTIONS = Sections(
    of_one=(
        Section("Routing of classes", SectionPosition.CLASSES, routing, has_classes),
        Section(
            "Published code compared with the paper",
            SectionPosition.FINDINGS,
            codes,
            chooses,
        ),
        Section("Gain from known class shares", SectionPosition.FINDINGS, oracle, chooses),
        Section(SPREAD, SectionPosition.FINDINGS, spread, chooses),
    ),
    of_several=(Across(sweeps, replaces=SPREAD, covers=studies_with_slopes),),
)
