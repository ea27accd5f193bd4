"""The report sections of AHFAL: its findings 1 to 3, and how classes were routed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.core.words import listed
from fallow.papers.ahfal import figures as draw
from fallow.papers.ahfal.families import FAMILIES, Family
from fallow.papers.ahfal.oracle import oracle_pairs
from fallow.papers.ahfal.slopes import FEWEST, Slopes, slopes
from fallow.papers.ahfal.tradeoff import Tradeoff, tradeoff
from fallow.report.columns import NOTHING, with_interval
from fallow.report.comparisons import (
    TESTS,
    drawn,
    few,
    note,
    score_text,
    tested_cells,
    tested_pairs,
    unit_of,
)
from fallow.report.final_table import label_of
from fallow.report.findings.sweeps import alpha_sweeps
from fallow.report.html import Html, section, table
from fallow.report.paper import Sections
from fallow.report.personal import chooses_nothing
from fallow.report.section import Across, Place, Section
from fallow.study.records import StudyRecords

TYPICALITY = (
    "Typicality: the plain strategy chooses by clusters (TypiClust); with the shares known, rows "
    "of a class are ordered by the same density without clusters."
)


def oracle(study: StudyRecords, key: str) -> Html | None:
    """AHFAL's Figure 4: what the true class shares are worth to a plain heuristic."""
    tests = tested_pairs(study, oracle_pairs)
    if chooses_nothing(study) or not tests:
        return None
    rows = [
        [
            p.what,
            score_text(study, p.against),
            score_text(study, p.query),
            *tested_cells(study, c),
        ]
        for p, c in tests
    ]
    return section(
        "What knowing the classes would be worth",
        drawn(
            draw.lifts(tests, unit_of(study)),
            f"{key}-lifts",
            "A bar to the right: the heuristic gains when each site buys what its labels lack to "
            "the true class shares of all sites. Mean over seeds, 95 % Student interval. No real "
            "site knows the true class of an unlabelled row: this is an upper bound.",
        ),
        table(
            "Plain, and with the true class shares",
            ["Heuristic", "Plain", "Shares known", *TESTS],
            rows,
        ),
        *([note(TYPICALITY)] if any(p.what == "typicality" for p, _ in tests) else []),
        *few(tests),
    )


def routing(study: StudyRecords, key: str) -> Html | None:
    """How classes were routed to one model or to two."""
    figure = draw.routing(study) if study.higher_is_better else None
    if figure is None:
        return None
    caption = (
        "Left: one line per class, the spread of its share over sites; a class below the "
        "dashed threshold is scored by the local and the global model together, one above "
        "it by the local model alone. Right: how many classes are below."
    )
    return section("Routing of classes", drawn(figure, f"{key}-routing", caption))


def spread(study: StudyRecords, key: str) -> Html | None:
    """Class spread and accuracy in one study."""
    lines = None if chooses_nothing(study) else slopes([study])
    return class_slopes(lines, study, key) if lines else None


def swept(studies: Sequence[StudyRecords]) -> list[StudyRecords]:
    """The studies whose slopes stand in the article over all."""
    return [s for sweep in alpha_sweeps(studies) if slopes(sweep) for s in sweep]


def sweeps(studies: Sequence[StudyRecords], key: str) -> list[Html]:
    """The trade-off and the slopes of every group of studies that differ in alpha alone."""
    parts: list[Html] = []
    for i, sweep in enumerate(alpha_sweeps(studies)):
        parts += _sweep(sweep, f"{key}-{i}")
    return parts


def _sweep(sweep: Sequence[StudyRecords], key: str) -> list[Html]:
    """AHFAL's Figures 2 and 3 over studies that differ in alpha alone."""
    found, lines, first = tradeoff(sweep), slopes(sweep), sweep[0]
    parts = [class_slopes(lines, first, key)] if lines else []
    if found is None:
        return parts
    names = listed([s.study.name for s in sweep])
    return [
        section(
            "Local or global model, over alpha",
            drawn(
                draw.tradeoff(found, unit_of(first)),
                f"{key}-tradeoff",
                "Above zero, strategies that read the global model end better than those that "
                "read each site's own; a line that crosses zero is the trade-off. Means of the "
                "strategies of a family, paired by seed, with 95 % Student intervals.",
            ),
            _points(found),
            note(
                f"Studies: {names}. {who(first, found.members)} AHFAL's paper (Figure 2) calls the "
                "first family centralised, and strategies that read the global model decentralised."
            ),
        ),
        *parts,
    ]


def _points(found: Tradeoff) -> Html:
    """The points of the figure in numbers."""
    rows = [
        [
            f"{p.alpha:g}",
            FAMILIES[kind].capitalize(),
            with_interval(p.difference, p.interval, 2),
            str(p.seeds),
        ]
        for kind, points in found.points.items()
        for p in points
    ]
    header = ["Alpha", "Family", "Difference [95 %]", "Seeds"]
    return table("Minus strategies of the local model only", header, rows, words=2)


def class_slopes(found: Slopes, study: StudyRecords, key: str) -> Html:
    """AHFAL's Figure 3, with the slopes in numbers."""
    rows = []
    for kind, line in found.lines.items():
        steeper = found.steeper.get(kind)
        rows.append(
            [
                FAMILIES[kind].capitalize(),
                with_interval(line.slope, line.interval, 2),
                with_interval(*steeper, 2) if steeper else NOTHING,
                str(line.points),
            ]
        )
    header = ["Family", "Slope [95 %]", "Minus local only [95 %]", "Points"]
    few = (
        f"Intervals need {FEWEST} runs or more to draw again; there are {found.runs}. "
        if not all(line.interval for line in found.lines.values())
        else f"Intervals: the {found.runs} runs (study and seed) drawn again with replacement. "
    )
    return section(
        "Class spread and accuracy",
        drawn(
            draw.slopes(found),
            f"{key}-slopes",
            "A line that falls less steeply loses less on classes that few sites hold. Least "
            "squares over all classes, strategies and seeds; marks are means of equally many "
            "points, ordered by CV.",
        ),
        table("Points of accuracy per unit of CV", header, rows),
        note(few + who(study, {kind: line.queries for kind, line in found.lines.items()})),
    )


def who(study: StudyRecords, members: Mapping[Family, tuple[str, ...]]) -> str:
    """A sentence with the members of each family."""
    names = (
        f"{FAMILIES[kind]}: {listed([label_of(q, study.study) for q in queries])}"
        for kind, queries in members.items()
    )
    return "Strategies by what they read; " + "; ".join(names) + "."


SPREAD = "Class spread and accuracy"
SECTIONS = Sections(
    of_one=(
        Section("Routing of classes", Place.CLASSES, routing),
        Section("What knowing the classes would be worth", Place.FINDINGS, oracle),
        Section(SPREAD, Place.FINDINGS, spread),
    ),
    of_several=(Across("Over alpha", sweeps, replaces=SPREAD, covers=swept),),
)
